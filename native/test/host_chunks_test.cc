// Experts in host memory: the same bits as from storage, no damaged chunks, and memory is given back.
#include <filesystem>
#include <fstream>
#include <thread>

#include "../src/runtime/host_chunks.h"
#include "native_tests.h"
#include "odmoe/error.h"
#include "odmoe/expert_slots.h"
#include "stored_expert.h"

namespace odmoe::test {
namespace {

constexpr ExpertShape kShape{.hidden_size = 160, .glu = {.intermediate_size = 224}, .format = WeightFormat::bf16};
constexpr double kSlow = 3e5;  // bytes a second: an expert takes about 0.5 s

constexpr PartPlan kRead{PartOrigin::storage, -1};
constexpr PartPlan kKeep{PartOrigin::storage, 0};
constexpr PartPlan kTake{PartOrigin::entry, 0};

// One expert on the disk, a loader with an entry of each kind and two slots.
struct Setting {
  explicit Setting(const StoredForm& form, double bytes_per_s = 0, bool direct = false)
      : values(gaussian_weights(kShape, 6)),
        source(store_expert(directory.path("expert"), values, form)),
        expected(expected_matrices(backend, values, form.split)) {
    LoaderOptions options = options_for({source});
    options.storage_bytes_per_s = bytes_per_s;
    options.direct_io = direct;
    options.exponent_entries = 1;
    options.sign_mantissa_entries = 1;
    loader = std::make_unique<ExpertLoader>(backend, kShape, 2, options);
  }

  std::shared_ptr<const HostChunks> fill() {
    AwaitedLoad filled;
    std::shared_ptr<const HostChunks> host = loader->fill(source, filled);
    const LoadOutcome outcome = filled.wait();
    check(outcome.loaded && outcome.read_bytes == stored_bytes(source), "a fill reads the expert once");
    return host;
  }

  // Returns the outcome, with bytes read by source.
  LoadOutcome load(PartPlan exponents, PartPlan rest, std::shared_ptr<const HostChunks> host) {
    ExpertMatrices matrices(backend, kShape);
    AwaitedLoad load;
    loader->load(0, matrices, source, {.exponents = exponents, .sign_mantissa = rest, .order = {}, .urgent = false}, load,
                 std::move(host));
    const LoadOutcome outcome = load.wait();
    check(outcome.loaded, "loaded");
    check(outcome.exponents_kept == (exponents.entry >= 0) && outcome.sign_mantissa_kept == (rest.entry >= 0), "what is kept");
    check_same_matrices(matrices, expected, "a load with host memory");
    return outcome;
  }

  std::shared_ptr<Backend> backend = open_backend("auto");
  TestDirectory directory;
  ExpertValues values;
  ExpertSource source;
  ExpertMatrices expected;
  std::unique_ptr<ExpertLoader> loader;
};

// Every source of the two parts: a part that is not in an entry and goes to none comes from host memory.
void loads_from_host_memory(CodecKind codec) {
  for (const int shards : {1, 3}) {
    for (const bool direct : {true, false}) {
      Setting setting({.codec = codec, .shards = shards, .aligned = direct}, 0, direct);
      const uint64_t all = stored_bytes(setting.source);
      const std::shared_ptr<const HostChunks> host = setting.fill();
      const LoadOutcome whole = setting.load(kRead, kRead, host);
      check(whole.read_bytes == 0 && whole.host_bytes == all, "all of it from host memory");
      const LoadOutcome kept = setting.load(kKeep, kRead, host);
      check(kept.read_bytes > 0 && kept.host_bytes > 0 && kept.read_bytes + kept.host_bytes == all, "the kept part from storage");
      const LoadOutcome taken = setting.load(kTake, kRead, host);
      check(taken.read_bytes == 0 && taken.host_bytes == kept.host_bytes, "one part from the entry");
      check(setting.load(kTake, kKeep, host).host_bytes == 0, "none of it");
      check(setting.load(kRead, kTake, host).host_bytes == kept.read_bytes, "the exponents from host memory");
      check(setting.load(kRead, kRead, nullptr).read_bytes == all, "and without host memory from storage");
    }
  }
}

// Another expert's chunks are never used for the requested expert.
void takes_no_other_experts_chunks() {
  Setting setting({.codec = CodecKind::huffman, .shards = 2});
  Setting other({.codec = CodecKind::huffman, .shards = 3});
  const LoadOutcome outcome = setting.load(kRead, kRead, other.fill());
  check(outcome.host_bytes == 0 && outcome.read_bytes == stored_bytes(setting.source), "read from storage");
}

void change_byte(const std::string& path, uint64_t offset) {
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  file.seekg(static_cast<std::streamoff>(offset));
  const char byte = static_cast<char>(file.get() ^ 1);
  file.seekp(static_cast<std::streamoff>(offset));
  file.put(byte);
}

ExpertSlots make_slots(const std::shared_ptr<Device>& device, const ExpertSource& source, double bytes_per_s = 0) {
  LoaderOptions options = options_for({source});
  options.storage_bytes_per_s = bytes_per_s;
  return {device, kShape, 1, 1, options};
}

void holds_nothing_damaged() {
  const TestDirectory directory;
  const std::string path = directory.path("expert");
  const ExpertSource source = store_expert(path, gaussian_weights(kShape, 6), {.codec = CodecKind::fixed4, .shards = 2});
  const auto device = std::make_shared<Device>(open_backend("auto"));
  ExpertSlots slots = make_slots(device, source);
  const uint64_t damaged = source.down.chunks.back().offset_bytes + 5;
  change_byte(path, damaged);
  check_refused(ErrorCode::pack_corrupt, [&] { slots.hold(slots.new_hold(), 0, source); });
  check(slots.held_bytes() == 0, "nothing damaged is held");
  change_byte(path, damaged);
  const HoldOutcome outcome = slots.hold(slots.new_hold(), 0, source);
  check(outcome.held && slots.held_bytes() == outcome.bytes && outcome.bytes >= stored_bytes(source), "held once it is mended");
  check(outcome.read_bytes == stored_bytes(source), "read once");
  slots.drop_held(1);
  check(slots.held_bytes() == outcome.bytes, "dropping what is not held");
  slots.drop_held(0);
  check(slots.held_bytes() == 0, "dropped");
}

// Memory of host chunks counts against no device's budget.
void takes_nothing_of_the_budget() {
  const TestDirectory directory;
  const ExpertSource source = store_expert(directory.path("expert"), gaussian_weights(kShape, 6), {.shards = 2});
  const auto device = std::make_shared<Device>(open_backend("auto"));
  ExpertSlots slots = make_slots(device, source);
  const uint64_t used = device->backend()->info().used_bytes;
  check(slots.hold(slots.new_hold(), 7, source).held, "held");
  check(device->backend()->info().used_bytes == used, "the device's memory");
}

// A hold that is cancelled at any moment ends soon, and holds nothing.
void cancels_holds() {
  const TestDirectory directory;
  const ExpertSource source = store_expert(directory.path("expert"), gaussian_weights(kShape, 6), {.shards = 2});
  const auto device = std::make_shared<Device>(open_backend("auto"));
  ExpertSlots slots = make_slots(device, source, kSlow);
  const uint64_t early = slots.new_hold();
  slots.cancel_hold();
  check(!slots.hold(early, 0, source).held, "cancelled before it began");
  for (const int microseconds : {0, 100, 3000}) {
    const uint64_t ticket = slots.new_hold();
    std::thread canceller([&] {
      std::this_thread::sleep_for(std::chrono::microseconds(microseconds));
      slots.cancel_hold();
    });
    const HoldOutcome outcome = slots.hold(ticket, 0, source);
    canceller.join();
    check(!outcome.held && slots.held_bytes() == 0, "cancelled on the way");
  }
}

// Loads continue with chunks that are dropped meanwhile.
void drops_what_is_being_loaded() {
  const TestDirectory directory;
  const ExpertValues values = gaussian_weights(kShape, 6);
  const auto backend = std::shared_ptr<Backend>(open_backend("auto"));
  const ExpertSource source = store_expert(directory.path("expert"), values, {.codec = CodecKind::huffman, .shards = 3});
  const ExpertMatrices expected = expected_matrices(backend, values, Split::bf16_e8_sm8);
  ExpertLoader loader(backend, kShape, 1, options_for({source}));
  HostChunkTable table;
  for (int i = 0; i < 20; i++) {
    AwaitedLoad filled;
    std::shared_ptr<const HostChunks> chunks = loader.fill(source, filled);
    check(filled.wait().loaded, "filled");
    table.put(3, std::move(chunks));
    ExpertMatrices matrices(backend, kShape);
    AwaitedLoad load;
    loader.load(0, matrices, source, {}, load, table.find(3));
    table.drop(3);
    const LoadOutcome outcome = load.wait();
    check(outcome.loaded && outcome.read_bytes == 0, "loaded from what was dropped");
    check_same_matrices(matrices, expected, "dropped while it is loaded");
    check(table.find(3) == nullptr && table.bytes() == 0, "dropped");
  }
}

// A fill pauses while main waits for a load, and continues by itself when the load is done.
void stands_back_for_urgent_loads() {
  Setting setting({.shards = 2}, kSlow);
  ExpertMatrices matrices(setting.backend, kShape);
  AwaitedLoad load;
  AwaitedLoad filled;
  setting.loader->load(0, matrices, setting.source, {.exponents = {}, .sign_mantissa = {}, .order = {}, .urgent = true}, load);
  const std::shared_ptr<const HostChunks> host = setting.loader->fill(setting.source, filled);
  check(load.wait().loaded && filled.wait().loaded, "both come to their end");
  check(load.turn() < filled.turn(), "the load first");
  // A cancelled load does not keep it waiting, either.
  load.reuse();
  filled.reuse();
  setting.loader->load(0, matrices, setting.source, {.exponents = {}, .sign_mantissa = {}, .order = {}, .urgent = true}, load);
  setting.loader->fill(setting.source, filled);
  setting.loader->cancel(0);
  check(!load.wait().loaded && filled.wait().loaded, "the fill goes on");
}

}  // namespace

void add_host_chunks_cases(std::vector<Case>& cases) {
  const std::string name = "host memory: ";
  const std::pair<CodecKind, const char*> codecs[] = {
      {CodecKind::raw, "raw"}, {CodecKind::fixed4, "fixed4"}, {CodecKind::huffman, "huffman"}};
  for (const auto& [codec, codec_name] : codecs) {
    cases.push_back({name + "loads what it holds, " + codec_name, [codec = codec] { loads_from_host_memory(codec); }});
  }
  cases.push_back({name + "takes no other expert's chunks", takes_no_other_experts_chunks});
  cases.push_back({name + "holds nothing damaged", holds_nothing_damaged});
  cases.push_back({name + "takes nothing of the device's budget", takes_nothing_of_the_budget});
  cases.push_back({name + "cancels holds", cancels_holds});
  cases.push_back({name + "drops what is being loaded", drops_what_is_being_loaded});
  cases.push_back({name + "stands back for urgent loads", stands_back_for_urgent_loads});
}

}  // namespace odmoe::test
