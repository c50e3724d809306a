#include "host_copies.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "cuda_error.h"

namespace odmoe::cuda {
namespace {

uint64_t bytes_of(const SpacedRows& rows) { return static_cast<uint64_t>(rows.count) * rows.row_bytes; }

// Cuts the rows into pieces that fit the bounce buffer. Only a piece of a single row may be larger.
std::vector<SpacedRows> cut(std::span<const SpacedRows> pieces) {
  std::vector<SpacedRows> small;
  for (const SpacedRows& piece : pieces) {
    if (piece.row_bytes == 0) continue;
    const auto most = std::max<int64_t>(1, static_cast<int64_t>(kBounceBytes / piece.row_bytes));
    for (int64_t done = 0; done < piece.count; done += most) {
      small.push_back(piece);
      small.back().first = static_cast<uint8_t*>(piece.first) + static_cast<uint64_t>(done) * piece.pitch_bytes;
      small.back().count = std::min(most, piece.count - done);
    }
  }
  return small;
}

// Calls copy(pieces, their bytes) for as many pieces at a time as fit the bounce buffer.
template <typename Copy>
void copy_in_parts(std::span<const SpacedRows> pieces, Copy copy) {
  const std::vector<SpacedRows> small = cut(pieces);
  for (size_t begin = 0, end = 0; begin < small.size(); begin = end) {
    uint64_t bytes = 0;
    while (end < small.size() && (end == begin || bytes + bytes_of(small[end]) <= kBounceBytes)) bytes += bytes_of(small[end++]);
    copy(std::span(small).subspan(begin, end - begin), bytes);
  }
}

}  // namespace

HostCopies::HostCopies(const DeviceContext& context) : context_(context), stream_(context.compute_stream()) {
  check(cudaEventCreateWithFlags(&read_, cudaEventDisableTiming), "creating an event");
}

HostCopies::~HostCopies() { cudaEventDestroy(read_); }

uint8_t* HostCopies::bounce(uint64_t bytes) {
  if (used_ + bytes > kBounceBytes) {
    check(cudaEventSynchronize(read_), "waiting for a copy to the device");
    used_ = 0;
  }
  uint8_t* const room = bounce_.reserve(std::max(bytes, kBounceBytes)) + used_;
  used_ += bytes;
  return room;
}

void HostCopies::await_copies() {
  check(cudaStreamSynchronize(stream_), "waiting for the device");
  used_ = 0;
}

// The source is pageable memory, which the caller reuses at once. The driver has copied it by then, unless the device itself can
// read such memory and the driver allows that.
void HostCopies::to_device(void* device, const void* host, uint64_t bytes) {
  if (bytes == 0) return;
  check(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, stream_), "copying to the device");
  if (context_.reads_pageable_memory()) check(cudaStreamSynchronize(stream_), "copying to the device");
}

void HostCopies::to_host(void* host, const void* device, uint64_t bytes) {
  if (bytes == 0) return;
  if (bytes > kBounceBytes) {
    check(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, stream_), "copying from the device");
    check(cudaStreamSynchronize(stream_), "waiting for the device");
    return;
  }
  const std::lock_guard lock(mutex_);
  uint8_t* const pinned = bounce(bytes);
  check(cudaMemcpyAsync(pinned, device, bytes, cudaMemcpyDeviceToHost, stream_), "copying from the device");
  await_copies();
  std::memcpy(host, pinned, bytes);
}

void HostCopies::scatter(std::span<const SpacedRows> pieces, const void* host) {
  const std::lock_guard lock(mutex_);
  const auto* from = static_cast<const uint8_t*>(host);
  copy_in_parts(pieces, [&](std::span<const SpacedRows> part, uint64_t bytes) {
    const auto* pinned = static_cast<const uint8_t*>(std::memcpy(bounce(bytes), from, bytes));
    for (const SpacedRows& rows : part) {
      check(cudaMemcpy2DAsync(rows.first, rows.pitch_bytes, pinned, rows.row_bytes, rows.row_bytes, static_cast<size_t>(rows.count),
                              cudaMemcpyHostToDevice, stream_),
            "copying rows to the device");
      pinned += bytes_of(rows);
    }
    check(cudaEventRecord(read_, stream_), "recording an event");
    from += bytes;
  });
}

void HostCopies::gather(void* host, std::span<const SpacedRows> pieces) {
  const std::lock_guard lock(mutex_);
  auto* to = static_cast<uint8_t*>(host);
  copy_in_parts(pieces, [&](std::span<const SpacedRows> part, uint64_t bytes) {
    uint8_t* const pinned = bounce(bytes);
    uint64_t done = 0;
    for (const SpacedRows& rows : part) {
      check(cudaMemcpy2DAsync(pinned + done, rows.row_bytes, rows.first, rows.pitch_bytes, rows.row_bytes,
                              static_cast<size_t>(rows.count), cudaMemcpyDeviceToHost, stream_),
            "copying rows from the device");
      done += bytes_of(rows);
    }
    await_copies();
    std::memcpy(to, pinned, bytes);
    to += bytes;
  });
}

}  // namespace odmoe::cuda
