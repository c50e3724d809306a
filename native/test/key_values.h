// A sequence's keys and values, and the copies under them, against plain rows on the host: what the tests of the backends share.
#pragma once
#include <cstdint>
#include <memory>
#include <random>

#include "odmoe/backend.h"

namespace odmoe::test {

// Rows that stand apart go where they belong and come back, in pieces small and large.
void check_spaced_rows(const std::shared_ptr<Backend>& backend, std::mt19937& random);
// Rows that are written, and rows that a pass stores, are those that are read, across blocks and whatever the model's shape.
void check_key_values(std::unique_ptr<Backend> backend, std::mt19937& random);
// Two sequences are written and read by two threads while operators run.
void check_key_values_of_threads(std::unique_ptr<Backend> backend, std::mt19937& random);

// Sequences that share blocks hold what they would hold alone, and no more memory than they say. Returns how often the backend's budget
// refused some.
int check_forks(std::unique_ptr<Backend> backend, std::mt19937& random);

}  // namespace odmoe::test
