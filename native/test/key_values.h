// Shared tests of the backends: a sequence's keys and values, and the copies that it uses, against plain rows on the host.
#pragma once
#include <cstdint>
#include <memory>
#include <random>

#include "odmoe/backend.h"

namespace odmoe::test {

// Copies distant rows to their places and back, in small and large pieces.
void check_spaced_rows(const std::shared_ptr<Backend>& backend, std::mt19937& random);
// Rows that are written, or stored by a pass, are read back unchanged, across blocks and for all shapes of models.
void check_key_values(std::unique_ptr<Backend> backend, std::mt19937& random);
// Two sequences are written and read by two threads while operators run.
void check_key_values_of_threads(std::unique_ptr<Backend> backend, std::mt19937& random);

// Sequences that share blocks have the same contents as separate ones, and take no more memory than they report. Returns how often
// the backend's budget refused memory.
int check_forks(std::unique_ptr<Backend> backend, std::mt19937& random);

}  // namespace odmoe::test
