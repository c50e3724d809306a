// Rotary embedding, copies, biases, clamps, gates and products: operators that process distant vectors element by element.
#include <type_traits>

#include "activations.h"
#include "elementwise_code.h"
#include "grid_launch.h"
#include "kernels.h"

namespace odmoe::cuda {
namespace {

constexpr int kThreads = 256;

struct Place {
  int64_t row;
  int vector;
  int element;
};

// Thread (x, y) gets a pack of `width` elements of row y. False: there is no pack for this thread.
__device__ __forceinline__ bool find_place(int packs, int vectors, int width, Place& place) {
  const int index = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  place.row = blockIdx.y;
  place.vector = index / packs;
  place.element = (index - place.vector * packs) * width;
  return place.vector < vectors;
}

struct Copying {
  template <int kWidth>
  __device__ void operator()(Pack<kWidth>&, const Place&) const {}
};

struct BiasAddition {
  const float* bias;
  template <int kWidth>
  __device__ void operator()(Pack<kWidth>& x, const Place& place) const {
    const Pack<kWidth> biases = load_pack<kWidth>(bias + place.element);
    for (int j = 0; j < kWidth; ++j) x.values[j] = x.values[j] + biases.values[j];
  }
};

struct Clamp {
  float limit;
  template <int kWidth>
  __device__ void operator()(Pack<kWidth>& x, const Place&) const {
    for (int j = 0; j < kWidth; ++j) x.values[j] = clipped(x.values[j], limit);
  }
};

struct Gating {
  Vectors gates;
  Gate gate;
  template <int kWidth>
  __device__ void operator()(Pack<kWidth>& x, const Place& place) const {
    const Pack<kWidth> by = load_pack<kWidth>(vector_at(gates, place.row, place.vector) + place.element);
    for (int j = 0; j < kWidth; ++j) x.values[j] = x.values[j] * activated(by.values[j], gate);
  }
};

// One gate for all elements of a vector.
struct VectorGating {
  Vectors gates;
  Gate gate;
  template <int kWidth>
  __device__ void operator()(Pack<kWidth>& x, const Place& place) const {
    const float by = activated(*vector_at(gates, place.row, place.vector), gate);
    for (int j = 0; j < kWidth; ++j) x.values[j] = x.values[j] * by;
  }
};

struct Multiplication {
  Vectors factors;
  template <int kWidth>
  __device__ void operator()(Pack<kWidth>& x, const Place& place) const {
    const Pack<kWidth> by = load_pack<kWidth>(vector_at(factors, place.row, place.vector) + place.element);
    for (int j = 0; j < kWidth; ++j) x.values[j] = x.values[j] * by.values[j];
  }
};

template <int kWidth, class Act>
__global__ void __launch_bounds__(kThreads) act_kernel(const Vectors out, const Vectors in, const Act act) {
  Place place;
  if (!find_place(out.size / kWidth, out.vectors, kWidth, place)) return;
  Pack<kWidth> pack = load_pack<kWidth>(vector_at(in, place.row, place.vector) + place.element);
  act(pack, place);
  store_pack(vector_at(out, place.row, place.vector) + place.element, pack);
}

// The pairs (i, i + pairs) of a vector.
template <int kWidth>
__global__ void __launch_bounds__(kThreads) rotate_halves(const RotaryWork work) {
  const int pairs = work.heads.size / 2;
  Place place;
  if (!find_place(pairs / kWidth, work.heads.vectors, kWidth, place)) return;
  float* const low = vector_at(work.heads, place.row, place.vector) + place.element;
  Pack<kWidth> a = load_pack<kWidth>(low);
  Pack<kWidth> b = load_pack<kWidth>(low + pairs);
  const Pack<kWidth> c = load_pack<kWidth>(work.cos + place.row * pairs + place.element);
  const Pack<kWidth> s = load_pack<kWidth>(work.sin + place.row * pairs + place.element);
  for (int j = 0; j < kWidth; ++j) rotate_pair(a.values[j], b.values[j], c.values[j], s.values[j]);
  store_pack(low, a);
  store_pack(low + pairs, b);
}

// The pairs (2 i, 2 i + 1) of a vector, kWidth / 2 at a time.
template <int kWidth>
__global__ void __launch_bounds__(kThreads) rotate_neighbours(const RotaryWork work) {
  const int pairs = work.heads.size / 2;
  Place place;
  if (!find_place(work.heads.size / kWidth, work.heads.vectors, kWidth, place)) return;
  float* const first = vector_at(work.heads, place.row, place.vector) + place.element;
  Pack<kWidth> both = load_pack<kWidth>(first);
  for (int j = 0; j < kWidth / 2; ++j) {
    const int64_t angle = place.row * pairs + place.element / 2 + j;
    rotate_pair(both.values[2 * j], both.values[2 * j + 1], work.cos[angle], work.sin[angle]);
  }
  store_pack(first, both);
}

dim3 grid_of(int packs, int vectors, int rows) {
  return dim3(blocks_for(int64_t{packs} * vectors, kThreads), static_cast<unsigned>(rows), 1);
}

// act_of(first row, rows) returns the action for a slice of the rows.
template <class ActOf>
cudaError_t launch_act(const Vectors& out, const Vectors& in, bool wide, cudaStream_t stream, const ActOf& act_of) {
  if (out.size == 0 || out.vectors == 0) return cudaSuccess;
  return launch_row_slices(out.rows, [&](int64_t first, int rows) {
    const auto act = act_of(first, rows);
    using Act = std::decay_t<decltype(act)>;
    return launch_grid(grid_of(out.size / (wide ? 4 : 1), out.vectors, rows), kThreads, stream,
                       wide ? act_kernel<4, Act> : act_kernel<1, Act>, rows_from(out, first, rows), rows_from(in, first, rows),
                       act);
  });
}

}  // namespace

cudaError_t launch_copy_vectors(const Vectors& out, const Vectors& in, cudaStream_t stream) {
  return launch_act(out, in, takes_quads(out) && takes_quads(in), stream, [](int64_t, int) { return Copying{}; });
}

cudaError_t launch_add_bias(const Vectors& x, const float* bias, cudaStream_t stream) {
  return launch_act(x, x, takes_quads(x) && takes_quads(bias, 0), stream, [=](int64_t, int) { return BiasAddition{bias}; });
}

cudaError_t launch_clip(const Vectors& x, float limit, cudaStream_t stream) {
  return launch_act(x, x, takes_quads(x), stream, [=](int64_t, int) { return Clamp{limit}; });
}

cudaError_t launch_gate(const Vectors& x, const Vectors& gates, Gate gate, cudaStream_t stream) {
  if (gates.size != x.size) {
    return launch_act(x, x, takes_quads(x), stream, [&](int64_t first, int rows) {
      return VectorGating{rows_from(gates, first, rows), gate};
    });
  }
  return launch_act(x, x, takes_quads(x) && takes_quads(gates), stream, [&](int64_t first, int rows) {
    return Gating{rows_from(gates, first, rows), gate};
  });
}

cudaError_t launch_multiply_elements(const Vectors& out, const Vectors& a, const Vectors& b, cudaStream_t stream) {
  return launch_act(out, a, takes_quads(out) && takes_quads(a) && takes_quads(b), stream,
                    [&](int64_t first, int rows) { return Multiplication{rows_from(b, first, rows)}; });
}

cudaError_t launch_rotate(const RotaryWork& work, cudaStream_t stream) {
  const Vectors& heads = work.heads;
  const int pairs = heads.size / 2;
  if (pairs == 0 || heads.vectors == 0) return cudaSuccess;
  const bool halves = work.pairing == RotaryPairing::halves;
  const bool wide = takes_quads(heads) && (!halves || (takes_quads(work.cos, pairs) && takes_quads(work.sin, pairs)));
  const int packs = halves ? pairs / (wide ? 4 : 1) : heads.size / (wide ? 4 : 2);
  void (*const kernel)(RotaryWork) =
      halves ? (wide ? rotate_halves<4> : rotate_halves<1>) : (wide ? rotate_neighbours<4> : rotate_neighbours<2>);
  return launch_row_slices(heads.rows, [&](int64_t first, int rows) {
    RotaryWork slice = work;
    slice.heads = rows_from(heads, first, rows);
    slice.cos += first * pairs;
    slice.sin += first * pairs;
    return launch_grid(grid_of(packs, heads.vectors, rows), kThreads, stream, kernel, slice);
  });
}

}  // namespace odmoe::cuda
