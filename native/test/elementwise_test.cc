// Operators that compute each element by itself, and their functions of one value: against the one arithmetic and against double
// precision.
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "native_tests.h"
#include "reference_arithmetic.h"
#include "reference_operators.h"

namespace odmoe::test {
namespace {

constexpr int kSizes[] = {1, 7, 16, 31, 32, 33, 100, 4096, 20000};

// Values over the whole range of exp, with its limits and special values.
std::vector<float> gate_inputs(size_t count) {
  const float infinity = std::numeric_limits<float>::infinity();
  std::vector<float> x = {0.0f,   -0.0f,   infinity, -infinity, std::nanf(""), 88.7f, 88.8f,  89.1f, -87.3f,
                          -88.0f, -103.9f, -104.1f,  1e-40f,    -1e-40f,       3e38f, -3e38f, 1.0f,  -1.0f};
  const auto random = random_values(count, 6, 20.0f);
  x.insert(x.end(), random.begin(), random.end());
  return x;
}

const GluShape kGlus[] = {{0},
                          {0, Activation::sigmoid, 1.702f, 7.0f, 1.0f},
                          {0, Activation::sigmoid, 1.0f, 2.0f, 0.0f},
                          {0, Activation::sigmoid, 0.5f, 0.0f, 0.0f},
                          {0, Activation::tanh},
                          {0, Activation::tanh, 1.0f, 3.0f, 0.0f},
                          {0, Activation::sigmoid, 1.0f, 0.75f, 0.0f, false, true},
                          {0, Activation::sigmoid, 1.5f, 2.0f, 1.0f, false, true},
                          {0, Activation::tanh, 1.0f, 0.5f, 0.0f, false, true},
                          {0, Activation::sigmoid, 1.0f, 0.0f, 0.0f, false, true}};

void activates(const std::string& set, int threads) {
  auto backend = open_backend(set, threads);
  for (const GluShape& shape : kGlus) {
    for (const int extra : {0, 1, 15, 40, 20000}) {
      const auto gate = gate_inputs(static_cast<size_t>(extra));
      const size_t size = gate.size();
      const int n = 3;
      auto up = gate_inputs(static_cast<size_t>(extra));
      std::shuffle(up.begin(), up.end(), std::mt19937(7));
      const auto biases = random_values(2 * size, 8);
      std::vector<float> both;
      std::vector<float> expected;
      std::vector<float> biased;
      for (int i = 0; i < n; ++i) {
        both.insert(both.end(), gate.begin(), gate.end());
        both.insert(both.end(), up.begin(), up.end());
        for (size_t j = 0; j < size; ++j) {
          expected.push_back(reference_glu(gate[j], up[j], shape));
          biased.push_back(reference_glu(gate[j] + biases[j], up[j] + biases[size + j], shape));
        }
      }
      DeviceFloats in(*backend, both);
      DeviceFloats device_biases(*backend, biases);
      DeviceFloats out(*backend, expected.size());
      backend->glu(out.data(), in.data(), nullptr, n, static_cast<int>(size), shape);
      check_same(out.read(), expected, "glu of " + std::to_string(size));
      backend->glu(out.data(), in.data(), device_biases.data(), n, static_cast<int>(size), shape);
      check_same(out.read(), biased, "glu with biases of " + std::to_string(size));
    }
  }
}

// Without a gate there is an output for each value, also in place.
void squares(const std::string& set, int threads) {
  auto backend = open_backend(set, threads);
  for (const int size : {1, 7, 16, 33, 9000}) {
    const int n = 3;
    auto x = gate_inputs(static_cast<size_t>(2 * n * size));
    x.resize(static_cast<size_t>(2 * n * size));
    std::vector<float> expected;
    for (const float value : x) {
      const float positive = value < 0.0f ? 0.0f : value;
      expected.push_back(positive * positive);
    }
    DeviceFloats in(*backend, x);
    DeviceFloats out(*backend, x.size());
    const GluShape shape{0, Activation::relu_squared};
    backend->glu(out.data(), in.data(), nullptr, n, size, shape);
    check_same(out.read(), expected, "squares of " + std::to_string(size));
    backend->glu(in.data(), in.data(), nullptr, n, size, shape);
    check_same(in.read(), expected, "squares in place of " + std::to_string(size));
  }
}

// A GLU without options is SiLU of the gate times up.
void swiglu_is_a_glu() {
  for (const float gate : gate_inputs(50)) {
    const float glu = reference_glu(gate, 1.5f, GluShape{});
    const float swiglu = reference_silu(gate) * 1.5f;
    check_same(&glu, &swiglu, 1, "swiglu");
  }
}

// The reference exp is itself close to the true one: within two units in the last place, denormal results included.
void exp_is_close() {
  for (int i = -1040000; i <= 887000; i += 7) {
    const float x = static_cast<float>(i) * 1e-4f;
    const double exact = std::exp(static_cast<double>(x));
    const double unit = std::fmax(0x1p-149, std::ldexp(1.0, std::ilogb(exact) - 23));
    const double error = std::fabs(reference_exp(x) - exact) / unit;
    check(error <= 2.0, "exp(" + std::to_string(x) + ") is off by " + std::to_string(error) + " units");
  }
  check(reference_exp(0.0f) == 1.0f && reference_exp(-0.0f) == 1.0f, "exp(0)");
  check(std::isinf(reference_exp(200.0f)) && reference_exp(-200.0f) == 0.0f, "limits of exp");
}

// tanh, softplus and sigmoid are close to the true ones.
void functions_are_close() {
  for (int i = -300000; i <= 300000; i += 11) {
    const float x = static_cast<float>(i) * 1e-4f;
    check(std::fabs(reference_tanh(x) - std::tanh(double{x})) < 2e-7, "tanh(" + std::to_string(x) + ")");
    check(std::fabs(reference_sigmoid(x) - 1 / (1 + std::exp(-double{x}))) < 2e-7, "sigmoid(" + std::to_string(x) + ")");
    const double softplus = std::log1p(std::exp(double{x}));
    check(std::fabs(reference_softplus(x) - softplus) <= 1e-6 * softplus, "softplus(" + std::to_string(x) + ")");
  }
}

// Rows of distant vectors; the memory between them stays untouched; also in place.
struct Layout {
  int rows;
  int vectors;
  int size;
  int gap;

  int64_t vector_stride() const { return size + gap; }
  int64_t row_stride() const { return vectors * vector_stride() + gap; }
  size_t floats() const { return static_cast<size_t>(rows * row_stride()); }
  Vectors of(const DeviceFloats& floats) const { return {floats.data(), row_stride(), vector_stride(), rows, vectors, size}; }
  size_t at(int row, int vector, int i) const { return static_cast<size_t>(row * row_stride() + vector * vector_stride() + i); }
};
constexpr Layout kLayouts[] = {{1, 1, 1, 0}, {3, 1, 33, 0}, {2, 3, 16, 0}, {3, 5, 7, 2}, {2, 2, 9000, 0}, {2, 2, 8200, 3}};

void treats_vectors(const std::string& set, int threads) {
  auto backend = open_backend(set, threads);
  for (const Layout& layout : kLayouts) {
    auto a = random_values(layout.floats(), 13, 3.0f);
    auto b = random_values(layout.floats(), 14, 3.0f);
    a[0] = std::nanf("");
    b[layout.at(layout.rows - 1, 0, 0)] = -std::numeric_limits<float>::infinity();
    const auto bias = random_values(static_cast<size_t>(layout.size), 15);
    const std::string what = std::to_string(layout.vectors) + " vectors of " + std::to_string(layout.size);
    DeviceFloats device_b(*backend, b);
    DeviceFloats device_bias(*backend, bias);
    const auto compare = [&](const char* name, auto&& run, auto&& expected_of) {
      DeviceFloats device_a(*backend, a);
      run(layout.of(device_a));
      std::vector<float> expected = a;
      for (int row = 0; row < layout.rows; ++row) {
        for (int vector = 0; vector < layout.vectors; ++vector) {
          for (int i = 0; i < layout.size; ++i) {
            const size_t at = layout.at(row, vector, i);
            expected[at] = expected_of(a[at], b[at], bias[static_cast<size_t>(i)]);
          }
        }
      }
      check_same(device_a.read(), expected, std::string(name) + " of " + what);
    };
    const Vectors other = layout.of(device_b);
    compare(
        "clip", [&](const Vectors& x) { backend->clip(x, 1.5f); },
        [](float x, float, float) { return reference_limited(x, 1.5f); });
    compare(
        "add_bias", [&](const Vectors& x) { backend->add_bias(x, device_bias.data()); },
        [](float x, float, float z) { return x + z; });
    compare(
        "gate by sigmoid", [&](const Vectors& x) { backend->gate(x, other, Gate::sigmoid); },
        [](float x, float y, float) { return x * reference_sigmoid(y); });
    compare(
        "gate by silu", [&](const Vectors& x) { backend->gate(x, other, Gate::silu); },
        [](float x, float y, float) { return x * reference_silu(y); });
    compare(
        "gate by softplus", [&](const Vectors& x) { backend->gate(x, other, Gate::softplus); },
        [](float x, float y, float) { return x * reference_softplus(y); });
    compare(
        "multiply_elements", [&](const Vectors& x) { backend->multiply_elements(x, x, other); },
        [](float x, float y, float) { return x * y; });
    compare(
        "copy_vectors", [&](const Vectors& x) { backend->copy_vectors(x, other); }, [](float, float y, float) { return y; });
  }
}

// One gate for all elements of a vector, beside the vectors of the same memory.
void gates_whole_vectors(const std::string& set, int threads) {
  auto backend = open_backend(set, threads);
  constexpr std::pair<Gate, float (*)(float)> kGates[] = {
      {Gate::sigmoid, reference_sigmoid}, {Gate::silu, reference_silu}, {Gate::softplus, reference_softplus}};
  for (const Layout& layout : kLayouts) {
    const auto x = random_values(layout.floats(), 17, 3.0f);
    const Layout gate_layout{layout.rows, layout.vectors, 1, layout.gap};
    const auto gates = random_values(gate_layout.floats(), 18, 20.0f);
    DeviceFloats device_gates(*backend, gates);
    for (const auto& [kind, function] : kGates) {
      DeviceFloats device_x(*backend, x);
      backend->gate(layout.of(device_x), gate_layout.of(device_gates), kind);
      std::vector<float> expected = x;
      for (int row = 0; row < layout.rows; ++row) {
        for (int vector = 0; vector < layout.vectors; ++vector) {
          const float factor = function(gates[gate_layout.at(row, vector, 0)]);
          for (int i = 0; i < layout.size; ++i) expected[layout.at(row, vector, i)] *= factor;
        }
      }
      check_same(device_x.read(), expected, "one gate for each of " + std::to_string(layout.vectors) + " vectors");
    }
  }
}

void treats_elements(const std::string& set, int threads) {
  auto backend = open_backend(set, threads);
  for (const int size : kSizes) {
    const auto x = gate_inputs(static_cast<size_t>(size));
    const auto y = random_values(x.size(), 16);
    const auto count = static_cast<int64_t>(x.size());
    DeviceFloats device_y(*backend, y);
    const auto compare = [&](const std::string& name, auto&& run, auto&& expected_of) {
      DeviceFloats device_x(*backend, x);
      run(device_x.data());
      std::vector<float> expected;
      for (size_t i = 0; i < x.size(); ++i) expected.push_back(expected_of(x[i], y[i]));
      check_same(device_x.read(), expected, name + " of " + std::to_string(size));
    };
    compare(
        "add", [&](float* p) { backend->add(p, device_y.data(), count, 1.0f); }, [](float a, float b) { return a + b; });
    compare(
        "scaled add", [&](float* p) { backend->add(p, device_y.data(), count, 0.22f); },
        [](float a, float b) { return a + b * 0.22f; });
    compare(
        "scale", [&](float* p) { backend->scale(p, count, 12.5f); }, [](float a, float) { return a * 12.5f; });
    compare(
        "divided logits", [&](float* p) { backend->cap_logits(p, count, 6.0f, 0.0f); }, [](float a, float) { return a / 6.0f; });
    compare(
        "capped logits", [&](float* p) { backend->cap_logits(p, count, 3.0f, 30.0f); },
        [](float a, float) { return 30.0f * reference_tanh(a / 3.0f / 30.0f); });
  }
}

void combines(const std::string& set, int threads) {
  auto backend = open_backend(set, threads);
  const int n = 3;
  for (const int size : kSizes) {
    const size_t values = static_cast<size_t>(n * size);
    const auto hidden = random_values(values, 9);
    for (const int k : {0, 1, 3}) {
      const auto weights = random_values(static_cast<size_t>(n * k), 11);
      DeviceFloats outputs(*backend, random_values(values * static_cast<size_t>(k) + 1, 10));
      DeviceFloats always(*backend, random_values(values, 12));
      DeviceFloats gates(*backend, random_values(static_cast<size_t>(n), 13));
      for (const int kind : {0, 1, 2}) {
        if (k == 0 && kind == 0) continue;
        for (const float scale : {1.0f, 0.3f}) {
          for (const bool add : {true, false}) {
            DeviceFloats device_hidden(*backend, hidden);
            const CombineWork work{device_hidden.data(),
                                   outputs.data(),
                                   weights.data(),
                                   kind > 0 ? always.data() : nullptr,
                                   kind > 1 ? gates.data() : nullptr,
                                   n,
                                   k,
                                   size,
                                   scale,
                                   add};
            std::vector<float> expected;
            for (int i = 0; i < n; ++i) {
              for (int j = 0; j < size; ++j) expected.push_back(reference_combined(work, i, j));
            }
            backend->combine(work);
            check_same(device_hidden.read(), expected, "combine " + std::to_string(k) + " of " + std::to_string(size));
          }
        }
      }
    }
  }
}

}  // namespace

void add_elementwise_cases(std::vector<Case>& cases) {
  cases.push_back({"exp: close to the true one", exp_is_close});
  cases.push_back({"tanh, sigmoid, softplus: close to the true ones", functions_are_close});
  cases.push_back({"glu: SwiGLU is one", swiglu_is_a_glu});
  for (const std::string& set : instruction_sets()) {
    for (const int threads : {1, 3}) {
      const std::string equals = " the one arithmetic, " + std::to_string(threads) + " threads";
      cases.push_back({"glu " + set + ": equals" + equals, [=] { activates(set, threads); }});
      cases.push_back({"squares " + set + ": equal" + equals, [=] { squares(set, threads); }});
      cases.push_back({"operators of vectors " + set + ": equal" + equals, [=] { treats_vectors(set, threads); }});
      cases.push_back({"gates of vectors " + set + ": equal" + equals, [=] { gates_whole_vectors(set, threads); }});
      cases.push_back({"operators of elements " + set + ": equal" + equals, [=] { treats_elements(set, threads); }});
      cases.push_back({"combine " + set + ": equals" + equals, [=] { combines(set, threads); }});
    }
  }
}

}  // namespace odmoe::test
