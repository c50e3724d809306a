#include <algorithm>
#include <cstdlib>

#include "cuda_tests.h"
#include "odmoe/cuda.h"
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

// More than any device has: the driver refuses it, not the budget.
void refusals_take_nothing(Devices& devices) {
  constexpr uint64_t kTooMuch = uint64_t{1} << 40;
  Backend& cuda = *devices.cuda;
  const uint64_t before = cuda.info().used_bytes;
  const auto refused = [&](const char* what, auto take) {
    try {
      take();
    } catch (const Error& error) {
      expect(error.code() == ErrorCode::device_out_of_memory, std::string(what) + " is refused with " + name_of(error.code()));
      expect(cuda.info().used_bytes == before, std::string(what) + " that was refused is counted");
      return;
    }
    throw Failure(std::string(what) + " larger than any device is given");
  };
  refused("a buffer", [&] { cuda.allocate(kTooMuch); });
  // The first slot's first tensor is already allocated when the second is refused.
  refused("an expert's slot", [&] { cuda.allocate_experts({2, 3, 4096, kTooMuch}); });
  copies_return_what_was_sent(devices);
  const auto memory = cuda.allocate_experts({1, 3, 4096, 4096});
  expect(memory->begin_load(0, 2).down.data != nullptr, "no slot after a refusal");
  memory->end_load(0, false);
}

constexpr uint64_t kMiB = uint64_t{1} << 20;

std::shared_ptr<Backend> open_another(const Devices& devices, uint64_t budget_bytes = 0) {
  return make_cuda_backend({.device = devices.device, .budget_bytes = budget_bytes});
}

// A backend caches the driver's figure for a while; a new backend has a new figure.
std::optional<uint64_t> driver_used_now(const Devices& devices) { return open_another(devices)->info().driver_used_bytes; }

void driver_tells_of_the_process(Devices& devices) {
  const DeviceInfo info = devices.cuda->info();
  expect(info.context_bytes > 0 && info.used_bytes >= info.context_bytes, "the driver's context takes nothing");
  // The driver counts in its own units: its figure is never less than the taken memory.
  const auto told = driver_used_now(devices);
  if (told.has_value()) expect(*told >= info.used_bytes, "the driver counts less than is taken");
  expect(devices.cuda->info().driver_used_bytes == info.driver_used_bytes, "the driver is asked at every status");
}

// Memory that one backend has allocated does not count as another backend's context.
void context_is_measured_once(Devices& devices) {
  const DeviceInfo first = devices.cuda->info();
  DeviceBuffer weights = devices.cuda->allocate(128 * kMiB);
  try {
    const DeviceInfo second = open_another(devices, first.context_bytes + 64 * kMiB)->info();
    expect(second.context_bytes == first.context_bytes, "a second backend's context is another");
  } catch (...) {
    devices.cuda->release(weights);
    throw;
  }
  devices.cuda->release(weights);
}

// 0 means that the tests should find uses of released memory (simulated_cuda/README.md).
bool buffers_are_kept() {
  const char* const spare = std::getenv("ODMOE_CUDA_SPARE_BYTES");
  return spare == nullptr || std::string(spare) != "0";
}

bool is_zeroed(Backend& cuda, const DeviceBuffer& buffer) {
  std::vector<uint8_t> bytes(buffer.bytes, 1);
  cuda.copy_to_host(bytes.data(), buffer.data, bytes.size());
  return std::all_of(bytes.begin(), bytes.end(), [](uint8_t byte) { return byte == 0; });
}

void released_buffers_serve_again(Devices& devices) {
  Backend& cuda = *devices.cuda;
  constexpr uint64_t kBytes = 3 * kMiB + 64;
  const DeviceInfo before = cuda.info();
  DeviceBuffer buffer = cuda.allocate(kBytes);
  void* const first = buffer.data;
  const std::vector<uint8_t> ones(kBytes, 1);
  cuda.copy_to_device(buffer.data, ones.data(), kBytes);
  const DeviceInfo taken = cuda.info();
  cuda.release(buffer);
  expect(cuda.info().used_bytes == before.used_bytes, "a spare buffer is counted as used");
  DeviceBuffer other = cuda.allocate(kBytes - 64);
  expect(other.data != first, "a buffer of another size is given");
  buffer = cuda.allocate(kBytes);
  expect((buffer.data == first) == buffers_are_kept(), "a released buffer is not what its size gets next");
  expect(is_zeroed(cuda, buffer), "a buffer that serves again is not zeroed");
  expect(cuda.info().used_bytes - before.used_bytes == 2 * cuda.counted_bytes(kBytes), "a buffer that serves again is not counted");
  expect(cuda.info().high_water_bytes >= taken.used_bytes + cuda.counted_bytes(kBytes - 64), "nor is it in the high water");
  cuda.release(other);
  cuda.release(buffer);
  // More buffers than stay spare.
  std::vector<DeviceBuffer> many(1200);
  for (DeviceBuffer& each : many) each = cuda.allocate(256);
  for (DeviceBuffer& each : many) cuda.release(each);
  expect(cuda.info().used_bytes == before.used_bytes, "released buffers are still counted");
}

void high_water_is_of_what_was_used(Devices& devices) {
  const auto cuda = open_another(devices);
  const uint64_t begun = cuda->info().used_bytes;
  for (const uint64_t bytes : {5 * kMiB, 7 * kMiB, 5 * kMiB, 3 * kMiB}) {
    DeviceBuffer buffer = cuda->allocate(bytes);
    cuda->release(buffer);
  }
  expect(cuda->info().high_water_bytes == begun + cuda->counted_bytes(7 * kMiB), "the high water has spare buffers in it");
}

void spare_buffers_make_room_in_the_budget(Devices& devices) {
  constexpr uint64_t kRoom = 64 * kMiB;
  const uint64_t begun = open_another(devices)->info().used_bytes;
  const auto cuda = open_another(devices, begun + kRoom);
  const auto told_before = driver_used_now(devices);
  // Different sizes: a released buffer never fits the next request.
  for (const uint64_t bytes : {kRoom / 2, kRoom / 4, kRoom / 8, kRoom, kRoom - 2 * kMiB, kRoom / 2 + 2 * kMiB, kRoom}) {
    DeviceBuffer buffer = cuda->allocate(bytes);
    cuda->release(buffer);
    // The driver gives small buffers memory in its own units.
    const auto told = driver_used_now(devices);
    if (told.has_value()) expect(*told <= *told_before + kRoom + 2 * kMiB, "used and spare memory together are over the budget");
  }
  // Slots of experts and staging find that room, too.
  const ExpertMemoryShape slots{4, 4, kRoom / 16, kRoom / 16};
  const auto memory = cuda->allocate_experts(slots);
  DeviceBuffer rest = cuda->allocate(kRoom / 2);
  cuda->release(rest);
  DeviceBuffer staging = cuda->allocate_staging(kRoom / 2 - 4096);
  cuda->release_staging(staging);
}

void staging_of_the_host_is_beside_the_budget(Devices& devices) {
  constexpr uint64_t kRoom = 8 * kMiB;
  const uint64_t begun = open_another(devices)->info().used_bytes;
  const auto cuda = open_another(devices, begun + kRoom);
  const uint64_t used = cuda->info().used_bytes;
  DeviceBuffer held = cuda->allocate_host_staging(2 * kRoom);
  expect(held.data != nullptr && cuda->info().used_bytes == used, "experts in host memory count against the device's budget");
  cuda->release_staging(held);
  expect(cuda->info().used_bytes == used, "what was not counted is given back");
}

// Buffers until the device has no room for another one.
std::vector<DeviceBuffer> fill(Backend& cuda, uint64_t unit, uint64_t device_bytes) {
  std::vector<DeviceBuffer> buffers;
  try {
    while (buffers.size() * unit <= device_bytes) buffers.push_back(cuda.allocate(unit));
  } catch (const Error& error) {
    expect(error.code() == ErrorCode::device_out_of_memory, std::string("a full device refuses with ") + name_of(error.code()));
  }
  return buffers;
}

void spare_buffers_make_room_on_the_device(Devices& devices) {
  const CudaDevice device = cuda_status().devices.at(static_cast<size_t>(devices.device));
  if (device.integrated) return;  // it uses the host's memory; when that is full, the system kills processes
  const auto cuda = open_another(devices);
  const uint64_t unit = std::min(device.memory_bytes / 8, 256 * kMiB) / (2 * kMiB) * (2 * kMiB);
  std::vector<DeviceBuffer> buffers = fill(*cuda, unit, device.memory_bytes);
  const uint64_t most = buffers.size() * unit;
  expect(buffers.size() > 2, "a device that holds nothing");
  // A driver that continues in host memory is never full.
  if (most <= device.memory_bytes) {
    cuda->release(buffers[0]);
    cuda->release(buffers[1]);
    buffers[0] = cuda->allocate(2 * unit - 2 * kMiB);
    expect(buffers[0].data != nullptr, "spare buffers stand in the way of another size");
    cuda->release(buffers[0]);
    const auto memory = cuda->allocate_experts({1, 1, unit, unit - 2 * kMiB});
    expect(memory->begin_load(0, 0).down.data != nullptr, "spare buffers stand in the way of experts");
    memory->end_load(0, false);
  }
  for (DeviceBuffer& buffer : buffers) cuda->release(buffer);
}

// The state after a pass was cancelled and disposed of: kernels still write to released memory.
void released_while_in_use(Devices& devices) {
  Backend& cuda = *devices.cuda;
  constexpr int64_t kCount = 1 << 16;
  const Floats source(devices.cuda, std::vector<float>(kCount, 1.0f));
  for (int round = 0; round < 12; ++round) {
    DeviceBuffer sums = cuda.allocate(kCount * sizeof(float));
    for (int i = 0; i < 20; ++i) cuda.add(static_cast<float*>(sums.data), source.data(), kCount, 1.0f);
    cuda.release(sums);
    DeviceBuffer next = cuda.allocate(kCount * sizeof(float));
    expect(is_zeroed(cuda, next), "a new buffer is written to by who had its memory before");
    cuda.release(next);
  }
}

}  // namespace

void test_memory(Devices& devices) {
  allocations_are_zeroed_and_counted(*devices.cuda);
  copies_return_what_was_sent(devices);
  refusals_take_nothing(devices);
  driver_tells_of_the_process(devices);
  context_is_measured_once(devices);
  released_buffers_serve_again(devices);
  high_water_is_of_what_was_used(devices);
  spare_buffers_make_room_in_the_budget(devices);
  staging_of_the_host_is_beside_the_budget(devices);
  spare_buffers_make_room_on_the_device(devices);
  released_while_in_use(devices);
}

}  // namespace odmoe::cuda_test
