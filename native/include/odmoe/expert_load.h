// Requests to the expert loader, and their results (ZipMoE, sections 3.2 and 3.3).
// An expert has two parts: its exponents (E, plane 0 of each matrix) and its signs and mantissas (SM, all other planes). Each part
// is read from storage, or taken from an entry where an earlier load left it. The parts of a sliced expert (odmoe/slices.h) are its
// upper slices (plane 0) and its lower slices; one part may be left out of a load.
#pragma once
#include <array>
#include <cstdint>
#include <exception>
#include <optional>
#include <string>

namespace odmoe {

// The way in which reads reach storage: the kernel's queue, or threads that wait for one read each.
enum class StorageWay : uint8_t { threads, io_uring };
enum class WantedStorageWay : uint8_t { automatic, threads, io_uring };

// Most reads that may be in flight at a time.
inline constexpr int kReadDepthLimit = 16;

// The way in which a loader reads.
struct StorageReads {
  StorageWay way = StorageWay::threads;
  int depth = 1;
  bool direct = false;          // reads past the page cache were asked for
  bool direct_refused = false;  // a file system refused that: its files are read through the page cache
  std::string ring_refusal;     // why io_uring was wanted and is not used
};

struct LoaderOptions {
  int decompression_threads = 0;   // 0: the machine decides
  bool direct_io = false;          // read past the page cache, where the file system can
  double storage_bytes_per_s = 0;  // reads are slowed down to this rate, one at a time; 0: no limit
  int read_depth = 1;              // reads in flight at a time, 1 to kReadDepthLimit
  WantedStorageWay storage_way = WantedStorageWay::automatic;
  int exponent_entries = 0;
  int sign_mantissa_entries = 0;
  // Each is the maximum over all experts. expert_*: bytes of all chunks of the part. shard_*: bytes of one coded chunk of the part;
  // 0 where the part is stored raw. A chunk's range is rounded outwards to 4096-byte boundaries.
  uint64_t expert_exponent_bytes = 0;
  uint64_t expert_sign_mantissa_bytes = 0;
  uint64_t shard_exponent_bytes = 0;
  uint64_t shard_sign_mantissa_bytes = 0;
  bool packs = false;   // slots have room to pack experts (ExpertSlots::pack)
  int64_t experts = 0;  // in all layers, if each is to have its own address (odmoe/expert_memory.h); 0: none has
};

// The parts into which an expert's stored bytes are cut; shared/model/expert-parts.ts has the same list.
enum class Part : uint8_t { exponents, sign_mantissa };
inline constexpr size_t kParts = 2;

enum class PartOrigin : uint8_t { storage, entry, not_wanted };

struct PartPlan {
  PartOrigin from = PartOrigin::storage;
  int entry = -1;  // holds the part, or will cache it; -1: not cached, or not wanted
};

// Place of one matrix among all matrices that are to be loaded (ZipMoE, Algorithm 1); smaller first.
struct TaskOrder {
  int64_t block = 0;
  int64_t position = 0;
};

inline constexpr size_t kExpertTensors = 3;  // gate, up, down
using ExpertOrder = std::array<TaskOrder, kExpertTensors>;

struct LoadRequest {
  PartPlan exponents;
  PartPlan sign_mantissa;
  std::optional<ExpertOrder> order;  // absent: behind all loads with an order, in the order of calls
  bool urgent = false;               // before all loads that are not urgent
  int64_t expert = -1;               // index among LoaderOptions::experts; -1: not given
  int64_t held = -1;                 // the number under which host memory may hold the expert (ExpertSlots::hold); -1: none
};

struct LoadOutcome {
  bool loaded = false;  // false: cancelled; the wanted parts are not in the slot
  uint64_t read_bytes = 0;
  uint64_t host_bytes = 0;  // bytes from host memory in place of storage
  double load_ms = 0;       // from the call to its end
  // Storage time: reads of several loads that are in flight together share it among them.
  double exponent_read_ms = 0;
  double sign_mantissa_read_ms = 0;
  double decompress_ms = 0;  // all decompression threads: checking, decoding, writing to the slot
  // The entry of the request holds the whole part, checked.
  bool exponents_kept = false;
  bool sign_mantissa_kept = false;
};

class LoadListener {
 public:
  virtual ~LoadListener() = default;
  // Called once, from any thread, possibly before load() or cancel() has returned; the listener is not used afterwards. With an
  // error no entry was filled, and the other figures of the outcome mean nothing.
  virtual void settled(const LoadOutcome& outcome, std::exception_ptr error) noexcept = 0;
};

}  // namespace odmoe
