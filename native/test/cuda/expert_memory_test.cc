// Experts' memory: addresses, states, the orders of reads and writes, the budget.
#include <algorithm>
#include <set>
#include <thread>

#include "coded_tensor.h"
#include "odmoe/cuda.h"
#include "odmoe/error.h"

namespace odmoe::cuda_test {
namespace {

constexpr int64_t kRows = 48;
constexpr int64_t kColumns = 96;

ExpertMemoryShape shape_for(const Backend& backend, int slots, int64_t experts) {
  return {slots, experts, backend.matrix_bytes(WeightFormat::bf16, kRows, kColumns),
          backend.matrix_bytes(WeightFormat::bf16, kColumns, kRows)};
}

void addresses_follow_experts(Backend& cuda) {
  const auto memory = cuda.allocate_experts(shape_for(cuda, 3, 5));
  const auto load = [&](int slot, int64_t expert) {
    const ExpertPages pages = memory->begin_load(slot, expert);
    expect(memory->state(slot) == PageState::loading, "a slot that is being loaded");
    memory->end_load(slot, true);
    expect(memory->state(slot) == PageState::resident, "a slot that has been loaded");
    return pages;
  };
  expect(memory->state(0) == PageState::unmapped, "a new slot");
  if (!cuda.info().paged_experts) {
    expect(load(0, 1).gate_up.data == load(0, 4).gate_up.data, "without mapping a slot stays where it is");
    expect(load(1, 1).gate_up.data != load(0, 1).gate_up.data, "and is not another one");
    return;
  }
  const ExpertPages second = load(0, 2);
  std::set<void*> addresses{second.gate_up.data, second.down.data};
  for (const int64_t expert : {0, 1, 3, 4}) {
    const ExpertPages pages = load(1, expert);
    expect(addresses.insert(pages.gate_up.data).second && addresses.insert(pages.down.data).second, "experts share an address");
    expect(load(2, expert).gate_up.data != pages.gate_up.data, "two slots share an address");
  }
  const ExpertPages copy = load(1, 2);  // in slot 0 too
  expect(copy.gate_up.data != second.gate_up.data, "an expert in two slots shares its memory");
  expect(load(0, 0).gate_up.data != second.gate_up.data, "slot 0 has another expert");
  const ExpertPages again = load(2, 2);
  expect(again.gate_up.data == second.gate_up.data && again.down.data == second.down.data, "an expert has moved to another address");
  expect(load(2, 2).gate_up.data == second.gate_up.data, "loaded over itself");
  expect(load(0, kNoExpert).gate_up.data == load(0, 99).gate_up.data, "experts that are not known have the slot's address");
  memory->begin_load(0, 1);
  memory->end_load(0, false);
  expect(memory->state(0) == PageState::unmapped, "a failed load leaves a slot unmapped");
}

// Slots that swap their experts from threads of their own: no place is ever mapped twice.
void slots_swap_experts(Devices& devices) {
  constexpr int kSlots = 3;
  const auto memory = devices.cuda->allocate_experts(shape_for(*devices.cuda, kSlots, 2));
  std::vector<std::thread> threads;
  std::vector<std::string> errors(kSlots);
  for (int slot = 0; slot < kSlots; ++slot) {
    threads.emplace_back([&, slot, random = std::mt19937(devices.random())]() mutable {
      try {
        for (int i = 0; i < 200; ++i) {
          memory->begin_load(slot, static_cast<int64_t>(random() % 2));
          memory->end_load(slot, true);
        }
      } catch (const std::exception& error) {
        errors[static_cast<size_t>(slot)] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& error : errors) expect(error.empty(), "swapping experts: " + error);
}

// An expert as a pack has it, and pinned memory that its planes are put into for each load and spoilt as soon as that may be used again.
// Nothing is allocated while experts are loaded: an allocation would wait for the device.
class LoadedExpert {
 public:
  LoadedExpert(Devices& devices, const std::vector<float>& input)
      : cuda_(*devices.cuda),
        tensor_(random_tensor(devices.random, Split::bf16_e8_sm8, kRows, kColumns)),
        coded_(devices.cuda, tensor_, 0, CodecKind::fixed4, 8),
        exponents_(devices.cuda, tensor_.planes[0]),
        rest_(devices.cuda, tensor_.planes[1]) {
    StoredWeights reference(devices.reference, WeightFormat::bf16, kRows, kColumns);
    write_plain(*devices.reference, reference.matrix, 0, tensor_);
    const Floats in(devices.reference, input);
    const Floats out(devices.reference, kRows);
    devices.reference->matmul(out.data(), kRows, reference.matrix, in.data(), kColumns, 1);
    expected_ = out.values();
  }

  const std::vector<float>& expected() const { return expected_; }

  void load(Matrix& matrix, bool coded) {
    std::copy(tensor_.planes[0].begin(), tensor_.planes[0].end(), exponents_.bytes());
    std::copy(tensor_.planes[1].begin(), tensor_.planes[1].end(), rest_.bytes());
    constexpr int kThreads = 3;
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i) {
      threads.emplace_back([&, i] { load_rows(matrix, coded, i * kRows / kThreads, kRows / kThreads); });
    }
    for (std::thread& thread : threads) thread.join();
    exponents_.fill(0x33);
    rest_.fill(0x77);
  }

 private:
  void load_rows(Matrix& matrix, bool coded, int64_t first, int64_t rows) {
    std::vector<CodedBlock> blocks;
    PlaneSource sources[2];
    if (coded) {
      sources[0] = coded_.rows(first, rows, blocks);
    } else {
      sources[0].plain = exponents_.bytes() + static_cast<uint64_t>(first) * tensor_.row_bytes(0);
    }
    sources[1].plain = rest_.bytes() + static_cast<uint64_t>(first) * tensor_.row_bytes(1);
    cuda_.write_coded_rows(matrix, first, rows, tensor_.split, sources);
  }

  Backend& cuda_;
  PlainTensor tensor_;
  CodedPlane coded_;
  Staging exponents_;
  Staging rest_;
  std::vector<float> expected_;
};

// Experts loaded and used in two slots in turns, without the host waiting for any use before the next load is asked for.
void reads_and_writes_keep_their_order(Devices& devices, int64_t experts) {
  constexpr int kExperts = 4;
  constexpr int kRounds = 40;
  Backend& cuda = *devices.cuda;
  const auto memory = cuda.allocate_experts(shape_for(cuda, 2, experts));
  const std::vector<float> input = random_floats(devices.random, kColumns);
  const Floats in(devices.cuda, input);
  std::vector<std::unique_ptr<LoadedExpert>> loaded;
  for (int i = 0; i < kExperts; ++i) loaded.push_back(std::make_unique<LoadedExpert>(devices, input));
  const Floats out(devices.cuda, kRounds * kRows);
  std::vector<float> expected = out.values();
  for (int round = 0; round < kRounds; ++round) {
    const int slot = round % 2;
    const auto expert = static_cast<size_t>(devices.random() % kExperts);
    const ExpertPages pages = memory->begin_load(slot, static_cast<int64_t>(expert));
    Matrix matrix{WeightFormat::bf16, kRows, kColumns, pages.gate_up};
    loaded[expert]->load(matrix, round % 3 != 0);
    const bool is_whole = devices.random() % 5 != 0;
    memory->end_load(slot, is_whole);
    if (!is_whole) continue;
    memory->begin_read(slot);
    cuda.matmul(out.data() + round * kRows, kRows, matrix, in.data(), kColumns, 1);
    memory->end_read(slot);
    std::copy(loaded[expert]->expected().begin(), loaded[expert]->expected().end(), expected.begin() + round * kRows);
  }
  expect_equal("uses of experts", out.values(), expected);
}

// A driver counts the whole process, and another opening may find a little more of it there.
constexpr uint64_t kContextSlack = uint64_t{64} << 20;

// In which a device gives memory.
constexpr uint64_t kUnitBytes = uint64_t{2} << 20;

// To the byte: all that is taken is counted, and a budget that holds just that holds it.
void budget_is_exact(Devices& devices) {
  const ExpertMemoryShape shape = shape_for(*devices.cuda, 3, 7);
  const uint64_t slot_bytes = devices.cuda->expert_slot_bytes(shape);
  const uint64_t staging_bytes = 12345;
  const DeviceInfo opened = make_cuda_backend({})->info();
  const uint64_t counted_staging = devices.cuda->counts_staging() ? staging_bytes : 0;
  CudaOptions options;
  options.budget_bytes = opened.used_bytes + 3 * slot_bytes + counted_staging + kContextSlack;
  const std::shared_ptr<Backend> cuda = make_cuda_backend(options);
  const DeviceInfo begun = cuda->info();
  expect(begun.used_bytes - begun.context_bytes == opened.used_bytes - opened.context_bytes,
         "two openings of a device take different amounts beside the context");
  expect(begun.context_bytes > 0, "the driver's context takes nothing");
  {
    DeviceBuffer staging = cuda->allocate_staging(staging_bytes);
    const auto memory = cuda->allocate_experts(shape);
    expect(cuda->info().used_bytes == begun.used_bytes + 3 * slot_bytes + counted_staging,
           "what slots take is not what they were said to take");
    DeviceBuffer rest = cuda->allocate((options.budget_bytes - cuda->info().used_bytes) / kUnitBytes * kUnitBytes);
    bool refused = false;
    try {
      DeviceBuffer more = cuda->allocate(kUnitBytes);
      cuda->release(more);
    } catch (const Error& error) {
      refused = error.code() == "DEVICE_OUT_OF_MEMORY";
    }
    expect(refused, "a full budget takes more");
    cuda->release(rest);
    cuda->release_staging(staging);
  }
  expect(cuda->info().used_bytes == begun.used_bytes, "slots are still counted");
  // Now a budget for three slots and not four.
  const uint64_t left = options.budget_bytes - cuda->info().used_bytes - 3 * slot_bytes - counted_staging;
  DeviceBuffer filler = cuda->allocate(left / kUnitBytes * kUnitBytes);
  const uint64_t filled = cuda->info().used_bytes;
  ExpertMemoryShape too_many = shape;
  too_many.slots = 4;
  bool refused = counted_staging >= slot_bytes;
  try {
    const auto memory = cuda->allocate_experts(too_many);
  } catch (const Error& error) {
    refused = error.code() == "DEVICE_OUT_OF_MEMORY";
  }
  expect(refused, "a budget holds a slot too many");
  expect(cuda->info().used_bytes == filled, "a refusal is counted");
  const auto memory = cuda->allocate_experts(shape);
  expect(memory->begin_load(2, 6).down.bytes == shape.down_bytes, "a slot after a refusal");
  memory->end_load(2, false);
  cuda->release(filler);
}

}  // namespace

void test_expert_memory(Devices& devices) {
  addresses_follow_experts(*devices.cuda);
  slots_swap_experts(devices);
  for (const int64_t experts : {0, 4}) reads_and_writes_keep_their_order(devices, experts);
  budget_is_exact(devices);
}

}  // namespace odmoe::cuda_test
