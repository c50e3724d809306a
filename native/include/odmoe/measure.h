// Best speeds of this machine's memory and processor. Speeds of decode and prefill are reported relative to them.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

namespace odmoe {

// Reads a buffer far larger than the caches with the widest instruction set.
class ReadMeter {
 public:
  // Bytes of the buffer.
  static constexpr uint64_t kBytes = uint64_t{256} << 20;
  // threads 0: as many as the process may use. Throws Error(ErrorCode::device_out_of_memory) when the machine has no room for the buffer.
  explicit ReadMeter(int threads);
  ~ReadMeter();
  ReadMeter(const ReadMeter&) = delete;
  ReadMeter& operator=(const ReadMeter&) = delete;
  // Bytes per second, measured by one read of the whole buffer.
  double read_bytes_per_s();

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

// Runs independent fused multiply-adds on all threads for about a millisecond.
class FmaMeter {
 public:
  // threads 0: as many as the process may use. Throws DEVICE_UNAVAILABLE.
  FmaMeter(int threads, const std::string& instruction_set);
  ~FmaMeter();
  FmaMeter(const FmaMeter&) = delete;
  FmaMeter& operator=(const FmaMeter&) = delete;
  // FP32 operations per second; a fused multiply-add counts as two.
  double flop_per_s();

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

// Measures for about `seconds` each, with `threads` threads (0: as many as the process may use) of the widest instruction set:
// bytes per second read from a buffer far larger than the caches, and FP32 operations per second (a fused multiply-add is two).
// Throws Error(ErrorCode::device_out_of_memory) when the machine has no room for the buffer.
void measure_machine(int threads, double seconds, double* read_bytes_per_s, double* fma_flop_per_s);

}  // namespace odmoe
