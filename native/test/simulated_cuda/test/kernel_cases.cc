// Correct kernels, and the errors of wrong kernels.
#include <cuda_bf16.h>

#include <cmath>
#include <vector>

#include "cases.h"
#include "kernels.h"

cudaStream_t new_stream() {
  cudaStream_t stream = nullptr;
  cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  return stream;
}

namespace {

template <typename T>
T* device_array(size_t count) {
  T* pointer = nullptr;
  cudaMalloc(&pointer, count * sizeof(T));
  return pointer;
}

template <typename T>
T* device_copy(const std::vector<T>& values, cudaStream_t stream) {
  T* pointer = device_array<T>(values.size());
  cudaMemcpyAsync(pointer, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice, stream);
  return pointer;
}

template <typename T>
std::vector<T> host_copy(const T* pointer, size_t count, cudaStream_t stream) {
  std::vector<T> values(count);
  cudaMemcpyAsync(values.data(), pointer, count * sizeof(T), cudaMemcpyDeviceToHost, stream);
  return values;
}

// The sum over 1000 numbers in blocks of 256, by one of the two kernels.
bool sums_agree(cudaError_t (*launch)(const float*, float*, int, cudaStream_t)) {
  const cudaStream_t stream = new_stream();
  std::vector<float> values(1000);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i * 7 % 101);
  const float* input = device_copy(values, stream);
  float* output = device_array<float>(4);
  if (launch(input, output, 1000, stream) != cudaSuccess) return false;
  const std::vector<float> sums = host_copy(output, 4, stream);
  for (size_t block = 0; block < 4; ++block) {
    float sum = 0.0f;  // whole numbers: exact in any order
    for (size_t i = block * 256; i < (block + 1) * 256 && i < values.size(); ++i) sum += values[i];
    if (!(sums[block] == sum)) return false;
  }
  return true;
}

}  // namespace

int warp_operations() {
  Checks check;
  const cudaStream_t stream = new_stream();
  unsigned* output = device_array<unsigned>(32 * kWarpResults);
  check(launch_warp_operations(output, stream) == cudaSuccess, "launched");
  const std::vector<unsigned> got = host_copy(output, 32 * kWarpResults, stream);
  for (unsigned lane = 0; lane < 32; ++lane) {
    const unsigned* of = &got[lane * kWarpResults];
    check(of[0] == (lane / 8 * 8 + 3) * 10, "shfl in segments of 8");
    check(of[1] == (lane ^ 5) * 10, "shfl_xor");
    check(of[2] == (lane % 8 < 2 ? lane : lane - 2) * 10, "shfl_up keeps its own value at the segment's beginning");
    check(of[3] == (lane % 8 > 5 ? lane : lane + 2) * 10, "shfl_down keeps its own value at the segment's end");
    check(of[4] == 9, "shfl of 8 bytes");
    check(of[5] == 0x49249249u, "ballot");
    check(of[6] == 1, "any");
    check(of[7] == (lane < 16 ? 1 : lane == 31 ? 31 : lane + 1), "halves of a warp by themselves");
  }
  return check.failures();
}

int indices_of_threads() {
  Checks check;
  const cudaStream_t stream = new_stream();
  const dim3 grid(3, 2, 4), block(8, 4, 5);
  const unsigned threads = 160, blocks = 24;
  unsigned* output = device_array<unsigned>(threads * blocks);
  check(launch_indices(output, grid, block, stream) == cudaSuccess, "launched");
  const std::vector<unsigned> got = host_copy(output, threads * blocks, stream);
  for (unsigned i = 0; i < threads * blocks; ++i) {
    const unsigned t = i % threads, b = i / threads;
    check(got[i] == (t % 8 | t / 8 % 4 << 5 | t / 32 << 10 | b % 3 << 15 | b / 3 % 2 << 20 | b / 6 << 25), "indices");
  }
  return check.failures();
}

int block_sums() { return sums_agree(launch_block_sums) ? 0 : 1; }
int racing_block_sums() { return sums_agree(launch_racing_block_sums) ? 0 : 1; }

int tile_product() {
  Checks check;
  const cudaStream_t stream = new_stream();
  std::vector<unsigned short> a(256), b(256);
  for (size_t i = 0; i < 256; ++i) {
    a[i] = __bfloat16_as_ushort(__float2bfloat16_rn(static_cast<float>(i * 37 % 17) - 8.0f));
    b[i] = __bfloat16_as_ushort(__float2bfloat16_rn(static_cast<float>(i * 53 % 13) - 6.0f));
  }
  const unsigned short *left = device_copy(a, stream), *right = device_copy(b, stream);
  float* output = device_array<float>(256);
  for (const bool columns : {false, true}) {
    check(launch_tile_product(left, right, output, columns, stream) == cudaSuccess, "launched");
    const std::vector<float> got = host_copy(output, 256, stream);
    for (size_t row = 0; row < 16; ++row) {
      for (size_t column = 0; column < 16; ++column) {
        float sum = 0.0f;
        for (size_t k = 0; k < 16; ++k) {
          sum += __bfloat162float(__ushort_as_bfloat16(a[row * 16 + k])) *
                 __bfloat162float(__ushort_as_bfloat16(columns ? b[column * 16 + k] : b[k * 16 + column]));
        }
        check(got[row * 16 + column] == sum, columns ? "b by columns" : "b by rows");
      }
    }
  }
  return check.failures();
}

int tickets() {
  Checks check;
  const cudaStream_t stream = new_stream();
  unsigned* counter = device_copy(std::vector<unsigned>{0}, stream);
  unsigned* seen = device_copy(std::vector<unsigned>(640, 0), stream);
  check(launch_tickets(counter, seen, 640, stream) == cudaSuccess, "launched");
  check(host_copy(counter, 1, stream)[0] == 640, "every thread added 1");
  for (const unsigned count : host_copy(seen, 640, stream)) check(count == 1, "every ticket once");
  return check.failures();
}

int integer_functions() {
  Checks check;
  check(__byte_perm(0x33221100u, 0x77665544u, 0x7531u) == 0x77553311u, "bytes of both");
  check(__byte_perm(0x33221100u, 0x77665544u, 0x0246u) == 0x00224466u, "in any order");
  check(__byte_perm(0x00800180u, 0x7f0000ffu, 0x8 | 0x9 << 4 | 0xa << 8 | 0xf << 12) == 0x00ff00ffu, "signs of bytes");
  check(__byte_perm(0, 0x000000ffu, 0xffff000cu) == 0x000000ffu, "only the low 16 bits select");
  check(__funnelshift_l(0x80000001u, 0x12345678u, 4) == 0x23456788u, "funnel shift left");
  check(__funnelshift_r(0x80000001u, 0x12345678u, 36) == 0x88000000u, "funnel shift right, modulo 32");
  check(__popc(0xf0f0u) == 8 && __clz(1) == 31 && __clz(0) == 32 && __ffs(0) == 0 && __ffs(8) == 4, "counts of bits");
  check(__float2int_rn(2.5f) == 2 && __float2int_rn(-3.5f) == -4 && __float2int_rn(3e9f) == 2147483647, "to whole numbers");
  check(__float2int_rn(NAN) == 0, "not a number becomes 0");
  return check.failures();
}

int bfloat16_rounding() {
  Checks check;
  const auto bits = [](unsigned u) { return __bfloat16_as_ushort(__float2bfloat16_rn(__uint_as_float(u))); };
  check(bits(0x3f808000u) == 0x3f80 && bits(0x3f818000u) == 0x3f82 && bits(0x3f808001u) == 0x3f81, "ties to even");
  check(bits(0x7f7fffffu) == 0x7f80, "past the largest: infinite");
  check(bits(0xff800001u) == 0x7fff, "not a number");
  check(bits(0x00000001u) == 0 && bits(0x80008001u) == 0x8001, "denormals");
  return check.failures();
}

int unset_shared() {
  Checks check;
  const cudaStream_t stream = new_stream();
  float* output = device_array<float>(32);
  check(launch_unset_shared(output, stream) == cudaSuccess, "launched");
  const std::vector<float> got = host_copy(output, 32, stream);
  for (size_t i = 0; i < 32; ++i) check(i == 7 ? std::isnan(got[i]) : got[i] == 1.0f, "poison where nothing was written");
  return check.failures();
}

int missing_thread() {
  launch_missing_thread(new_stream());
  return cudaDeviceSynchronize() == cudaSuccess ? 0 : 1;
}

int missing_lane() {
  launch_missing_lane(device_array<float>(32), new_stream());
  return cudaDeviceSynchronize() == cudaSuccess ? 0 : 1;
}

int mixed_operations() {
  launch_mixed_operations(device_array<unsigned>(32), new_stream());
  return cudaDeviceSynchronize() == cudaSuccess ? 0 : 1;
}

int misaligned() {
  launch_misaligned(device_array<float>(64), device_array<float>(64), new_stream());
  return cudaDeviceSynchronize() == cudaSuccess ? 0 : 1;
}

int deep_stack() {
  const cudaStream_t stream = new_stream();
  int* output = device_array<int>(32);
  launch_deep_stack(output, 100, stream);
  return host_copy(output, 32, stream)[31] == 101 ? 0 : 1;
}

int too_deep_stack() {
  launch_deep_stack(device_array<int>(32), 1000, new_stream());
  return cudaDeviceSynchronize() == cudaSuccess ? 0 : 1;
}
