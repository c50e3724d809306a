// A worker's slots on the device, with experts in files as a pack has them: the results have the CPU's bits, for every codec and
// slot.
#include <algorithm>
#include <chrono>
#include <fstream>
#include <thread>

#include "../stored_expert.h"
#include "cuda_tests.h"
#include "odmoe/cuda.h"
#include "odmoe/error.h"
#include "odmoe/expert_slots.h"
#include "stand_in.h"

namespace odmoe::cuda_test {
namespace {

using test::AwaitedLoad;
using test::ExpertValues;
using test::StoredForm;
using Kind = ExpertSlots::Call::Kind;

constexpr ExpertShape kShape{.hidden_size = 200, .glu = {.intermediate_size = 331}, .format = WeightFormat::bf16};
constexpr int kExperts = 3;
constexpr int kRows = 3;

class Slots {
 public:
  Slots(std::unique_ptr<Backend> backend, const ExpertShape& shape, int count, const LoaderOptions& options)
      : Slots(std::make_shared<Device>(std::move(backend)), shape, count, options) {}
  Slots(std::shared_ptr<Device> device, const ExpertShape& shape, int count, const LoaderOptions& options)
      : shape_(shape), device_(std::move(device)), slots_(std::make_shared<ExpertSlots>(device_, shape, count, kRows, options)) {}

  LoadOutcome load(int slot, const ExpertSource& source, int64_t expert, PartPlan exponents = {}) {
    const ExpertSlots::Call call(slots_, slot, Kind::load);
    AwaitedLoad load;
    begin(call, source, expert, exponents, load);
    return load.wait();
  }

  // Begins a load and gives it up after some time.
  LoadOutcome load_and_cancel(int slot, const ExpertSource& source, int64_t expert, std::chrono::microseconds after) {
    const ExpertSlots::Call call(slots_, slot, Kind::load);
    AwaitedLoad load;
    begin(call, source, expert, {}, load);
    if (after.count() > 0) std::this_thread::sleep_for(after);
    StandIn::without_calls("a load is given up", [&] { slots_->cancel(slot); });
    return load.wait();
  }

  std::vector<float> execute(int slot, const std::vector<float>& hidden) {
    std::vector<float> output(hidden.size());
    const ExpertSlots::Call call(slots_, slot, Kind::execute);
    slots_->execute(call, kRows, {reinterpret_cast<const uint8_t*>(hidden.data()), hidden.size() * sizeof(float)},
                    {reinterpret_cast<uint8_t*>(output.data()), output.size() * sizeof(float)});
    return output;
  }

 private:
  void begin(const ExpertSlots::Call& call, const ExpertSource& source, int64_t expert, const PartPlan& exponents,
             AwaitedLoad& load) {
    const LoadRequest request{.exponents = exponents, .sign_mantissa = {}, .order = {}, .urgent = false, .expert = expert};
    StandIn::without_calls("a load is asked for", [&] { slots_->load(call, source, request, load); });
  }

  ExpertShape shape_;
  std::shared_ptr<Device> device_;
  std::shared_ptr<ExpertSlots> slots_;
};

WeightFormat format_of(Split split) {
  if (is_quantized(split)) return split == Split::mxfp4 ? WeightFormat::mxfp4 : WeightFormat::fp8;
  if (split == Split::bf16_e8_sm8 || split == Split::none_bf16) return WeightFormat::bf16;
  return split == Split::fp32_e8_sm8_r16 ? WeightFormat::fp32 : WeightFormat::fp16;
}

struct StoredExperts {
  ExpertShape shape;
  std::vector<ExpertSource> sources;
  LoaderOptions options;
};

StoredExperts store(const test::TestDirectory& directory, Devices& devices, const StoredForm& form) {
  StoredExperts stored{kShape, {}, {}};
  stored.shape.format = format_of(form.split);
  if (form.split == Split::mxfp4) {
    stored.shape.hidden_size = 192;
    stored.shape.glu.intermediate_size = 352;
  }
  for (int i = 0; i < kExperts; ++i) {
    const auto seed = static_cast<uint32_t>(devices.random());
    const bool gaussian = form.split == Split::bf16_e8_sm8 && i > 0;
    const ExpertValues values = is_quantized(form.split) ? test::quantized_weights(stored.shape, form.split, seed)
                                : gaussian               ? test::gaussian_weights(stored.shape, seed)
                                                         : test::random_bits(stored.shape, seed);
    stored.sources.push_back(test::store_expert(directory.path("expert" + std::to_string(i)), values, form));
  }
  stored.options = test::options_for(stored.sources);
  stored.options.exponent_entries = 1;
  return stored;
}

std::string describe(const StoredForm& form) {
  return "split " + std::to_string(static_cast<int>(form.split)) + ", codec " + std::to_string(static_cast<int>(form.codec)) +
         ", " + std::to_string(form.shards) + " shards" + (form.aligned ? "" : ", unaligned");
}

void slots_give_the_reference_bits(Devices& devices, const StoredForm& form) {
  const test::TestDirectory directory;
  StoredExperts stored = store(directory, devices, form);
  stored.options.experts = devices.random() % 4 == 0 ? 0 : kExperts;
  Slots reference(make_cpu_backend({.threads = 1, .budget_bytes = 0, .instruction_set = "scalar"}), stored.shape, 1,
                  stored.options);
  Slots slots(make_cuda_backend({.device = devices.device}), stored.shape, 2, stored.options);
  const std::vector<float> hidden = random_floats(devices.random, kRows * stored.shape.hidden_size);
  std::vector<std::vector<float>> expected;
  for (const ExpertSource& source : stored.sources) {
    reference.load(0, source, 0);
    expected.push_back(reference.execute(0, hidden));
  }
  for (int round = 0; round < 8; ++round) {
    const int slot = round % 2;
    const auto expert = static_cast<size_t>(devices.random() % kExperts);
    if (round % 3 == 2) slots.load_and_cancel(slot, stored.sources[(expert + 1) % kExperts], -1, {});
    expect(slots.load(slot, stored.sources[expert], static_cast<int64_t>(expert), {PartOrigin::storage, 0}).loaded, "not loaded");
    expect_equal(describe(form), slots.execute(slot, hidden), expected[expert]);
    slots.load(1 - slot, stored.sources[expert], static_cast<int64_t>(expert), {PartOrigin::entry, 0});
    expect_equal(describe(form) + ", exponents kept", slots.execute(1 - slot, hidden), expected[expert]);
  }
}

// A byte of the file is wrong: the load fails, the slot is empty, and its next load succeeds.
void damage_is_told(Devices& devices, CodecKind codec) {
  const test::TestDirectory directory;
  const StoredForm form{.codec = codec, .shards = 2};
  const StoredExperts stored = store(directory, devices, form);
  Slots slots(make_cuda_backend({.device = devices.device}), stored.shape, 1, stored.options);
  const std::vector<float> hidden = random_floats(devices.random, kRows * stored.shape.hidden_size);
  slots.load(0, stored.sources[1], 1);
  const std::vector<float> before = slots.execute(0, hidden);
  const ChunkLocation& chunk = stored.sources[0].down.chunks.back();
  std::fstream file(chunk.path, std::ios::binary | std::ios::in | std::ios::out);
  file.seekg(static_cast<std::streamoff>(chunk.offset_bytes + chunk.stored_bytes / 2));
  const int byte = file.get();
  file.seekp(static_cast<std::streamoff>(chunk.offset_bytes + chunk.stored_bytes / 2));
  file.put(static_cast<char>(byte ^ 0x10));
  file.close();
  test::check_refused(ErrorCode::pack_corrupt, [&] { slots.load(0, stored.sources[0], 0); });
  test::check_refused(ErrorCode::internal, [&] { slots.execute(0, hidden); });
  slots.load(0, stored.sources[1], 1);
  expect_equal("after a load that failed", slots.execute(0, hidden), before);
}

// Loads are given up later and later, until one is complete before that; between them other loads want the same addresses.
void loads_are_given_up_anywhere(Devices& devices) {
  const test::TestDirectory directory;
  StoredExperts stored = store(directory, devices, {.codec = CodecKind::fixed4, .shards = 2});
  stored.options.experts = kExperts;
  Slots slots(make_cuda_backend({.device = devices.device}), stored.shape, 2, stored.options);
  const std::vector<float> hidden = random_floats(devices.random, kRows * stored.shape.hidden_size);
  slots.load(0, stored.sources[0], 0);
  const std::vector<float> first = slots.execute(0, hidden);
  slots.load(0, stored.sources[1], 1);
  const std::vector<float> second = slots.execute(0, hidden);
  bool was_whole = false;
  for (auto after = std::chrono::microseconds(0); !was_whole; after += std::max(after / 4, std::chrono::microseconds(50))) {
    slots.load(0, stored.sources[0], 0);
    was_whole = slots.load_and_cancel(0, stored.sources[1], 1, after).loaded;
    slots.load(1, stored.sources[1], 1);
    expect_equal("beside a load that was given up", slots.execute(1, hidden), second);
    slots.load(0, stored.sources[0], 0);
    expect_equal("after a load that was given up", slots.execute(0, hidden), first);
  }
}

// The driver has no memory left for a mapping: the load fails with this error, the slot is empty, and its next load succeeds.
void a_failed_mapping_is_told(Devices& devices) {
  const StandIn* const stand_in = StandIn::get();
  if (stand_in == nullptr || !devices.cuda->info().paged_experts) return;
  const test::TestDirectory directory;
  StoredExperts stored = store(directory, devices, {.codec = CodecKind::zstd, .shards = 2});
  stored.options.experts = kExperts;
  Slots slots(make_cuda_backend({.device = devices.device}), stored.shape, 1, stored.options);
  const std::vector<float> hidden = random_floats(devices.random, kRows * stored.shape.hidden_size);
  slots.load(0, stored.sources[1], 1);
  const std::vector<float> before = slots.execute(0, hidden);
  for (const int failing_call : {0, 1, 2, 3}) {
    stand_in->fail_mapping(failing_call);
    test::check_refused(ErrorCode::device_out_of_memory, [&] { slots.load(0, stored.sources[0], 0); });
    test::check_refused(ErrorCode::internal, [&] { slots.execute(0, hidden); });
    slots.load(0, stored.sources[1], 1);
    expect_equal("after a mapping that failed", slots.execute(0, hidden), before);
  }
}

// Takes all of the backend's budget except the given number of bytes.
class AllBut {
 public:
  AllBut(const std::shared_ptr<Backend>& backend, uint64_t bytes) {
    constexpr uint64_t kUnit = uint64_t{2} << 20;
    const auto left = [&] {
      const DeviceInfo info = backend->info();
      return info.budget_bytes - info.used_bytes - bytes;
    };
    memory_.emplace_back(backend, left() / kUnit * kUnit);
    // Buffers of up to half a unit count with their exact size.
    while (left() > 0) memory_.emplace_back(backend, std::min(left(), kUnit / 2));
  }

 private:
  std::vector<DeviceMemory> memory_;
};

// The declared size of slots is exact to the byte. It is measured beside other memory of the same opening of the device: a second
// opening's context may have another size.
void slots_take_what_they_say(Devices& devices) {
  const test::TestDirectory directory;
  StoredExperts stored = store(directory, devices, {.codec = CodecKind::fixed4});
  stored.options.experts = kExperts;
  const ExpertSlotBytes bytes = expert_slot_bytes(*devices.cuda, stored.shape, kRows, stored.options);
  const uint64_t entries = devices.cuda->counts_staging() ? bytes.exponent_entry_bytes : 0;
  const uint64_t taken = 2 * bytes.slot_bytes + bytes.shared_bytes + entries;
  // Room for a larger context, and for the backend's own memory.
  constexpr uint64_t kRoom = uint64_t{128} << 20;
  CudaOptions options{.device = devices.device};
  options.budget_bytes = devices.cuda->info().context_bytes + taken + kRoom;
  const auto device = std::make_shared<Device>(make_cuda_backend(options));
  {
    const AllBut rest(device->backend(), taken);
    const Slots slots(device, stored.shape, 2, stored.options);
    expect(device->backend()->info().used_bytes == options.budget_bytes, "slots take something else than they say");
  }
  const AllBut rest(device->backend(), taken - 1);
  test::check_refused(ErrorCode::device_out_of_memory, [&] { const Slots slots(device, stored.shape, 2, stored.options); });
}

}  // namespace

void test_expert_slots(Devices& devices) {
  for (const CodecKind codec : {CodecKind::raw, CodecKind::zstd, CodecKind::lz4hc, CodecKind::fixed4, CodecKind::huffman}) {
    for (const Split split : {Split::bf16_e8_sm8, Split::fp16_hi8_lo8, Split::fp16_e5_lo8_s1m2, Split::fp32_e8_sm8_r16}) {
      const bool aligned = devices.random() % 2 == 0;
      slots_give_the_reference_bits(devices, {.split = split, .codec = codec, .shards = aligned ? 1 : 3, .aligned = aligned});
    }
  }
  for (const Split split : {Split::mxfp4, Split::fp8}) {
    slots_give_the_reference_bits(devices, {.split = split, .shards = 3, .aligned = devices.random() % 2 == 0});
  }
  slots_give_the_reference_bits(devices, {.codec = CodecKind::fixed4, .block_rows = 1});  // more blocks than fit in one call
  for (const CodecKind codec : {CodecKind::fixed4, CodecKind::huffman, CodecKind::zstd}) damage_is_told(devices, codec);
  loads_are_given_up_anywhere(devices);
  a_failed_mapping_is_told(devices);
  slots_take_what_they_say(devices);
}

}  // namespace odmoe::cuda_test
