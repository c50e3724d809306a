// Slots with sliced experts: upper slices alone, lower ones that come and go during executes, a precision for each row, damage.
#include <atomic>
#include <filesystem>
#include <fstream>
#include <thread>

#include "native_tests.h"
#include "odmoe/error.h"
#include "odmoe/expert_slots.h"
#include "stored_expert.h"

namespace odmoe::test {
namespace {

using Kind = ExpertSlots::Call::Kind;

constexpr int kRows = 24;
constexpr double kSlow = 3e5;  // bytes a second: a load of lower slices lasts about 0.2 s
constexpr SliceReading kReadings[] = {SliceReading::both, SliceReading::upper_centred, SliceReading::upper_amat};
constexpr PartPlan kNotWanted{PartOrigin::not_wanted, -1};

struct Sliced {
  const char* name;
  Split split;
  WeightFormat format;
};
constexpr Sliced kPairs[] = {{"(8,4)", Split::sliced84, WeightFormat::sliced84},
                             {"(6,3)", Split::sliced63, WeightFormat::sliced63},
                             {"(4,2)", Split::sliced42, WeightFormat::sliced42}};

ExpertShape shape_of(WeightFormat format) { return {.hidden_size = 200, .glu = {.intermediate_size = 331}, .format = format}; }

LoadRequest upper_only() {
  LoadRequest request;
  request.sign_mantissa = kNotWanted;
  return request;
}

LoadRequest lower_only() {
  LoadRequest request;
  request.exponents = kNotWanted;
  return request;
}

uint64_t slice_bytes(const ExpertSource& source, int plane) {
  uint64_t bytes = 0;
  for (const TensorSource* tensor : {&source.gate, &source.up, &source.down}) {
    for (const ChunkLocation& chunk : tensor->chunks) bytes += chunk.plane == plane ? chunk.stored_bytes : 0;
  }
  return bytes;
}

// Slots on a device with exactly the memory of their upper slices and of `lower` slots' lower ones.
class TestedSlots {
 public:
  TestedSlots(const ExpertShape& shape, const std::vector<ExpertSource>& sources, int count, int lower,
              const std::string& set = "auto", double bytes_per_s = 0)
      : shape_(shape) {
    LoaderOptions options = options_for(sources);
    options.storage_bytes_per_s = bytes_per_s;
    bytes = expert_slot_bytes(*open_backend(set), shape, kRows, options);
    const auto times = [](int number, uint64_t each) { return static_cast<uint64_t>(number) * each; };
    const uint64_t budget = times(count, bytes.slot_bytes) + times(lower, bytes.lower_bytes) + bytes.shared_bytes;
    device = std::make_shared<Device>(open_backend(set, 1, budget));
    slots = std::make_shared<ExpertSlots>(device, shape, count, kRows, options);
    for (int i = 0; i < lower; i++) take_lower(i);
  }

  LoadOutcome load(int slot, const ExpertSource& source, const LoadRequest& request = {}) {
    AwaitedLoad settled;
    const ExpertSlots::Call call(slots, slot, ExpertSlots::load_kind(request));
    slots->load(call, source, request, settled);
    return settled.wait();
  }

  std::vector<float> execute(int slot, const std::vector<SliceReading>& readings, int first = 0) {
    const auto size = static_cast<size_t>(shape_.hidden_size);
    const auto all = random_values((kRows + 1) * size, 6);  // one row more than slots take
    const std::vector<float> input(all.begin() + first * shape_.hidden_size,
                                   all.begin() + (first + static_cast<int>(readings.size())) * shape_.hidden_size);
    std::vector<float> output(input.size());
    const ExpertSlots::Call call(slots, slot, ExpertSlots::execute_kind(readings));
    slots->execute(call, static_cast<int>(readings.size()),
                   std::span(reinterpret_cast<const uint8_t*>(input.data()), input.size() * sizeof(float)),
                   std::span(reinterpret_cast<uint8_t*>(output.data()), output.size() * sizeof(float)), readings);
    return output;
  }

  std::vector<float> execute(int slot, SliceReading reading) { return execute(slot, std::vector<SliceReading>(kRows, reading)); }

  void take_lower(int slot) { slots->take_lower(ExpertSlots::Call(slots, slot, Kind::move_lower)); }
  void let_go_lower(int slot) { slots->let_go_lower(ExpertSlots::Call(slots, slot, Kind::move_lower)); }
  uint64_t used_bytes() const { return device->backend()->info().used_bytes; }

  ExpertSlotBytes bytes;
  std::shared_ptr<Device> device;
  std::shared_ptr<ExpertSlots> slots;

 private:
  ExpertShape shape_;
};

// An expert on the disk, and what it gives by each reading, computed from FP32 weights.
struct Setting {
  explicit Setting(const Sliced& sliced, const std::string& set = "auto", double bytes_per_s = 0)
      : pair(sliced),
        values(sliced_weights(shape_of(sliced.format), sliced.split, 5)),
        source(store_expert(directory.path("expert"), values, {.split = sliced.split, .shards = 3})),
        tested(values.shape, {source}, 2, 1, set, bytes_per_s) {
    for (const SliceReading reading : kReadings) {
      const ExpertValues plain = fp32_weights(values, pair.split, reading);
      const ExpertSource stored = store_expert(directory.path("plain"), plain, {.split = Split::none_fp32});
      TestedSlots slots(plain.shape, {stored}, 1, 0, set);
      check(slots.load(0, stored).loaded, "loaded");
      expected.push_back(slots.execute(0, SliceReading::both));
    }
  }

  const std::vector<float>& expected_of(SliceReading reading) const { return expected[static_cast<size_t>(reading)]; }
  void check_executes(SliceReading reading, const std::string& what) {
    check_same(tested.execute(0, reading), expected_of(reading), pair.name + (": " + what));
  }
  void check_upper(const std::string& what) {
    check_executes(SliceReading::upper_centred, what);
    check_executes(SliceReading::upper_amat, what);
    check_refused(ErrorCode::internal, [&] { tested.execute(0, SliceReading::both); });
  }

  TestDirectory directory;
  Sliced pair;
  ExpertValues values;
  ExpertSource source;
  TestedSlots tested;
  std::vector<std::vector<float>> expected;
};

// Both slices at once, or the lower one later, or from an entry of the other.
void executes_as_fp32_weights(const std::string& set, const Sliced& pair) {
  Setting setting(pair, set);
  TestedSlots& tested = setting.tested;
  const LoadOutcome upper = tested.load(0, setting.source, upper_only());
  check(upper.loaded && upper.read_bytes == slice_bytes(setting.source, 0), "reads the upper slices alone");
  setting.check_upper("upper slices alone");
  const LoadOutcome lower = tested.load(0, setting.source, lower_only());
  check(lower.loaded && lower.read_bytes == slice_bytes(setting.source, 1), "reads the lower slices alone");
  for (const SliceReading reading : kReadings) setting.check_executes(reading, "a lower slice that came later");
  const LoadOutcome both = tested.load(0, setting.source);
  check(both.loaded && both.read_bytes == stored_bytes(setting.source), "reads both slices");
  for (const SliceReading reading : kReadings) setting.check_executes(reading, "both slices");
  check(tested.load(0, setting.source, upper_only()).loaded, "loaded");
  setting.check_upper("the upper slices of a slot that had both");
}

void reads_each_row_by_itself(const Sliced& pair) {
  Setting setting(pair);
  check(setting.tested.load(0, setting.source).loaded, "loaded");
  std::mt19937 random(3);
  for (int round = 0; round < 8; round++) {
    std::vector<SliceReading> readings;
    std::vector<float> expected;
    for (int row = 0; row < kRows; row++) {
      // Runs of one row and of many.
      const bool repeats = row > 0 && round % 2 == 0 && random() % 4 != 0;
      readings.push_back(repeats ? readings.back() : kReadings[random() % 3]);
      const auto alone = setting.tested.execute(0, std::vector{readings.back()}, row);
      expected.insert(expected.end(), alone.begin(), alone.end());
    }
    check_same(setting.tested.execute(0, readings), expected, "rows of several readings");
  }
}

// A thread that works until `over` is set; the destructor sets it and waits, also after a failed check.
struct Worker {
  std::atomic<bool>& over;
  std::thread thread;
  ~Worker() { end(); }
  void end() {
    over = true;
    if (thread.joinable()) thread.join();
  }
};

void adds_lower_slices_during_executes() {
  Setting setting(kPairs[0], "auto", kSlow);
  TestedSlots& tested = setting.tested;
  check(tested.load(0, setting.source, upper_only()).loaded, "loaded");
  AwaitedLoad settled;
  std::atomic<bool> over = false;
  int executes = 0;
  std::exception_ptr fault;
  Worker executor{over, std::thread([&] {
                    const ExactFloatEnvironment exact;
                    try {
                      for (; !over || executes == 0; executes++)
                        setting.check_executes(SliceReading::upper_centred, "during a load");
                    } catch (...) {
                      fault = std::current_exception();
                    }
                  })};
  {
    const ExpertSlots::Call call(tested.slots, 0, Kind::load_lower);
    tested.slots->load(call, setting.source, lower_only(), settled);
    check_refused(ErrorCode::internal, [&] { tested.execute(0, SliceReading::both); });
    check_refused(ErrorCode::internal, [&] { tested.let_go_lower(0); });
    check_refused(ErrorCode::internal, [&] { tested.load(0, setting.source, lower_only()); });
    check(settled.wait().loaded, "loaded");
  }
  executor.end();
  if (fault != nullptr) std::rethrow_exception(fault);
  check(executes > 1, "executes went on");
  for (const SliceReading reading : kReadings) setting.check_executes(reading, "after the load");
}

void keeps_upper_slices_of_a_cancelled_load() {
  Setting setting(kPairs[1], "auto", kSlow);
  TestedSlots& tested = setting.tested;
  check(tested.load(0, setting.source, upper_only()).loaded, "loaded");
  for (const int wait_ms : {0, 20}) {
    AwaitedLoad settled;
    const ExpertSlots::Call call(tested.slots, 0, Kind::load_lower);
    tested.slots->load(call, setting.source, lower_only(), settled);
    std::this_thread::sleep_for(std::chrono::milliseconds(wait_ms));
    tested.slots->cancel(0);
    check(!settled.wait().loaded, "cancelled");
  }
  setting.check_upper("after a cancelled load");
  check(tested.load(0, setting.source, lower_only()).loaded, "loaded");
  setting.check_executes(SliceReading::both, "after a load that was not cancelled");
}

void change_byte(const std::string& path, uint64_t offset, uint8_t mask) {
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  file.seekg(static_cast<std::streamoff>(offset));
  const char byte = static_cast<char>(file.get() ^ mask);
  file.seekp(static_cast<std::streamoff>(offset));
  file.put(byte);
}

// A damaged slice fails the loads that want it and no others.
void finds_damage(const Sliced& pair) {
  Setting setting(pair);
  TestedSlots& tested = setting.tested;
  const std::string path = setting.directory.path("expert");
  std::mt19937 random(8);
  for (int i = 0; i < 40; i++) {
    const TensorSource* const tensors[] = {&setting.source.gate, &setting.source.up, &setting.source.down};
    const std::vector<ChunkLocation>& chunks = tensors[random() % 3]->chunks;
    const ChunkLocation& chunk = chunks[random() % chunks.size()];
    const uint64_t offset = chunk.offset_bytes + random() % chunk.stored_bytes;
    const auto mask = static_cast<uint8_t>(1 + random() % 255);
    change_byte(path, offset, mask);
    check_refused(ErrorCode::pack_corrupt, [&] { tested.load(0, setting.source); });
    check_refused(ErrorCode::internal, [&] { tested.execute(0, SliceReading::upper_amat); });
    if (chunk.plane == 0) {
      check_refused(ErrorCode::pack_corrupt, [&] { tested.load(0, setting.source, upper_only()); });
      check_refused(ErrorCode::internal, [&] { tested.execute(0, SliceReading::upper_amat); });
    } else {
      check(tested.load(0, setting.source, upper_only()).loaded, "loaded");
      check_refused(ErrorCode::pack_corrupt, [&] { tested.load(0, setting.source, lower_only()); });
      setting.check_upper("beside damaged lower slices");
    }
    change_byte(path, offset, mask);
  }
  // The file ends in the upper slice of the last matrix.
  check(tested.load(0, setting.source, upper_only()).loaded, "loaded");
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 1);
  check(tested.load(0, setting.source, lower_only()).loaded, "loaded");
  setting.check_executes(SliceReading::both, "a lower slice before the end of a short file");
  check_refused(ErrorCode::pack_corrupt, [&] { tested.load(0, setting.source, upper_only()); });
  std::filesystem::resize_file(path, setting.source.gate.chunks.front().offset_bytes + 1);
  check_refused(ErrorCode::pack_corrupt, [&] { tested.load(0, setting.source); });
  std::filesystem::remove(path);
  check_refused(ErrorCode::storage_failed, [&] { tested.load(0, setting.source, upper_only()); });
}

// Codes behind the last column, and zeros above the highest code, with correct checksums.
void refuses_slices_that_nothing_wrote(const Sliced& pair) {
  const TestDirectory directory;
  for (const bool upper : {true, false}) {
    ExpertValues values = sliced_weights(shape_of(pair.format), pair.split, 5);
    // 331 columns: the last group has 11, so its last code byte has a later column alone or in its upper bits.
    const int64_t row_bytes = plane_row_bytes(pair.split, upper ? 0 : 1, 331);
    const int64_t before = upper ? 0 : 200 * plane_row_bytes(pair.split, 0, 331);
    const int64_t codes = slice_groups(331) * slice_code_bytes(slice_bits(pair.split));
    values.bytes[2][static_cast<size_t>(before + 57 * row_bytes + codes - 1)] |= 0xf0;
    const ExpertSource source = store_expert(directory.path("expert"), values, {.split = pair.split});
    TestedSlots tested(values.shape, {source}, 1, 1);
    if (upper) {
      check_refused(ErrorCode::pack_corrupt, [&] { tested.load(0, source, upper_only()); });
    } else {
      check(tested.load(0, source, upper_only()).loaded, "loaded");
      check_refused(ErrorCode::pack_corrupt, [&] { tested.load(0, source, lower_only()); });
    }
  }
}

void moves_the_memory_of_lower_slices() {
  Setting setting(kPairs[2]);
  TestedSlots& tested = setting.tested;
  const uint64_t upper = 2 * tested.bytes.slot_bytes + tested.bytes.shared_bytes;
  check(tested.load(0, setting.source).loaded && tested.load(1, setting.source, upper_only()).loaded, "loaded");
  setting.check_executes(SliceReading::both, "both slices");
  check(tested.used_bytes() == upper + tested.bytes.lower_bytes, "the declared memory is taken");
  check_refused(ErrorCode::device_out_of_memory, [&] { tested.take_lower(1); });
  check(tested.used_bytes() == upper + tested.bytes.lower_bytes, "a refusal takes nothing");
  {
    const ExpertSlots::Call reading(tested.slots, 0, Kind::execute);
    check_refused(ErrorCode::internal, [&] { tested.let_go_lower(0); });
  }
  {
    const ExpertSlots::Call reading(tested.slots, 0, Kind::execute_upper);
    tested.let_go_lower(0);
    check(tested.used_bytes() == upper, "the memory has gone back while the upper slices execute");
  }
  setting.check_upper("without memory for lower slices");
  check_refused(ErrorCode::internal, [&] { tested.load(0, setting.source, lower_only()); });
  tested.take_lower(1);
  tested.take_lower(1);
  check(tested.load(1, setting.source, lower_only()).loaded, "loaded");
  check_same(tested.execute(1, SliceReading::both), setting.expected_of(SliceReading::both), "the other slot");
  tested.slots->let_go(ExpertSlots::Call(tested.slots, 1, Kind::load));
  check(tested.used_bytes() == upper - tested.bytes.slot_bytes, "a slot gives all its memory back");
  tested.slots->take(ExpertSlots::Call(tested.slots, 1, Kind::load));
  check(tested.used_bytes() == upper, "and takes that of its upper slices");
}

void refuses_what_a_slot_cannot_do() {
  Setting setting(kPairs[0]);
  TestedSlots& tested = setting.tested;
  const auto refused = [](const std::function<void()>& body) { check_refused(ErrorCode::internal, body); };
  refused([&] { tested.load(0, setting.source, lower_only()); });  // there is no upper slice
  LoadRequest neither = upper_only();
  neither.exponents = kNotWanted;
  refused([&] { tested.load(0, setting.source, neither); });
  check(tested.load(0, setting.source, upper_only()).loaded, "loaded");
  const ExpertValues values = sliced_weights(setting.values.shape, setting.pair.split, 6);
  const ExpertSource other = store_expert(setting.directory.path("other"), values, {.split = setting.pair.split, .shards = 3});
  refused([&] { tested.load(0, other, lower_only()); });
  setting.check_upper("after another expert's lower slices were refused");
  check(tested.load(0, setting.source, lower_only()).loaded, "loaded");
  refused([&] { tested.load(0, setting.source, lower_only()); });  // they are there
  setting.check_executes(SliceReading::both, "after a refusal");
  refused([&] { tested.execute(0, std::vector<SliceReading>(kRows + 1)); });

  const ExpertShape plain_shape = shape_of(WeightFormat::bf16);
  const ExpertSource plain = store_expert(setting.directory.path("plain"), gaussian_weights(plain_shape, 5), {});
  TestedSlots whole(plain_shape, {plain}, 1, 0);
  refused([&] { whole.load(0, plain, upper_only()); });
  refused([&] { whole.take_lower(0); });
  refused([&] { whole.load(0, setting.source); });
  check(whole.load(0, plain).loaded, "loaded");
  refused([&] { whole.execute(0, SliceReading::upper_amat); });
  refused([&] { tested.load(0, plain); });
}

// Loads of either slice that are cancelled at any time, between executes.
void survives_any_mixture() {
  Setting setting(kPairs[0], "auto", 30e6);
  TestedSlots& tested = setting.tested;
  std::mt19937 random(12);
  bool upper = false;
  bool lower = false;
  for (int i = 0; i < 200; i++) {
    const bool adds = upper && !lower && random() % 2 == 0;
    const LoadRequest request = adds ? lower_only() : random() % 2 == 0 ? upper_only() : LoadRequest{};
    AwaitedLoad settled;
    {
      const ExpertSlots::Call call(tested.slots, 0, ExpertSlots::load_kind(request));
      tested.slots->load(call, setting.source, request, settled);
      if (adds) setting.check_executes(SliceReading::upper_amat, "during a load");
      if (random() % 2 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 2000));
      if (random() % 3 == 0) tested.slots->cancel(0);
      const bool loaded = settled.wait().loaded;
      upper = adds || loaded;
      lower = loaded && request.sign_mantissa.from == PartOrigin::storage;
    }
    if (upper) setting.check_executes(SliceReading::upper_centred, "upper slices");
    if (lower) setting.check_executes(SliceReading::both, "both slices");
    if (!lower) check_refused(ErrorCode::internal, [&] { tested.execute(0, SliceReading::both); });
  }
}

}  // namespace

void add_expert_slices_cases(std::vector<Case>& cases) {
  const std::string name = "expert slices: ";
  for (const Sliced& pair : kPairs) {
    for (const std::string& set : instruction_sets()) {
      cases.push_back({name + set + " executes " + pair.name + " as FP32 weights", [=] { executes_as_fp32_weights(set, pair); }});
    }
    cases.push_back({name + "reads each row by itself, " + pair.name, [=] { reads_each_row_by_itself(pair); }});
    cases.push_back({name + "finds damage, " + pair.name, [=] { finds_damage(pair); }});
    cases.push_back({name + "refuses slices that nothing wrote, " + pair.name, [=] { refuses_slices_that_nothing_wrote(pair); }});
  }
  cases.push_back({name + "adds lower slices during executes", adds_lower_slices_during_executes});
  cases.push_back({name + "keeps upper slices of a cancelled load", keeps_upper_slices_of_a_cancelled_load});
  cases.push_back({name + "moves the memory of lower slices", moves_the_memory_of_lower_slices});
  cases.push_back({name + "refuses what a slot cannot do", refuses_what_a_slot_cannot_do});
  cases.push_back({name + "survives any mixture", survives_any_mixture});
}

}  // namespace odmoe::test
