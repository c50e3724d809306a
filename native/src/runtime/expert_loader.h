// Loads experts into slots: one thread issues reads from storage, several at a time; others decompress the bytes and write them to
// the slots (ZipMoE, section 3.3). Several experts may be loading at a time; their order decides which operation comes next.
#pragma once
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "host_chunks.h"
#include "load_entries.h"
#include "load_memory.h"
#include "load_schedule.h"
#include "odmoe/expert.h"
#include "odmoe/expert_load.h"
#include "piece_recovery.h"
#include "storage_pacer.h"
#include "storage_reader.h"

namespace odmoe {

inline const TensorSource& tensor_of(const ExpertSource& source, size_t tensor) {
  return tensor == 0 ? source.gate : tensor == 1 ? source.up : source.down;
}

// The constructor takes all memory; once each slot has been loaded once, a load allocates nothing. Methods may be called from any
// thread; the destructor must not run on a thread that calls listeners. It cancels running loads and waits for them.
class ExpertLoader {
 public:
  // `slots`: most experts that can be loading at a time. Throws DEVICE_OUT_OF_MEMORY.
  // `queue`: null means the queue that the options select.
  ExpertLoader(std::shared_ptr<Backend> backend, const ExpertShape& shape, int slots, const LoaderOptions& options,
               std::unique_ptr<StorageQueue> queue = nullptr);
  ~ExpertLoader();
  ExpertLoader(const ExpertLoader&) = delete;
  ExpertLoader& operator=(const ExpertLoader&) = delete;

  // Begins to load the expert into the slot's matrices. The slot must have no running load; matrices and listener must stay until
  // the listener is called. The matrices are complete only if the outcome says "loaded". Throws the errors of planning the load:
  // PACK_CORRUPT or MODEL_CORRUPT for sizes that contradict each other, INTERNAL for an entry that cannot be used and for sizes
  // over the limits. The listener is then not called. It gets STORAGE_FAILED, PACK_CORRUPT and MODEL_CORRUPT for faults of the
  // files or their contents.
  // `host`: the expert's chunks in host memory, or null; parts that no entry will cache come from there.
  void load(int slot, ExpertMatrices& matrices, const ExpertSource& source, const LoadRequest& request, LoadListener& listener,
            std::shared_ptr<const HostChunks> host = nullptr);

  // Allocates host memory and begins to read the expert into it: after all loads, and not while an urgent load is running. One fill
  // at a time, by one thread at a time. The returned chunks are complete once the outcome says "loaded". Throws the errors of
  // load(), and DEVICE_OUT_OF_MEMORY.
  std::shared_ptr<const HostChunks> fill(const ExpertSource& source, LoadListener& listener);
  void cancel_fill() { cancel(loads_.back()); }

  // These act on the slot's running load, and do nothing where there is none. cancel settles it at once, or after its current
  // operations.
  void cancel(int slot);
  void prioritize(int slot);
  void reorder(int slot, const std::optional<ExpertOrder>& order);

  StorageReads storage_reads() const;

 private:
  ExpertLoader(std::shared_ptr<Backend> backend, const ExpertShape& shape, int slots, const LoaderOptions& options,
               OpenedQueue queue);

  using Clock = std::chrono::steady_clock;
  using Lock = std::unique_lock<std::mutex>;

  struct Load : LoadTask {
    ExpertSource source;
    ExpertMatrices* matrices = nullptr;
    LoadListener* listener = nullptr;
    Clock::time_point start;
    LoadOutcome outcome;
    std::exception_ptr error;
    int running = 0;  // operations
    bool active = false;
    std::shared_ptr<const HostChunks> host;    // chunks that the load reads or fills
    std::array<uint8_t*, kParts> images = {};  // parts in host memory, used in place of an entry; null: the part is not there
  };

  // A read in flight.
  struct Flight {
    bool active = false;
    ReadOperation read;
    Clock::time_point start;
    bool after_idle = false;  // the reading thread was idle before
  };

  void start_threads();
  void stop_threads();
  void read_loop();
  void recover_loop(int thread);
  // Begins reads in their order until the limit of reads in flight is reached, or no possible read is left.
  void begin_reads(Lock& lock);
  void begin_read(size_t index, const ReadOperation& read, Lock& lock);
  void end_read(const ReadGoEnd& end, Lock& lock);
  // Gives each load its share of the time since the last call.
  void count_read_time(Clock::time_point now);
  // For storage with a limited rate: waits until such storage would have ended the read, or until the read is no longer wanted.
  void hold_back(const Flight& flight, uint64_t useful_bytes, Lock& lock);
  void wake_reads();
  void do_piece(const PieceOperation& operation, PieceRecovery& recovery, Lock& lock);

  // The load of a slot. Behind the slots' loads is the one that fills host memory.
  Load& load_at(int slot);
  // Resets a load that is not active and makes it a new one.
  void renew(Load& load, const ExpertSource& source, const LoadRequest& request, LoadListener& listener);
  void cancel(Load& load);
  // Lets a load take the parts that host memory holds from there.
  static void use_host(Load& load, std::shared_ptr<const HostChunks> host);
  // Plans the load; returns the bytes of each part in entries or host memory.
  HostChunks::PartSizes plan(Load& load) const;
  void start(Load& load);
  HolderMemory memory_of(const Load& load, size_t tensor, uint32_t piece) const;
  PartEntries& entries(Part part) { return entries_[index_of(part)]; }
  void begin_entries(Load& load);
  void begin_entry(Load& load, Part part);
  void end_entry(Load& load, Part part, bool complete);
  static bool is_whole(const Load& load, Part part);
  static void stop(Load& load, std::exception_ptr error);
  // Calls the listener, without the lock, once nothing is left to do for the load.
  void settle_if_over(Load& load, Lock& lock);

  const std::shared_ptr<Backend> backend_;
  const LoadMemoryLayout layout_;
  const LoadMemory memory_;
  mutable std::mutex mutex_;  // guards everything below except the contents of the memory
  std::condition_variable held_back_changed_;
  std::condition_variable pieces_changed_;
  BufferRing shard_buffers_;
  BufferRing piece_buffers_;
  std::array<PartEntries, kParts> entries_;
  std::vector<Load> loads_;  // by slot
  std::vector<LoadTask*> active_;
  uint64_t arrivals_ = 0;
  bool stopping_ = false;
  StorageReads reads_;
  std::vector<Flight> flights_;
  size_t in_flight_ = 0;
  bool reads_idle_ = true;
  Clock::time_point read_time_counted_{};
  StoragePacer pacer_;
  StorageReader reader_;  // only the reading thread uses it, except for wake()
  std::vector<std::thread> threads_;
};

}  // namespace odmoe
