// Keys and values between host and device, on the processor.
#include "key_values.h"

#include "native_tests.h"

namespace odmoe::test {
namespace {

constexpr uint32_t kSeed = 61;

void spaced_rows() {
  std::mt19937 random(kSeed);
  check_spaced_rows(open_backend("auto"), random);
}

void written_rows_are_read() {
  std::mt19937 random(kSeed);
  check_key_values(open_backend("auto", 2), random);
}

void threads_do_not_meet() {
  std::mt19937 random(kSeed);
  check_key_values_of_threads(open_backend("auto", 2), random);
}

void forks_are_apart() {
  std::mt19937 random(kSeed);
  check(check_forks(open_backend("auto", 2), random) == 0, "memory is refused without a budget");
  check(check_forks(open_backend("auto", 2, 1 << 20), random) > 0, "the budget was never used up");
}

}  // namespace

void add_key_value_cases(std::vector<Case>& cases) {
  cases.push_back({"key values: rows that stand apart are copied", spaced_rows});
  cases.push_back({"key values: rows of a sequence are read as written", written_rows_are_read});
  cases.push_back({"key values: sequences that share blocks are apart", forks_are_apart});
  cases.push_back({"key values: threads write and read at once", threads_do_not_meet});
}

}  // namespace odmoe::test
