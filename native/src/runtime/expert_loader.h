// Loads experts into slots: one thread reads from storage, others decompress what it has read and write it to the slots (ZipMoE,
// section 3.3). Several experts may be on their way at a time; which operation comes next follows from their order.
#pragma once
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "load_entries.h"
#include "load_memory.h"
#include "load_schedule.h"
#include "odmoe/expert.h"
#include "odmoe/expert_load.h"
#include "piece_recovery.h"
#include "storage_reader.h"

namespace odmoe {

// All memory is taken when it is made; once each slot has been loaded, loading takes none from anywhere.
// Methods from any thread; the destructor from none that a listener is called on. It cancels what is being loaded and waits for it.
class ExpertLoader {
 public:
  // `slots`: how many experts can be on their way at a time. Throws DEVICE_OUT_OF_MEMORY.
  ExpertLoader(std::shared_ptr<Backend> backend, const ExpertShape& shape, int slots, const LoaderOptions& options);
  ~ExpertLoader();
  ExpertLoader(const ExpertLoader&) = delete;
  ExpertLoader& operator=(const ExpertLoader&) = delete;

  // Begins to load the expert into the slot's matrices. The slot must have no load under way;
  // matrices and listener must stay until the listener is told. What the matrices hold is whole only when it is told "loaded".
  // Throws what planning the load throws: PACK_CORRUPT or MODEL_CORRUPT for sizes that contradict each other, INTERNAL for an
  // entry that cannot be used and for what does not fit. The listener is then not told anything.
  // It is told of STORAGE_FAILED, PACK_CORRUPT and MODEL_CORRUPT where the files or their contents are to blame.
  void load(int slot, ExpertMatrices& matrices, const ExpertSource& source, const LoadRequest& request, LoadListener& listener);

  // Of the load of the slot; nothing where there is none.
  // Settles it at once, or after the operations that are being done for it.
  void cancel(int slot);
  void prioritize(int slot);
  void reorder(int slot, const std::optional<ExpertOrder>& order);

  // Direct I/O was asked for, but some file system refused it and is read through the page cache.
  bool direct_io_refused() const;

 private:
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
  };

  void start_threads();
  void stop_threads();
  void read_loop();
  void recover_loop(int thread);
  void do_read(const ReadOperation& read, bool after_idle, Lock& lock);
  void do_piece(const PieceOperation& operation, PieceRecovery& recovery, Lock& lock);

  Load& load_at(int slot);
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
  std::condition_variable reads_changed_;
  std::condition_variable pieces_changed_;
  BufferRing shard_buffers_;
  BufferRing piece_buffers_;
  std::array<PartEntries, kParts> entries_;
  std::vector<Load> loads_;  // by slot
  std::vector<LoadTask*> active_;
  uint64_t arrivals_ = 0;
  bool stopping_ = false;
  bool direct_io_refused_ = false;
  StorageReader reader_;  // the reading thread's
  std::vector<std::thread> threads_;
};

}  // namespace odmoe
