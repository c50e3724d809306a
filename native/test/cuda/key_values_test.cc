// Keys and values between host and device, of sequences and in pieces.
#include "../key_values.h"

#include "cuda_tests.h"
#include "odmoe/cuda.h"

namespace odmoe::cuda_test {

void test_key_values(Devices& devices) {
  test::check_spaced_rows(devices.cuda, devices.random);
  test::check_key_values(make_cuda_backend({.device = devices.device}), devices.random);
  test::check_key_values_of_threads(make_cuda_backend({.device = devices.device}), devices.random);
  test::check_forks(make_cuda_backend({.device = devices.device}), devices.random);
  const uint64_t begun = make_cuda_backend({.device = devices.device})->info().used_bytes;
  const auto budgeted = [&] { return make_cuda_backend({.device = devices.device, .budget_bytes = begun + (1 << 20)}); };
  expect(test::check_forks(budgeted(), devices.random) > 0, "the budget was never used up");
}

}  // namespace odmoe::cuda_test
