#include "cuda_tests.h"
#include "odmoe/error.h"

namespace odmoe::cuda_test {
namespace {

void allocations_are_zeroed_and_counted(Backend& cuda) {
  const uint64_t before = cuda.info().used_bytes;
  DeviceBuffer buffer = cuda.allocate(4000);
  std::vector<uint8_t> bytes(4000, 1);
  cuda.copy_to_host(bytes.data(), buffer.data, bytes.size());
  for (const uint8_t byte : bytes) expect(byte == 0, "a new buffer is not zeroed");
  expect(cuda.info().used_bytes == before + 4000, "a buffer is not counted");
  cuda.release(buffer);
  expect(buffer.data == nullptr && cuda.info().used_bytes == before, "a released buffer is still counted");
}

void copies_return_what_was_sent(Devices& devices) {
  for (const int64_t count : {1, 1000, 400000}) {
    const std::vector<float> values = random_floats(devices.random, count);
    const Floats floats(devices.cuda, values);
    expect_equal("copied values", floats.values(), values);
  }
}

// More than any device has: refused by the driver, not by the budget.
void refusals_take_nothing(Devices& devices) {
  constexpr uint64_t kTooMuch = uint64_t{1} << 40;
  Backend& cuda = *devices.cuda;
  const uint64_t before = cuda.info().used_bytes;
  const auto refused = [&](const char* what, auto take) {
    try {
      take();
    } catch (const Error& error) {
      expect(error.code() == "DEVICE_OUT_OF_MEMORY", std::string(what) + " is refused with " + error.code());
      expect(cuda.info().used_bytes == before, std::string(what) + " that was refused is counted");
      return;
    }
    throw Failure(std::string(what) + " larger than any device is given");
  };
  refused("a buffer", [&] { cuda.allocate(kTooMuch); });
  // The first slot's first tensor is there already when the second is refused.
  refused("an expert's slot", [&] { cuda.allocate_experts({2, 3, 4096, kTooMuch}); });
  copies_return_what_was_sent(devices);
  const auto memory = cuda.allocate_experts({1, 3, 4096, 4096});
  expect(memory->begin_load(0, 2).down.data != nullptr, "no slot after a refusal");
  memory->end_load(0, false);
}

void driver_tells_of_the_process(const Backend& cuda) {
  const DeviceInfo info = cuda.info();
  expect(info.context_bytes > 0 && info.used_bytes >= info.context_bytes, "the driver's context takes nothing");
  // What the driver counts has its own units: it is never less than what has been taken.
  if (info.driver_used_bytes.has_value()) expect(*info.driver_used_bytes >= info.used_bytes, "the driver counts less than is taken");
}

}  // namespace

void test_memory(Devices& devices) {
  allocations_are_zeroed_and_counted(*devices.cuda);
  copies_return_what_was_sent(devices);
  refusals_take_nothing(devices);
  driver_tells_of_the_process(*devices.cuda);
}

}  // namespace odmoe::cuda_test
