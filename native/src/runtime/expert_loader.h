// Loads experts into slots: one thread has storage read, several reads at a time, others decompress what has been read and write it to
// the slots (ZipMoE, section 3.3). Several experts may be on their way at a time; which operation comes next follows from their order.
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

// All memory is taken when it is made; once each slot has been loaded, loading takes none from anywhere.
// Methods from any thread; the destructor from none that a listener is called on. It cancels what is being loaded and waits for it.
class ExpertLoader {
 public:
  // `slots`: how many experts can be on their way at a time. Throws DEVICE_OUT_OF_MEMORY.
  // `queue`: null for the one that the options ask for.
  ExpertLoader(std::shared_ptr<Backend> backend, const ExpertShape& shape, int slots, const LoaderOptions& options,
               std::unique_ptr<StorageQueue> queue = nullptr);
  ~ExpertLoader();
  ExpertLoader(const ExpertLoader&) = delete;
  ExpertLoader& operator=(const ExpertLoader&) = delete;

  // Begins to load the expert into the slot's matrices. The slot must have no load under way;
  // matrices and listener must stay until the listener is told. What the matrices hold is whole only when it is told "loaded".
  // Throws what planning the load throws: PACK_CORRUPT or MODEL_CORRUPT for sizes that contradict each other, INTERNAL for an
  // entry that cannot be used and for what does not fit. The listener is then not told anything.
  // It is told of STORAGE_FAILED, PACK_CORRUPT and MODEL_CORRUPT where the files or their contents are to blame.
  // `host`: what host memory holds of the expert, or null; parts that are not to be kept in an entry come from there.
  void load(int slot, ExpertMatrices& matrices, const ExpertSource& source, const LoadRequest& request, LoadListener& listener,
            std::shared_ptr<const HostChunks> host = nullptr);

  // Begins to read the expert into host memory, which it takes: after all loads, and not while an urgent one is under way. One at a
  // time, by one thread at a time. What is returned is whole once the listener is told "loaded". Throws as load(), and
  // DEVICE_OUT_OF_MEMORY.
  std::shared_ptr<const HostChunks> fill(const ExpertSource& source, LoadListener& listener);
  void cancel_fill() { cancel(loads_.back()); }

  // Of the load of the slot; nothing where there is none.
  // Settles it at once, or after the operations that are being done for it.
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
    std::shared_ptr<const HostChunks> host;    // read, or being filled
    std::array<uint8_t*, kParts> images = {};  // the parts that lie there, in place of an entry; null: it does not
  };

  // A read that is under way.
  struct Flight {
    bool active = false;
    ReadOperation read;
    Clock::time_point start;
    bool after_idle = false;  // there was nothing to read before
  };

  void start_threads();
  void stop_threads();
  void read_loop();
  void recover_loop(int thread);
  // Begins reads in their order until as many are in flight as may be, or none is left that can be done.
  void begin_reads(Lock& lock);
  void begin_read(size_t index, const ReadOperation& read, Lock& lock);
  void end_read(const ReadGoEnd& end, Lock& lock);
  // Gives each load its share of the time since this was called last.
  void count_read_time(Clock::time_point now);
  // Held back storage: waits until it would have come to the end of the read, or the read is not wanted any more.
  void hold_back(const Flight& flight, uint64_t useful_bytes, Lock& lock);
  void wake_reads();
  void do_piece(const PieceOperation& operation, PieceRecovery& recovery, Lock& lock);

  // Of a slot. Behind those there is the load that fills host memory.
  Load& load_at(int slot);
  // Makes a load that is not active a new one, with all of the past forgotten.
  void renew(Load& load, const ExpertSource& source, const LoadRequest& request, LoadListener& listener);
  void cancel(Load& load);
  // Has parts that host memory holds come from there.
  static void use_host(Load& load, std::shared_ptr<const HostChunks> host);
  // Bytes of each part in entries or host memory.
  HostChunks::PartSizes plan(Load& load) const;
  void start(Load& load);
  HolderMemory memory_of(const Load& load, size_t tensor, uint32_t piece) const;
  PartEntries& entries(Part part) { return entries_[index_of(part)]; }
  void begin_entries(Load& load);
  void begin_entry(Load& load, Part part);
  void end_entry(Load& load, Part part, bool complete);
  static bool is_whole(const Load& load, Part part);
  static void stop(Load& load, std::exception_ptr error);
  // Tells the listener, without the lock, when nothing is left to be done for the load.
  void settle_if_over(Load& load, Lock& lock);

  const std::shared_ptr<Backend> backend_;
  const LoadMemoryLayout layout_;
  const LoadMemory memory_;
  mutable std::mutex mutex_;  // guards everything below but what the memory holds
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
  StorageReader reader_;  // the reading thread's, but for wake()
  std::vector<std::thread> threads_;
};

}  // namespace odmoe
