#include "odmoe/measure.h"

#include <algorithm>
#include <atomic>
#include <chrono>

#include "arena.h"
#include "kernel_table.h"
#include "thread_pool.h"

namespace odmoe {
namespace {

// Far larger than the caches of any processor this is meant for.
constexpr uint64_t kBufferBytes = uint64_t{256} << 20;
constexpr uint64_t kPieceBytes = uint64_t{1} << 20;
constexpr int64_t kIterations = 20000;

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double read_rate(const cpu::KernelTable& kernels, cpu::ThreadPool& pool, uint8_t* data, double seconds) {
  std::atomic<uint64_t> check{0};
  double best = 0;
  const auto begin = std::chrono::steady_clock::now();
  do {
    const auto start = std::chrono::steady_clock::now();
    pool.run(static_cast<int64_t>(kBufferBytes / kPieceBytes), [&](int64_t piece, int) {
      check.fetch_xor(kernels.read_bytes(data + static_cast<uint64_t>(piece) * kPieceBytes, kPieceBytes));
    });
    best = std::max(best, static_cast<double>(kBufferBytes) / seconds_since(start));
  } while (seconds_since(begin) < seconds);
  return best;
}

double fma_rate(const cpu::KernelTable& kernels, cpu::ThreadPool& pool, double seconds) {
  const int threads = pool.threads();
  double best = 0;
  const auto begin = std::chrono::steady_clock::now();
  do {
    std::atomic<uint64_t> operations{0};
    const auto start = std::chrono::steady_clock::now();
    pool.run(threads * 16, [&](int64_t, int) {
      float sink[3] = {0.999f, 0.001f, 0.0f};
      operations.fetch_add(static_cast<uint64_t>(kernels.multiply_add(kIterations, sink)));
    });
    best = std::max(best, static_cast<double>(operations.load()) / seconds_since(start));
  } while (seconds_since(begin) < seconds);
  return best;
}

}  // namespace

void measure_machine(int threads, double seconds, double* read_bytes_per_s, double* fma_flop_per_s) {
  const cpu::KernelTable& kernels = **cpu::usable_kernels();
  cpu::ThreadPool pool(threads > 0 ? threads : cpu::usable_threads());
  cpu::Arena arena(0);
  DeviceBuffer buffer = arena.allocate(kBufferBytes);
  uint8_t* const data = static_cast<uint8_t*>(buffer.data);
  // Pages that were never written are all one page of zeros.
  pool.run(static_cast<int64_t>(kBufferBytes / kPieceBytes), [&](int64_t piece, int) {
    uint8_t* const start = data + static_cast<uint64_t>(piece) * kPieceBytes;
    for (uint64_t i = 0; i < kPieceBytes; i += 64) start[i] = static_cast<uint8_t>(i >> 6);
  });
  *read_bytes_per_s = read_rate(kernels, pool, data, seconds);
  *fma_flop_per_s = fma_rate(kernels, pool, seconds);
  arena.release(buffer);
}

}  // namespace odmoe
