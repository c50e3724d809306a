// Experts' memory while it is written and read: loads and uses in many orders, loads that are given up, slots that cannot move.
#include <algorithm>
#include <map>
#include <mutex>
#include <thread>

#include "loaded_expert.h"
#include "odmoe/error.h"
#include "stand_in.h"

namespace odmoe::cuda_test {
namespace {

// The product of one use of an expert, written to its own output row.
void multiply(Backend& cuda, const Floats& out, int64_t row, const Matrix& matrix, const Floats& in) {
  cuda.matmul(out.data() + row * kExpertRows, kExpertRows, matrix, in.data(), kExpertColumns, 1);
}

void expect_in(std::vector<float>& expected, int64_t row, const LoadedExpert& expert) {
  std::copy(expert.expected().begin(), expert.expected().end(), expected.begin() + row * kExpertRows);
}

std::vector<std::unique_ptr<LoadedExpert>> make_experts(Devices& devices, const std::vector<float>& input, int count) {
  std::vector<std::unique_ptr<LoadedExpert>> experts;
  for (int i = 0; i < count; ++i) experts.push_back(std::make_unique<LoadedExpert>(devices, input));
  return experts;
}

// Experts in one memory, and uses of them, each with its own output row.
class Uses {
 public:
  Uses(Devices& devices, int slots, int64_t addresses, int count, int64_t rows)
      : memory(devices.cuda->allocate_experts(small_experts(*devices.cuda, slots, addresses))),
        cuda_(*devices.cuda),
        input_(random_floats(devices.random, kExpertColumns)),
        in_(devices.cuda, input_),
        out_(devices.cuda, rows * kExpertRows),
        expected_(out_.values()) {
    experts = make_experts(devices, input_, count);
  }

  void use(int64_t row, const Matrix& matrix, const LoadedExpert& expert) {
    multiply(cuda_, out_, row, matrix, in_);
    expect_in(expected_, row, expert);
  }
  void check(const std::string& what) const { expect_equal(what, out_.values(), expected_); }

  const std::unique_ptr<ExpertMemory> memory;
  std::vector<std::unique_ptr<LoadedExpert>> experts;

 private:
  Backend& cuda_;
  const std::vector<float> input_;
  const Floats in_;
  const Floats out_;
  std::vector<float> expected_;
};

// Experts are loaded and used in two slots in turns. The host does not wait for a use before it asks for the next load. Some loads
// are given up.
void reads_and_writes_keep_their_order(Devices& devices, int64_t addresses) {
  constexpr int kExperts = 4;
  constexpr int kRounds = 40;
  Uses uses(devices, 2, addresses, kExperts, kRounds);
  ExpertMemory& memory = *uses.memory;
  for (int round = 0; round < kRounds; ++round) {
    const int slot = round % 2;
    const auto expert = static_cast<size_t>(devices.random() % kExperts);
    const ExpertPages pages = memory.begin_load(slot, static_cast<int64_t>(expert));
    Matrix matrix = small_matrix(round % 4 < 2 ? pages.gate_up : pages.down);
    uses.experts[expert]->load(matrix, round % 3 != 0);
    expect(memory.state(slot) == PageState::loading, "a slot that is being loaded");
    const bool is_whole = devices.random() % 5 != 0;
    memory.end_load(slot, is_whole);
    if (!is_whole) continue;
    memory.begin_read(slot);
    uses.use(round, matrix, *uses.experts[expert]);
    memory.end_read(slot);
  }
  uses.check("uses of experts");
}

// Uses without an end (an operator has failed) are over before the slot is written again.
void uses_without_end_are_waited_for(Devices& devices) {
  constexpr int kRounds = 6;
  constexpr int kUses = 12;
  Uses uses(devices, 1, 2, 2, kRounds * kUses);
  ExpertMemory& memory = *uses.memory;
  for (int round = 0; round < kRounds; ++round) {
    LoadedExpert& expert = *uses.experts[static_cast<size_t>(round % 2)];
    // In every other round the slot moves.
    Matrix matrix = small_matrix(memory.begin_load(0, round / 2 % 2).gate_up);
    expert.load(matrix, true);
    memory.end_load(0, true);
    memory.begin_read(0);
    for (int row = round * kUses; row < (round + 1) * kUses; ++row) uses.use(row, matrix, expert);
  }
  uses.check("uses without an end");
}

// The addresses that each slot's expert has now.
class Addresses {
 public:
  void set(int slot, const ExpertPages& pages) {
    const std::lock_guard lock(mutex_);
    for (const auto& [other, taken] : pages_) {
      expect(other == slot || (taken.gate_up.data != pages.gate_up.data && taken.down.data != pages.down.data),
             "two slots have the same addresses");
    }
    pages_[slot] = pages;
  }
  void clear(int slot) {
    const std::lock_guard lock(mutex_);
    pages_.erase(slot);
  }

 private:
  std::mutex mutex_;
  std::map<int, ExpertPages> pages_;
};

// Each slot has its own thread, which loads experts, gives up some loads before or after their first pieces, and uses complete
// experts. There are more slots than experts, so that slots want one another's addresses.
class SlotsSideBySide {
 public:
  SlotsSideBySide(Devices& devices, int64_t experts)
      : cuda_(*devices.cuda),
        memory_(cuda_.allocate_experts(small_experts(cuda_, kSlots, experts))),
        input_(random_floats(devices.random, kExpertColumns)),
        in_(devices.cuda, input_) {
    for (int slot = 0; slot < kSlots; ++slot) users_.push_back(std::make_unique<User>(devices, input_));
  }

  void run() {
    std::vector<std::thread> threads;
    for (int slot = 0; slot < kSlots; ++slot) {
      threads.emplace_back([this, slot] {
        User& user = *users_[static_cast<size_t>(slot)];
        try {
          for (int round = 0; round < kRounds; ++round) load_and_use(user, slot, round);
        } catch (const std::exception& error) {
          user.error = error.what();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const auto& user : users_) {
      expect(user->error.empty(), "experts side by side: " + user->error);
      expect_equal("experts side by side", user->out.values(), user->expected);
    }
  }

 private:
  static constexpr int kSlots = 3;
  static constexpr int kExperts = 2;
  static constexpr int kRounds = 25;

  struct User {
    User(Devices& devices, const std::vector<float>& input)
        : random(devices.random()),
          experts(make_experts(devices, input, kExperts)),
          out(devices.cuda, kRounds * kExpertRows),
          expected(out.values()) {}
    std::mt19937 random;
    std::vector<std::unique_ptr<LoadedExpert>> experts;
    Floats out;
    std::vector<float> expected;
    std::string error;
  };

  void load_and_use(User& user, int slot, int round) {
    const auto expert = static_cast<size_t>(user.random() % kExperts);
    const bool is_told = user.random() % 5 != 0;
    const ExpertPages pages = memory_->begin_load(slot, is_told ? static_cast<int64_t>(expert) : kNoExpert);
    addresses_.set(slot, pages);
    Matrix matrix = small_matrix(user.random() % 2 == 0 ? pages.gate_up : pages.down);
    const int pieces = user.random() % 2 == 0 ? LoadedExpert::kPieces : static_cast<int>(user.random() % LoadedExpert::kPieces);
    for (const std::exception_ptr& error : user.experts[expert]->load_pieces(matrix, user.random() % 2 == 0, pieces)) {
      if (error != nullptr) std::rethrow_exception(error);
    }
    if (pieces < LoadedExpert::kPieces) {
      addresses_.clear(slot);
      memory_->end_load(slot, false);
      return;
    }
    memory_->end_load(slot, true);
    const std::lock_guard lock(executor_);
    memory_->begin_read(slot);
    multiply(cuda_, user.out, round, matrix, in_);
    memory_->end_read(slot);
    expect_in(user.expected, round, *user.experts[expert]);
  }

  Backend& cuda_;
  const std::unique_ptr<ExpertMemory> memory_;
  const std::vector<float> input_;
  const Floats in_;
  std::mutex executor_;
  Addresses addresses_;
  std::vector<std::unique_ptr<User>> users_;
};

// A thread that begins a load, or gives it up, never waits and makes no call of CUDA.
void who_asks_calls_nothing(Devices& devices) {
  if (StandIn::get() == nullptr) return;
  Uses uses(devices, 1, 3, 3, 2);
  ExpertMemory& memory = *uses.memory;
  const auto& experts = uses.experts;
  const auto begin = [&](int64_t expert, const std::string& what) {
    ExpertPages pages;
    StandIn::without_calls("a load is asked for: " + what, [&] { pages = memory.begin_load(0, expert); });
    return small_matrix(pages.gate_up);
  };
  const auto give_up = [&](const std::string& what) {
    StandIn::without_calls("a load is given up: " + what, [&] { memory.end_load(0, false); });
  };
  const auto use = [&](int64_t row, Matrix& matrix, LoadedExpert& expert) {
    expert.load(matrix, true);
    memory.end_load(0, true);
    memory.begin_read(0);
    uses.use(row, matrix, expert);
  };
  begin(0, "the first");
  give_up("before the first piece");
  Matrix first = begin(0, "after one that was given up");
  use(0, first, *experts[0]);
  memory.end_read(0);
  Matrix second = begin(1, "under other addresses, while the slot is being used");
  experts[1]->load_pieces(second, false, 1);
  give_up("after the first piece");
  Matrix third = begin(2, "while the slot is being written");
  use(1, third, *experts[2]);
  begin(0, "of a slot whose use has failed");
  give_up("while the slot may be in use");
  uses.check("uses before loads");
}

std::string code_of(const std::exception_ptr& thrown) {
  try {
    if (thrown != nullptr) std::rethrow_exception(thrown);
  } catch (const Error& error) {
    return name_of(error.code());
  }
  return "";
}

// Each of the calls that map a slot's two tensors fails in turn: all writers get the error, nothing is lost, and the slot works
// again.
void a_slot_that_cannot_move(Devices& devices, int failing_call) {
  const StandIn* const stand_in = StandIn::get();
  if (stand_in == nullptr || !devices.cuda->info().paged_experts) return;
  Uses uses(devices, 2, 2, 2, 3);
  ExpertMemory& memory = *uses.memory;
  const auto& experts = uses.experts;
  const auto use = [&](int64_t row, int slot, size_t expert, bool from_gate_up) {
    const ExpertPages pages = memory.begin_load(slot, static_cast<int64_t>(expert));
    Matrix matrix = small_matrix(from_gate_up ? pages.gate_up : pages.down);
    experts[expert]->load(matrix, true);
    memory.end_load(slot, true);
    memory.begin_read(slot);
    uses.use(row, matrix, *experts[expert]);
    memory.end_read(slot);
    return pages.gate_up.data;
  };
  const void* const first = use(0, 0, 0, true);
  const ExpertPages wanted = memory.begin_load(0, 1);
  Matrix matrix = small_matrix(wanted.gate_up);
  stand_in->fail_mapping(failing_call);
  for (const std::exception_ptr& thrown : experts[1]->load_pieces(matrix, false, LoadedExpert::kPieces)) {
    expect(code_of(thrown) == name_of(ErrorCode::device_out_of_memory),
           "a slot that cannot move: a write says '" + code_of(thrown) + "'");
  }
  expect(memory.state(0) == PageState::unmapped, "the state of a slot that could not move");
  expect(memory.begin_load(1, 1).gate_up.data != wanted.gate_up.data, "another slot gets the addresses before the load has ended");
  memory.end_load(1, false);
  memory.end_load(0, false);
  // Both places are free again, for this slot and for others.
  expect(use(1, 1, 1, false) == wanted.gate_up.data && use(2, 0, 0, false) == first, "addresses after a slot could not move");
  memory.begin_load(0, kNoExpert);
  stand_in->fail_mapping(failing_call);
  memory.end_load(0, true);
  expect(memory.state(0) == PageState::unmapped, "a slot that could not move at the end of its load");
  try {
    memory.begin_read(0);
    throw Failure("a slot that could not move is read");
  } catch (const Error& error) {
    expect(error.code() == ErrorCode::device_out_of_memory,
           std::string("reading a slot that could not move says ") + name_of(error.code()));
  }
  expect(use(2, 0, 0, true) == first, "a slot that could not move serves again");
  uses.check("uses around slots that could not move");
}

}  // namespace

void test_expert_paging(Devices& devices) {
  for (const int64_t experts : {0, 4}) reads_and_writes_keep_their_order(devices, experts);
  uses_without_end_are_waited_for(devices);
  for (const int64_t experts : {0, 2}) SlotsSideBySide(devices, experts).run();
  who_asks_calls_nothing(devices);
  for (const int failing_call : {0, 1, 2, 3}) a_slot_that_cannot_move(devices, failing_call);
}

}  // namespace odmoe::cuda_test
