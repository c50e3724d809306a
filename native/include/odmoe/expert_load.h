// What is asked of the expert loader, and what it answers (ZipMoE, sections 3.2 and 3.3).
// An expert has two parts: its exponents (E, plane 0 of each matrix) and its signs and mantissas (SM, all other planes). Each is
// read from storage, or taken from an entry that an earlier load has left it in.
#pragma once
#include <array>
#include <cstdint>
#include <exception>
#include <optional>
#include <string>

namespace odmoe {

// How reads are put to storage: by the kernel's queue, or by threads that wait for one each.
enum class StorageWay : uint8_t { threads, io_uring };
enum class WantedStorageWay : uint8_t { automatic, threads, io_uring };

// Reads that may be in flight at a time, at most.
inline constexpr int kReadDepthLimit = 16;

// How a loader reads.
struct StorageReads {
  StorageWay way = StorageWay::threads;
  int depth = 1;
  bool direct = false;          // past the page cache was asked for
  bool direct_refused = false;  // and some file system refused: files there are read through the page cache
  std::string ring_refusal;     // why io_uring was wanted and is not used
};

struct LoaderOptions {
  int decompression_threads = 0;   // 0: by the machine
  bool direct_io = false;          // past the page cache, where the file system can
  double storage_bytes_per_s = 0;  // reads are held back to this rate, and come one at a time; 0: not
  int read_depth = 1;              // reads in flight at a time, 1 to kReadDepthLimit
  WantedStorageWay storage_way = WantedStorageWay::automatic;
  int exponent_entries = 0;
  int sign_mantissa_entries = 0;
  // The largest over all experts. Of an expert: the bytes of all chunks of the part. Of a shard: those of its one chunk of the
  // part that is coded; 0 where the part is stored raw. Each chunk counts from and to the 4096-byte boundaries around it.
  uint64_t expert_exponent_bytes = 0;
  uint64_t expert_sign_mantissa_bytes = 0;
  uint64_t shard_exponent_bytes = 0;
  uint64_t shard_sign_mantissa_bytes = 0;
  bool packs = false;   // slots have room to pack experts (ExpertSlots::pack)
  int64_t experts = 0;  // of all layers, where each is to have an address of its own (odmoe/expert_memory.h); 0: none has
};

enum class PartOrigin : uint8_t { storage, entry };

struct PartPlan {
  PartOrigin from = PartOrigin::storage;
  int entry = -1;  // that holds the part, or is to keep it; -1: not kept
};

// Place of one matrix among all that are to be loaded (ZipMoE, Algorithm 1); smaller first.
struct TaskOrder {
  int64_t block = 0;
  int64_t position = 0;
};

inline constexpr size_t kExpertTensors = 3;  // gate, up, down
using ExpertOrder = std::array<TaskOrder, kExpertTensors>;

struct LoadRequest {
  PartPlan exponents;
  PartPlan sign_mantissa;
  std::optional<ExpertOrder> order;  // absent: after all that have one, in the order asked for
  bool urgent = false;               // before all that are not
  int64_t expert = -1;               // which of LoaderOptions::experts; -1: not told
  int64_t held = -1;                 // the number under which host memory may hold the expert (ExpertSlots::hold); -1: none
};

struct LoadOutcome {
  bool loaded = false;  // false: cancelled; the slot is empty
  uint64_t read_bytes = 0;
  uint64_t host_bytes = 0;  // taken from host memory in place of storage
  double load_ms = 0;       // from being asked for
  // Time of the storage: where reads of several loads are in flight together, each has its share of it.
  double exponent_read_ms = 0;
  double sign_mantissa_read_ms = 0;
  double decompress_ms = 0;  // of all decompression threads: checking, decoding, writing to the slot
  // The entry named in the request holds the whole part, checked.
  bool exponents_kept = false;
  bool sign_mantissa_kept = false;
};

class LoadListener {
 public:
  virtual ~LoadListener() = default;
  // Called once, from any thread, possibly before load() or cancel() has returned; not used afterwards. With an error nothing was
  // kept and the outcome's other figures say nothing.
  virtual void settled(const LoadOutcome& outcome, std::exception_ptr error) noexcept = 0;
};

}  // namespace odmoe
