#include "odmoe/device.h"

#include <atomic>
#include <utility>

#include "odmoe/error.h"

namespace odmoe {
namespace {

std::atomic<uint64_t> live_memory_bytes = 0;

}  // namespace

JobQueue::JobQueue(int threads) {
  for (int i = 0; i < threads; i++) threads_.emplace_back([this] { run(); });
}

JobQueue::~JobQueue() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void JobQueue::post(std::unique_ptr<Job> job) {
  {
    const std::lock_guard lock(mutex_);
    if (jobs_.size() >= kQueuedJobLimit) {
      throw Error(ErrorCode::queue_full, std::to_string(kQueuedJobLimit) + " calls are queued on the device already");
    }
    jobs_.push_back(std::move(job));
  }
  changed_.notify_one();
}

void JobQueue::run() {
  use_exact_float_environment();
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return !held_ && (stopping_ || !jobs_.empty()); });
    if (jobs_.empty()) return;
    std::unique_ptr<Job> job = std::move(jobs_.front());
    jobs_.pop_front();
    running_++;
    lock.unlock();
    Job& running = *job;
    running.run(std::move(job));
    lock.lock();
    running_--;
  }
}

bool JobQueue::hold() {
  const std::lock_guard lock(mutex_);
  if (held_ || stopping_ || running_ > 0 || !jobs_.empty()) return false;
  held_ = true;
  return true;
}

void JobQueue::release() {
  bool wanted = false;
  {
    const std::lock_guard lock(mutex_);
    held_ = false;
    wanted = stopping_ || !jobs_.empty();
  }
  // Threads that found the queue held are waiting again. All are woken, because there may be several jobs.
  if (wanted) changed_.notify_all();
}

uint64_t DeviceMemory::live_bytes() { return live_memory_bytes.load(); }

DeviceMemory::DeviceMemory(std::shared_ptr<Backend> backend, uint64_t bytes, Kind kind)
    : backend_(std::move(backend)), kind_(kind) {
  switch (kind) {
    case Kind::device: buffer_ = backend_->allocate(bytes); break;
    case Kind::staging: buffer_ = backend_->allocate_staging(bytes); break;
    case Kind::host_staging: buffer_ = backend_->allocate_host_staging(bytes); break;
  }
  live_memory_bytes += buffer_.bytes;
}

DeviceMemory::DeviceMemory(DeviceMemory&& other) noexcept
    : backend_(std::move(other.backend_)), buffer_(std::exchange(other.buffer_, {})), kind_(other.kind_) {}

DeviceMemory& DeviceMemory::operator=(DeviceMemory&& other) noexcept {
  if (this == &other) return *this;
  reset();
  backend_ = std::move(other.backend_);
  buffer_ = std::exchange(other.buffer_, {});
  kind_ = other.kind_;
  return *this;
}

void DeviceMemory::reset() noexcept {
  if (backend_ == nullptr) return;
  live_memory_bytes -= buffer_.bytes;
  if (kind_ == Kind::device) {
    backend_->release(buffer_);
  } else {
    backend_->release_staging(buffer_);
  }
  backend_.reset();
}

}  // namespace odmoe
