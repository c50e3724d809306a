// Slots convert their experts to fixed4: results have the same bits, during any other work.
#include <atomic>
#include <chrono>
#include <random>
#include <thread>

#include "native_tests.h"
#include "odmoe/error.h"
#include "odmoe/expert_slots.h"
#include "stored_expert.h"

namespace odmoe::test {
namespace {

// Slots that pack, on a device with exactly their declared memory.
class PackingSlots {
 public:
  PackingSlots(const ExpertShape& shape, const std::vector<ExpertSource>& sources, const std::string& set, int count)
      : shape_(shape), options_(options_of(sources)) {
    const ExpertSlotBytes bytes = expert_slot_bytes(*open_backend(set), shape, kRows, options_);
    budget_ = static_cast<uint64_t>(count) * bytes.slot_bytes + bytes.shared_bytes;
    device = std::make_shared<Device>(open_backend(set, 1, budget_));
    slots = std::make_shared<ExpertSlots>(device, shape, count, kRows, options_);
  }

  void load(int slot, const ExpertSource& source) {
    AwaitedLoad settled;
    const ExpertSlots::Call call(slots, slot, ExpertSlots::Call::Kind::load);
    slots->load(call, source, {}, settled);
    check(settled.wait().loaded, "loaded");
  }

  std::vector<float> execute(int slot, int rows) {
    const auto input = random_values(static_cast<size_t>(rows * shape_.hidden_size), 6);
    std::vector<float> output(input.size());
    const ExpertSlots::Call call(slots, slot, ExpertSlots::Call::Kind::execute);
    slots->execute(call, rows, std::span(reinterpret_cast<const uint8_t*>(input.data()), input.size() * sizeof(float)),
                   std::span(reinterpret_cast<uint8_t*>(output.data()), output.size() * sizeof(float)));
    return output;
  }

  PackResult pack(int slot) { return slots->pack(slots->new_pack(), slot); }
  uint64_t used_bytes() const { return device->backend()->info().high_water_bytes; }
  uint64_t budget() const { return budget_; }

  static constexpr int kRows = 20;
  std::shared_ptr<Device> device;
  std::shared_ptr<ExpertSlots> slots;

 private:
  static LoaderOptions options_of(const std::vector<ExpertSource>& sources) {
    LoaderOptions options = options_for(sources);
    options.packs = true;
    return options;
  }

  ExpertShape shape_;
  LoaderOptions options_;
  uint64_t budget_ = 0;
};

constexpr ExpertShape kPackedShape{512, {.intermediate_size = 333}, WeightFormat::bf16};

void packs_experts_to_the_bit(const std::string& set) {
  const TestDirectory directory;
  const StoredForm form{.codec = CodecKind::huffman};
  const ExpertSource one = store_expert(directory.path("one"), gaussian_weights(kPackedShape, 5), form);
  const ExpertSource other = store_expert(directory.path("other"), gaussian_weights(kPackedShape, 9), form);
  PackingSlots packing(kPackedShape, {one, other}, set, 2);
  packing.load(0, one);
  packing.load(1, other);
  const auto outputs = [&](int slot) {
    std::vector<float> all;
    for (const int rows : {1, 2, 7, 20}) {
      const std::vector<float> some = packing.execute(slot, rows);
      all.insert(all.end(), some.begin(), some.end());
    }
    return all;
  };
  const std::vector<float> expected = outputs(0);
  const std::vector<float> expected_other = outputs(1);
  for (const int slot : {0, 1}) check(packing.pack(slot) == PackResult::packed, "packed");
  check_same(outputs(0), expected, "an expert that was packed");
  check_same(outputs(1), expected_other, "one in memory that the other had");
  check(packing.pack(0) == PackResult::packed, "it is packed already");
  packing.load(0, other);
  check_same(outputs(0), expected_other, "loaded over it");
  check(packing.pack(0) == PackResult::packed, "packed again");
  check_same(outputs(0), expected_other, "packed again");
  check(packing.used_bytes() <= packing.budget(), "the budget holds");
}

void gives_packing_up() {
  using Kind = ExpertSlots::Call::Kind;
  const TestDirectory directory;
  const ExpertSource source = store_expert(directory.path("expert"), gaussian_weights(kPackedShape, 5), {});
  PackingSlots packing(kPackedShape, {source}, "auto", 1);
  check(packing.pack(0) == PackResult::given_up, "an empty slot");
  packing.load(0, source);
  const std::vector<float> expected = packing.execute(0, 3);
  {
    const ExpertSlots::Call call(packing.slots, 0, Kind::execute);
    check(packing.pack(0) == PackResult::given_up, "a slot that executes");
  }
  const uint64_t ticket = packing.slots->new_pack();
  packing.slots->cancel_pack();
  check(packing.slots->pack(ticket, 0) == PackResult::given_up, "cancelled before it began");
  check_same(packing.execute(0, 3), expected, "what was given up");
  check(packing.pack(0) == PackResult::packed, "later ones are not cancelled");
  check_same(packing.execute(0, 3), expected, "packed in the end");
  packing.slots->let_go(ExpertSlots::Call(packing.slots, 0, Kind::load));
  check(packing.pack(0) == PackResult::given_up, "a slot without memory");
  packing.slots->take(ExpertSlots::Call(packing.slots, 0, Kind::load));
  packing.load(0, source);
  check_same(packing.execute(0, 3), expected, "in memory taken again");
}

void packs_nothing_that_does_not_fit() {
  const TestDirectory directory;
  const ExpertSource source = store_expert(directory.path("expert"), random_bits(kPackedShape, 5), {});
  PackingSlots packing(kPackedShape, {source}, "auto", 1);
  packing.load(0, source);
  const std::vector<float> expected = packing.execute(0, 2);
  check(packing.pack(0) == PackResult::unfit, "exponents of all kinds");
  check_same(packing.execute(0, 2), expected, "it stays as it was");
}

// Longest time of an undisturbed pack.
constexpr std::chrono::seconds kPackingLimit(60);

// A thread packs continuously while another loads, executes, cancels and gives memory back: every result equals BF16's.
void packs_beside_all_else() {
  using Kind = ExpertSlots::Call::Kind;
  const TestDirectory directory;
  const ExpertSource sources[] = {store_expert(directory.path("one"), gaussian_weights(kPackedShape, 5), {}),
                                  store_expert(directory.path("other"), gaussian_weights(kPackedShape, 9), {})};
  PackingSlots packing(kPackedShape, {sources[0], sources[1]}, "auto", 2);
  std::vector<float> expected[2];
  for (int i = 0; i < 2; i++) {
    packing.load(0, sources[i]);
    expected[i] = packing.execute(0, 1);
  }
  packing.load(1, sources[0]);
  std::atomic<bool> done = false;
  std::atomic<int> packed = 0;
  std::thread packer([&] {
    for (int slot = 0; !done; slot = 1 - slot) packed += packing.pack(slot) == PackResult::packed ? 1 : 0;
  });
  std::mt19937 generator(7);
  int held[2] = {1, 0};
  for (int step = 0; step < 400; step++) {
    const int slot = static_cast<int>(generator() % 2);
    switch (generator() % 8) {
      case 0:
        held[slot] = static_cast<int>(generator() % 2);
        packing.load(slot, sources[held[slot]]);
        break;
      case 1: packing.slots->cancel_pack(); break;
      case 2:
        packing.slots->let_go(ExpertSlots::Call(packing.slots, slot, Kind::load));
        packing.slots->take(ExpertSlots::Call(packing.slots, slot, Kind::load));
        packing.load(slot, sources[held[slot]]);
        break;
      case 3: std::this_thread::sleep_for(std::chrono::microseconds(generator() % 2000)); break;
      default: check_same(packing.execute(slot, 1), expected[held[slot]], "beside packing");
    }
  }
  // On a busy machine every pack may have been given up so far; from now on nothing disturbs it.
  const auto end = std::chrono::steady_clock::now() + kPackingLimit;
  while (packed == 0 && std::chrono::steady_clock::now() < end) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  done = true;
  packer.join();
  check(packed > 0, "some were packed");
  check(packing.used_bytes() <= packing.budget(), "the budget holds");
}

}  // namespace

void add_expert_packing_cases(std::vector<Case>& cases) {
  const std::string name = "expert packing: ";
  for (const std::string& set : instruction_sets()) {
    cases.push_back({name + "keeps every bit, " + set, [set] { packs_experts_to_the_bit(set); }});
  }
  cases.push_back({name + "is given up", gives_packing_up});
  cases.push_back({name + "leaves what does not fit", packs_nothing_that_does_not_fit});
  cases.push_back({name + "goes on beside all else", packs_beside_all_else});
}

}  // namespace odmoe::test
