// Keys and values between host and device, of sequences and in pieces.
#include "../key_values.h"

#include "cuda_tests.h"
#include "odmoe/cuda.h"

namespace odmoe::cuda_test {

void test_key_values(Devices& devices) {
  test::check_spaced_rows(devices.cuda, devices.random);
  test::check_key_values(make_cuda_backend({.device = devices.device}), devices.random);
  test::check_key_values_of_threads(make_cuda_backend({.device = devices.device}), devices.random);
}

}  // namespace odmoe::cuda_test
