// Stored bytes of experts that a worker keeps in host memory, beside its device memory: a load whose expert is there reads nothing
// from storage. The bytes are as they lie in the pack, and have been checked against their checksums once, when they were filled in.
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

// Both parts of one expert, each laid out as in an entry (load_plan.h). Whoever holds it may read it, also once it has been dropped.
class HostChunks {
 public:
  using PartSizes = std::array<uint64_t, kParts>;

  // Pinned where the backend asks for that, else plain memory that goes back to the system with the chunks. `fingerprints`: of the
  // parts (load_entries.h). Throws DEVICE_OUT_OF_MEMORY.
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

// Which experts are held, by the numbers they are registered under, and which holds are still wanted. From any thread.
class HostChunkTable {
 public:
  // Holds are numbered in the order they are asked for; those that are cancelled are all up to one.
  uint64_t new_ticket() { return ++tickets_; }
  void cancel_tickets() { cancelled_ = tickets_.load(); }
  bool is_wanted(uint64_t ticket) const { return ticket > cancelled_; }

  // Takes the place of what was held of the expert.
  void put(int64_t expert, std::shared_ptr<const HostChunks> chunks);
  // Null: it is not held.
  std::shared_ptr<const HostChunks> find(int64_t expert) const;
  // The memory goes back as soon as no load reads it.
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
