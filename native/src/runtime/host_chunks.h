// Stored bytes of experts that a worker holds in host memory, beside its device memory: a load of such an expert reads nothing from
// storage. The bytes are the same as in the pack, and their checksums were checked once, when they were filled in.
#pragma once
#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "load_plan.h"
#include "odmoe/device.h"

namespace odmoe {

// Both parts of one expert, each with the layout of an entry (load_plan.h). An owner of a shared pointer may read it, even after it
// was dropped.
class HostChunks {
 public:
  using PartSizes = std::array<uint64_t, kParts>;

  // Memory is pinned where the backend asks for that, otherwise plain memory that returns to the system with the chunks.
  // `fingerprints`: those of the parts (load_entries.h). Throws DEVICE_OUT_OF_MEMORY.
  HostChunks(const std::shared_ptr<Backend>& backend, const PartSizes& part_bytes, const PartSizes& fingerprints);
  ~HostChunks();
  HostChunks(const HostChunks&) = delete;
  HostChunks& operator=(const HostChunks&) = delete;

  uint8_t* part(Part part) const { return parts_[index_of(part)]; }
  bool is_of(Part part, uint64_t fingerprint) const { return fingerprints_[index_of(part)] == fingerprint; }
  uint64_t bytes() const { return bytes_; }

 private:
  uint64_t bytes_;
  PartSizes fingerprints_;
  DeviceMemory pinned_;
  uint8_t* plain_ = nullptr;
  std::array<uint8_t*, kParts> parts_ = {};
};

// The held experts, by their registered numbers, and the holds that are still wanted. May be called from any thread.
class HostChunkTable {
 public:
  // Holds are numbered in the order of their requests; a cancel applies to all numbers up to the newest one.
  uint64_t new_ticket() { return ++tickets_; }
  void cancel_tickets() { cancelled_ = tickets_.load(); }
  bool is_wanted(uint64_t ticket) const { return ticket > cancelled_; }

  // Replaces the expert's held chunks, if there are any.
  void put(int64_t expert, std::shared_ptr<const HostChunks> chunks);
  // Null: the expert is not held.
  std::shared_ptr<const HostChunks> find(int64_t expert) const;
  // The memory is freed as soon as no load reads it.
  void drop(int64_t expert);
  uint64_t bytes() const;

 private:
  mutable std::mutex mutex_;
  std::map<int64_t, std::shared_ptr<const HostChunks>> held_;
  uint64_t bytes_ = 0;
  std::atomic<uint64_t> tickets_ = 0;
  std::atomic<uint64_t> cancelled_ = 0;
};

}  // namespace odmoe
