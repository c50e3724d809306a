// The loader's reading thread: begins reads in the order of Algorithm 1 (ZipMoE, section 3.3), with at most `depth` in flight.
#include "expert_loader.h"
#include "odmoe/precise_timers.h"

namespace odmoe {

StorageReads ExpertLoader::storage_reads() const {
  const std::lock_guard lock(mutex_);
  return reads_;
}

// To be called after a change under the lock that the reading thread must see: it looks for reads again at each wake-up.
void ExpertLoader::wake_reads() { reader_.wake(); }

void ExpertLoader::read_loop() {
  use_precise_timers();
  Lock lock(mutex_);
  while (true) {
    begin_reads(lock);
    // A stopping loader begins nothing, and buffers stay until the last read that writes to them has ended.
    if (stopping_ && in_flight_ == 0) return;
    if (in_flight_ == 0) reads_idle_ = true;
    lock.unlock();
    const std::span<const ReadGoEnd> ends = reader_.wait();
    lock.lock();
    for (const ReadGoEnd& end : ends) end_read(end, lock);
  }
}

void ExpertLoader::begin_reads(Lock& lock) {
  for (size_t i = 0; i < flights_.size(); i++) {
    if (flights_[i].active) continue;
    const std::optional<ReadOperation> read = next_read(active_, shard_buffers_, piece_buffers_);
    if (!read.has_value()) return;
    begin_read(i, *read, lock);
  }
}

void ExpertLoader::begin_read(size_t index, const ReadOperation& read, Lock& lock) {
  take_buffers(read, shard_buffers_, piece_buffers_);
  Load& load = static_cast<Load&>(*read.task);
  TensorProgress& progress = load.progress[read.tensor];
  progress.in_flight[index_of(read.part)] = true;
  const ReadWork work{&tensor_of(load.source, read.tensor),
                      &load.plans[read.tensor],
                      read.piece,
                      read.part,
                      memory_of(load, read.tensor, read.piece),
                      progress.reading[index_of(read.part)]};
  const auto now = Clock::now();
  count_read_time(now);
  flights_[index] = {.active = true, .read = read, .start = now, .after_idle = reads_idle_};
  in_flight_++;
  reads_idle_ = false;
  load.running++;
  lock.unlock();
  reader_.begin(index, work);
  lock.lock();
}

void ExpertLoader::count_read_time(Clock::time_point now) {
  if (in_flight_ > 0) {
    const std::chrono::duration<double, std::milli> passed = now - read_time_counted_;
    const double share = passed.count() / static_cast<double>(in_flight_);
    for (const Flight& flight : flights_) {
      if (!flight.active) continue;
      LoadOutcome& outcome = static_cast<Load&>(*flight.read.task).outcome;
      (flight.read.part == Part::exponents ? outcome.exponent_read_ms : outcome.sign_mantissa_read_ms) += share;
    }
  }
  read_time_counted_ = now;
}

void ExpertLoader::hold_back(const Flight& flight, uint64_t useful_bytes, Lock& lock) {
  const Load& load = static_cast<Load&>(*flight.read.task);
  const auto end = pacer_.end_of_read(useful_bytes, flight.start, flight.after_idle);
  held_back_changed_.wait_until(lock, end, [&load] { return load.stopping; });
}

void ExpertLoader::end_read(const ReadGoEnd& end, Lock& lock) {
  Flight& flight = flights_[end.tag];
  if (pacer_.is_on() && end.error == nullptr) hold_back(flight, end.go.useful_bytes, lock);
  count_read_time(Clock::now());
  const ReadOperation read = flight.read;
  Load& load = static_cast<Load&>(*read.task);
  TensorProgress& progress = load.progress[read.tensor];
  flight.active = false;
  in_flight_--;
  progress.in_flight[index_of(read.part)] = false;
  reads_.direct_refused = reader_.direct_refused();
  load.outcome.read_bytes += end.go.useful_bytes;
  if (end.error != nullptr) {
    stop(load, end.error);
  } else if (end.go.finished) {
    progress.read_done(load.plans[read.tensor], read.part);
    if (progress.piece_ready()) pieces_changed_.notify_all();
  } else {
    progress.reading[index_of(read.part)] = end.go.position;
  }
  load.running--;
  settle_if_over(load, lock);
}

}  // namespace odmoe
