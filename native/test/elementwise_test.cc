// RMS norm, RoPE, SwiGLU (and with it exp), gate, sums: against the one arithmetic and against double precision.
#include <cmath>
#include <limits>

#include "native_tests.h"
#include "reference_arithmetic.h"

namespace odmoe::test {
namespace {

constexpr int kSizes[] = {1, 7, 16, 31, 32, 33, 100, 4096, 20000};

void norms(const std::string& set) {
  for (const int threads : {1, 2}) {
    auto backend = open_backend(set, threads);
    for (const int size : kSizes) {
      const int n = 3;
      const auto x = random_values(static_cast<size_t>(n * size), 1);
      const auto weight = random_values(static_cast<size_t>(size), 2);
      DeviceFloats in(*backend, x);
      DeviceFloats scale(*backend, weight);
      DeviceFloats out(*backend, x.size());
      backend->rms_norm(out.data(), in.data(), scale.data(), n, size, 1e-5f);
      std::vector<float> expected;
      for (int i = 0; i < n; ++i) {
        const std::vector<float> row(x.begin() + i * size, x.begin() + (i + 1) * size);
        const float root = std::sqrt(reference_dot(row, row) / static_cast<float>(size) + 1e-5f);
        for (int j = 0; j < size; ++j) expected.push_back(row[static_cast<size_t>(j)] / root * weight[static_cast<size_t>(j)]);
      }
      check_same(out.read(), expected, "rms norm of " + std::to_string(size));
    }
  }
}

void rotates(const std::string& set) {
  auto backend = open_backend(set, 2);
  for (const int head_dim : {2, 6, 16, 64, 80, 128}) {
    const int n = 4;
    const int heads = 3;
    const int half = head_dim / 2;
    const int64_t stride = heads * head_dim + 5;
    const auto x = random_values(static_cast<size_t>(n * stride), 3);
    const auto cos = random_values(static_cast<size_t>(n * half), 4);
    const auto sin = random_values(static_cast<size_t>(n * half), 5);
    DeviceFloats device_x(*backend, x);
    DeviceFloats device_cos(*backend, cos);
    DeviceFloats device_sin(*backend, sin);
    backend->rope(device_x.data(), stride, device_cos.data(), device_sin.data(), n, heads, head_dim);
    std::vector<float> expected = x;
    for (int i = 0; i < n; ++i) {
      for (int head = 0; head < heads; ++head) {
        for (int j = 0; j < half; ++j) {
          const size_t at = static_cast<size_t>(i * stride + head * head_dim + j);
          const float c = cos[static_cast<size_t>(i * half + j)];
          const float s = sin[static_cast<size_t>(i * half + j)];
          expected[at] = std::fma(-x[at + half], s, x[at] * c);
          expected[at + half] = std::fma(x[at], s, x[at + half] * c);
        }
      }
    }
    check_same(device_x.read(), expected, "rope, head dimension " + std::to_string(head_dim));
  }
}

// Values over the whole range of exp, its limits and specials.
std::vector<float> gate_inputs(size_t count) {
  const float infinity = std::numeric_limits<float>::infinity();
  std::vector<float> x = {0.0f,   -0.0f,   infinity, -infinity, std::nanf(""), 88.7f, 88.8f,  89.1f, -87.3f,
                          -88.0f, -103.9f, -104.1f,  1e-40f,    -1e-40f,       3e38f, -3e38f, 1.0f,  -1.0f};
  const auto random = random_values(count, 6, 20.0f);
  x.insert(x.end(), random.begin(), random.end());
  return x;
}

void activates(const std::string& set) {
  for (const int threads : {1, 3}) {
    auto backend = open_backend(set, threads);
    for (const int extra : {0, 1, 15, 40, 20000}) {
      const auto gate = gate_inputs(static_cast<size_t>(extra));
      const int size = static_cast<int>(gate.size());
      const int n = 3;
      const auto up = random_values(gate.size(), 7);
      std::vector<float> both;
      std::vector<float> expected;
      for (int i = 0; i < n; ++i) {
        both.insert(both.end(), gate.begin(), gate.end());
        both.insert(both.end(), up.begin(), up.end());
        for (size_t j = 0; j < gate.size(); ++j) expected.push_back(reference_silu(gate[j]) * up[j]);
      }
      DeviceFloats in(*backend, both);
      DeviceFloats out(*backend, expected.size());
      backend->swiglu(out.data(), in.data(), n, size);
      check_same(out.read(), expected, "swiglu of " + std::to_string(size));
    }
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

void gates(const std::string& set) {
  auto backend = open_backend(set, 2);
  for (const int experts : {1, 2, 8, 33, 128}) {
    for (const int k : {1, 2, 6}) {
      if (k > experts) continue;
      const int n = 70;
      auto logits = random_values(static_cast<size_t>(n * experts), 8, 3.0f);
      // Ties: rows of equal logits choose the lowest experts; far below the greatest, weights are all zero and tie too.
      for (int e = 0; e < experts; ++e) logits[static_cast<size_t>(e)] = 1.5f;
      for (int e = 0; e + 1 < experts; ++e) logits[static_cast<size_t>(experts + e)] = -300.0f + static_cast<float>(e);
      for (const bool normalize : {true, false}) {
        std::vector<int32_t> chosen(static_cast<size_t>(n * k));
        std::vector<float> weights(static_cast<size_t>(n * k));
        DeviceFloats in(*backend, logits);
        backend->router(chosen.data(), weights.data(), in.data(), n, experts, k, normalize);
        for (int i = 0; i < n; ++i) {
          const std::vector<float> row(logits.begin() + i * experts, logits.begin() + (i + 1) * experts);
          float most = row[0];
          for (const float logit : row) most = std::fmax(most, logit);
          std::vector<float> share;
          for (const float logit : row) share.push_back(reference_exp(logit - most));
          const float sum = reference_sum(share);
          for (float& value : share) value = value / sum;
          std::vector<bool> taken(row.size());
          std::vector<float> expected;
          for (int rank = 0; rank < k; ++rank) {
            size_t best = row.size();
            for (size_t e = 0; e < row.size(); ++e) {
              if (!taken[e] && (best == row.size() || share[e] > share[best])) best = e;
            }
            taken[best] = true;
            expected.push_back(share[best]);
            check(chosen[static_cast<size_t>(i * k + rank)] == static_cast<int32_t>(best),
                  "expert of rank " + std::to_string(rank));
          }
          float total = expected[0];
          for (int rank = 1; rank < k; ++rank) total = total + expected[static_cast<size_t>(rank)];
          for (float& value : expected) value = normalize ? value / total : value;
          check_same(weights.data() + i * k, expected.data(), expected.size(), "weights");
        }
      }
    }
  }
  DeviceFloats bad(*backend, std::vector<float>(8, std::nanf("")));
  int32_t chosen[2] = {-7, -7};
  float weights[2];
  DeviceFloats beside(*backend, std::vector<float>{1, 2, 3});
  float brought[4] = {0, 0, 0, 0};
  backend->router(chosen, weights, bad.data(), 1, 8, 2, true, {brought, beside.data(), 2 * sizeof(float)});
  check(brought[0] == 1.0f && brought[1] == 2.0f && brought[2] == 0.0f, "a copy comes along");
  check(chosen[0] == 0 && chosen[1] == 1, "NaN logits still name experts");
  check_refused(ErrorCode::model_unsupported, [&] { backend->router(chosen, weights, bad.data(), 1, 1, 2, true); });
}

void adds(const std::string& set) {
  for (const int threads : {1, 2}) {
    auto backend = open_backend(set, threads);
    for (const int size : kSizes) {
      const int n = 3;
      const int k = 3;
      const auto hidden = random_values(static_cast<size_t>(n * size), 9);
      const auto outputs = random_values(static_cast<size_t>(n * k * size), 10);
      const auto weights = random_values(static_cast<size_t>(n * k), 11);
      const auto more = random_values(hidden.size(), 12);
      DeviceFloats device_hidden(*backend, hidden);
      DeviceFloats device_outputs(*backend, outputs);
      DeviceFloats device_more(*backend, more);
      backend->combine(device_hidden.data(), device_outputs.data(), weights.data(), n, k, size);
      backend->add(device_hidden.data(), device_more.data(), static_cast<int64_t>(hidden.size()));
      std::vector<float> expected = hidden;
      for (int i = 0; i < n; ++i) {
        for (int j = 0; j < size; ++j) {
          const auto output = [&](int rank) { return outputs[static_cast<size_t>((i * k + rank) * size + j)]; };
          float sum = weights[static_cast<size_t>(i * k)] * output(0);
          for (int rank = 1; rank < k; ++rank) sum = std::fma(weights[static_cast<size_t>(i * k + rank)], output(rank), sum);
          float& value = expected[static_cast<size_t>(i * size + j)];
          value = value + sum;
          value = value + more[static_cast<size_t>(i * size + j)];
        }
      }
      check_same(device_hidden.read(), expected, "combine and add of " + std::to_string(size));
    }
  }
}

}  // namespace

void add_elementwise_cases(std::vector<Case>& cases) {
  cases.push_back({"exp: close to the true one", exp_is_close});
  for (const std::string& set : instruction_sets()) {
    cases.push_back({"rms norm " + set + ": equals the one arithmetic", [=] { norms(set); }});
    cases.push_back({"rope " + set + ": equals the one arithmetic", [=] { rotates(set); }});
    cases.push_back({"swiglu " + set + ": equals the one arithmetic", [=] { activates(set); }});
    cases.push_back({"router " + set + ": equals the one arithmetic", [=] { gates(set); }});
    cases.push_back({"combine and add " + set + ": equal the one arithmetic", [=] { adds(set); }});
  }
}

}  // namespace odmoe::test
