#include "load_memory.h"

#include <algorithm>
#include <thread>

#include "load_staging.h"
#include "piece_recovery.h"

namespace odmoe {
namespace {

constexpr int kAutomaticThreadLimit = 8;

uint64_t align_up(uint64_t bytes) { return (bytes + kReadAlignment - 1) / kReadAlignment * kReadAlignment; }

uint64_t times(int count, uint64_t bytes) { return static_cast<uint64_t>(count) * bytes; }

}  // namespace

int decompression_threads(const LoaderOptions& options) {
  if (options.decompression_threads > 0) return options.decompression_threads;
  const int processors = static_cast<int>(std::thread::hardware_concurrency());
  return std::clamp(processors / 2, 1, kAutomaticThreadLimit);
}

int read_depth(const LoaderOptions& options) {
  return options.storage_bytes_per_s > 0 ? 1 : std::clamp(options.read_depth, 1, kReadDepthLimit);
}

LoadMemoryLayout load_memory_layout(const ExpertShape& shape, const LoaderOptions& options) {
  const int64_t hidden = shape.hidden_size;
  const int64_t intermediate = shape.glu.intermediate_size;
  LoadMemoryLayout layout;
  layout.threads = decompression_threads(options);
  layout.limits.shard_buffer_bytes = align_up(options.shard_exponent_bytes) + align_up(options.shard_sign_mantissa_bytes);
  layout.limits.piece_buffer_bytes = std::max(piece_buffer_bytes(intermediate, hidden), piece_buffer_bytes(hidden, intermediate));
  layout.limits.entry_bytes = {align_up(options.expert_exponent_bytes), align_up(options.expert_sign_mantissa_bytes)};
  layout.shard_buffers = shard_buffer_count(layout.threads, read_depth(options));
  layout.piece_buffers = piece_buffer_count(layout.threads, read_depth(options));
  if (layout.limits.shard_buffer_bytes > 0) {
    layout.scratch_bytes = std::max(decoded_block_bytes(intermediate, hidden), decoded_block_bytes(hidden, intermediate));
  }
  layout.shared_bytes = times(layout.shard_buffers, layout.limits.shard_buffer_bytes) +
                        times(layout.piece_buffers, layout.limits.piece_buffer_bytes) +
                        times(layout.threads, kCodedPlanes * layout.scratch_bytes) +
                        kReadAlignment;  // the device's memory may not begin at a boundary
  layout.total_bytes = layout.shared_bytes + times(options.exponent_entries, layout.limits.entry_bytes[0]) +
                       times(options.sign_mantissa_entries, layout.limits.entry_bytes[1]);
  return layout;
}

LoadMemory::LoadMemory(const std::shared_ptr<Backend>& backend, const LoadMemoryLayout& layout, const LoaderOptions& options)
    : memory_(backend, layout.total_bytes, DeviceMemory::Kind::staging),
      thread_scratch_bytes_(kCodedPlanes * layout.scratch_bytes) {
  uint8_t* next = memory_.bytes();
  const uint64_t beyond = reinterpret_cast<uintptr_t>(next) % kReadAlignment;
  if (beyond != 0) next += kReadAlignment - beyond;
  const auto take = [&next](uint64_t bytes) {
    uint8_t* const taken = next;
    next += bytes;
    return taken;
  };
  shard_buffers_ = take(times(layout.shard_buffers, layout.limits.shard_buffer_bytes));
  piece_buffers_ = take(times(layout.piece_buffers, layout.limits.piece_buffer_bytes));
  scratch_ = take(times(layout.threads, thread_scratch_bytes_));
  entries_[index_of(Part::exponents)] = take(times(options.exponent_entries, layout.limits.entry_bytes[0]));
  entries_[index_of(Part::sign_mantissa)] = take(times(options.sign_mantissa_entries, layout.limits.entry_bytes[1]));
}

}  // namespace odmoe
