// Loads over the emulated device's link, and the slots' memory on it.
#include "native_tests.h"
#include "odmoe/emulation.h"
#include "odmoe/expert_slots.h"
#include "stored_expert.h"

namespace odmoe::test {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr ExpertShape kShape{.hidden_size = 200, .intermediate_size = 331, .format = WeightFormat::bf16};
constexpr LoadRequest kRead{};

std::unique_ptr<Backend> backend_with(double load_ms) {
  Emulation emulation;
  emulation.load_ms = load_ms;
  emulation.slot_bytes = 1000;
  emulation.slots_shared_bytes = 10;
  return make_emulated_backend(open_backend("auto"), emulation, 2500);
}

// Whatever form the small expert has.
void a_load_takes_its_time() {
  const TestDirectory directory;
  const std::shared_ptr<Backend> backend = backend_with(25);
  const ExpertValues values = gaussian_weights(kShape, 5);
  for (const CodecKind codec : {CodecKind::raw, CodecKind::fixed4, CodecKind::huffman}) {
    for (const bool aligned : {true, false}) {
      const StoredForm form{.codec = codec, .shards = 3, .aligned = aligned};
      const ExpertSource source = store_expert(directory.path("expert"), values, form);
      LoaderOptions options = options_for({source});
      options.direct_io = true;
      ExpertLoader loader(backend, kShape, 1, options);
      ExpertMatrices matrices(backend, kShape);
      AwaitedLoad load;
      const auto asked = Clock::now();
      loader.load(0, matrices, source, kRead, load);
      const LoadOutcome outcome = load.wait();
      check(outcome.loaded && outcome.read_bytes == stored_bytes(source), "loaded");
      check(Clock::now() >= asked + milliseconds(25), "a load is over before its time");
      check_same_matrices(matrices, expected_matrices(backend, values, source.gate.split), "loaded over the link");
    }
  }
}

void loads_share_the_link() {
  const TestDirectory directory;
  const std::shared_ptr<Backend> backend = backend_with(15);
  const ExpertSource source = store_expert(directory.path("expert"), gaussian_weights(kShape, 6), {});
  const LoaderOptions options = options_for({source});
  // Two pools of one device.
  ExpertLoader first(backend, kShape, 2, options);
  ExpertLoader second(backend, kShape, 1, options);
  std::vector<ExpertMatrices> matrices;
  for (int i = 0; i < 3; i++) matrices.emplace_back(backend, kShape);
  AwaitedLoad loads[3];
  const auto asked = Clock::now();
  first.load(0, matrices[0], source, kRead, loads[0]);
  first.load(1, matrices[1], source, kRead, loads[1]);
  second.load(0, matrices[2], source, kRead, loads[2]);
  for (AwaitedLoad& load : loads) load.wait();
  check(Clock::now() >= asked + milliseconds(45), "loads of one device go over its link at the same time");
}

void a_cancelled_load_ends_at_once() {
  const TestDirectory directory;
  const std::shared_ptr<Backend> backend = backend_with(3.6e6);
  const ExpertSource source = store_expert(directory.path("expert"), gaussian_weights(kShape, 7), {});
  ExpertLoader loader(backend, kShape, 1, options_for({source}));
  ExpertMatrices matrices(backend, kShape);
  AwaitedLoad load;
  loader.load(0, matrices, source, kRead, load);
  loader.cancel(0);
  check(!load.wait().loaded, "an hour's load was cancelled and is loaded");
}

void slots_count_as_profiled() {
  const auto device = std::make_shared<Device>(backend_with(1));
  const LoaderOptions options = [] {
    LoaderOptions plain;
    plain.decompression_threads = 1;
    return plain;
  }();
  {
    const ExpertSlots slots(device, kShape, 2, 4, options);
    check(slots.slot_bytes() == 1000, "slot bytes");
    check(device->backend()->info().used_bytes == 2010, "two slots and what they share");
    check_refused("DEVICE_OUT_OF_MEMORY", [&] { ExpertSlots(device, kShape, 1, 4, options); });
    check(device->backend()->info().used_bytes == 2010, "what was refused counts");
  }
  check(device->backend()->info().used_bytes == 0, "slots that are gone count");
}

}  // namespace

void add_emulated_load_cases(std::vector<Case>& cases) {
  cases.push_back({"emulated load: takes its time in every form", a_load_takes_its_time});
  cases.push_back({"emulated load: loads share the link", loads_share_the_link});
  cases.push_back({"emulated load: a cancelled one ends at once", a_cancelled_load_ends_at_once});
  cases.push_back({"emulated load: slots count as profiled", slots_count_as_profiled});
}

}  // namespace odmoe::test
