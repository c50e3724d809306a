#include "odmoe/measure.h"

#include <algorithm>
#include <atomic>
#include <chrono>

#include "arena.h"
#include "kernel_table.h"
#include "thread_pool.h"

namespace odmoe {
namespace {

constexpr int64_t kPieceBytes = int64_t{1} << 20;
constexpr int64_t kPieces = static_cast<int64_t>(ReadMeter::kBytes) / kPieceBytes;
constexpr int64_t kIterations = 20000;

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

struct ReadMeter::Parts {
  explicit Parts(int threads) : pool(threads), buffer(arena.allocate(ReadMeter::kBytes)) {}
  ~Parts() { arena.release(buffer); }
  Parts(const Parts&) = delete;
  Parts& operator=(const Parts&) = delete;
  uint8_t* piece(int64_t index) const { return static_cast<uint8_t*>(buffer.data) + index * kPieceBytes; }

  const cpu::KernelTable& kernels = **cpu::usable_kernels();
  cpu::ThreadPool pool;
  cpu::Arena arena{0};
  DeviceBuffer buffer;
};

ReadMeter::ReadMeter(int threads) : parts_(std::make_unique<Parts>(threads > 0 ? threads : cpu::usable_threads())) {
  // The buffer is written first, because the system maps unwritten pages to one page of zeros.
  parts_->pool.run(kPieces, [this](int64_t index, int) {
    uint8_t* const start = parts_->piece(index);
    for (int64_t i = 0; i < kPieceBytes; i += 64) start[i] = static_cast<uint8_t>(i >> 6);
  });
}

ReadMeter::~ReadMeter() = default;

double ReadMeter::read_bytes_per_s() {
  std::atomic<uint64_t> check{0};
  const auto start = std::chrono::steady_clock::now();
  parts_->pool.run(kPieces, [&](int64_t index, int) {
    check.fetch_xor(parts_->kernels.read_bytes(parts_->piece(index), static_cast<uint64_t>(kPieceBytes)));
  });
  return static_cast<double>(ReadMeter::kBytes) / seconds_since(start);
}

struct FmaMeter::Parts {
  const cpu::KernelTable& kernels;
  cpu::ThreadPool pool;
};

FmaMeter::FmaMeter(int threads, const std::string& instruction_set)
    : parts_(new Parts{cpu::choose_kernels(instruction_set), cpu::ThreadPool(threads > 0 ? threads : cpu::usable_threads())}) {}

FmaMeter::~FmaMeter() = default;

double FmaMeter::flop_per_s() {
  std::atomic<uint64_t> operations{0};
  const auto start = std::chrono::steady_clock::now();
  parts_->pool.run(parts_->pool.threads() * 16, [&](int64_t, int) {
    float sink[3] = {0.999f, 0.001f, 0.0f};
    operations.fetch_add(static_cast<uint64_t>(parts_->kernels.multiply_add(kIterations, sink)));
  });
  return static_cast<double>(operations.load()) / seconds_since(start);
}

void measure_machine(int threads, double seconds, double* read_bytes_per_s, double* fma_flop_per_s) {
  const auto best_of = [seconds](auto&& measure) {
    double best = 0;
    const auto begin = std::chrono::steady_clock::now();
    do {
      best = std::max(best, measure());
    } while (seconds_since(begin) < seconds);
    return best;
  };
  {
    ReadMeter meter(threads);
    *read_bytes_per_s = best_of([&] { return meter.read_bytes_per_s(); });
  }
  FmaMeter meter(threads, "auto");
  *fma_flop_per_s = best_of([&] { return meter.flop_per_s(); });
}

}  // namespace odmoe
