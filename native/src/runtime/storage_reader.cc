#include "storage_reader.h"

#include <algorithm>
#include <cerrno>
#include <utility>

namespace odmoe {
namespace {

// Number of consecutive interrupted or refused reads after which the storage counts as failed.
constexpr int kFruitlessLimit = 1000;

// Throws for the first chunk of the range that a file of this size cuts off.
[[noreturn]] void throw_cut_off(const TensorSource& source, const FileRange& range, uint64_t file_bytes) {
  const int plane = source.chunks[range.chunk].plane;
  for (size_t i = range.chunk; i < source.chunks.size(); i++) {
    const ChunkLocation& chunk = source.chunks[i];
    if (chunk.plane != plane || chunk.offset_bytes + chunk.stored_bytes <= file_bytes) continue;
    throw_truncated(chunk, file_bytes > chunk.offset_bytes ? file_bytes - chunk.offset_bytes : 0);
  }
  throw_truncated(source.chunks[range.chunk], 0);
}

uint64_t useful_within(const FileRange& range, uint64_t begin, uint64_t end) {
  const uint64_t from = std::max(begin, range.useful_begin);
  const uint64_t to = std::min(end, range.useful_end);
  return to > from ? to - from : 0;
}

}  // namespace

StorageReader::StorageReader(std::unique_ptr<StorageQueue> queue, int depth, bool direct)
    : queue_(std::move(queue)),
      files_(direct),
      go_bytes_(read_go_bytes(depth)),
      direct_(direct),
      flights_(static_cast<size_t>(depth)) {
  ends_.reserve(flights_.size());
  told_.reserve(flights_.size());
}

const FileRange& StorageReader::range_of(const ReadWork& work) const {
  return work.plan->ranges[work.plan->pieces[work.piece].ranges[index_of(work.part)].begin + work.position.range];
}

void StorageReader::begin(size_t tag, const ReadWork& work) {
  Flight& flight = flights_[tag];
  const FileRange& range = range_of(work);
  flight.work = work;
  flight.count = std::min(go_bytes_, range.end - (range.begin + work.position.bytes));
  flight.done = 0;
  flight.fruitless = 0;
  try {
    flight.file = files_.open(work.source->chunks[range.chunk].path);
  } catch (...) {
    add_end(tag, {}, std::current_exception());
    queue_->wake();  // the next wait returns the error
    return;
  }
  submit(tag);
}

void StorageReader::submit(size_t tag) {
  Flight& flight = flights_[tag];
  flight.direct = flight.file->is_direct();
  const FileRange& range = range_of(flight.work);
  const uint64_t at = flight.work.position.bytes + flight.done;
  queue_->submit({.tag = tag,
                  .descriptor = flight.file->descriptor(),
                  .offset = range.begin + at,
                  .out = address(flight.work.memory, range.place) + at,
                  .bytes = flight.count - flight.done,
                  .direct = flight.direct});
}

// True if a read that failed with this error should be tried again.
bool StorageReader::try_again(const Flight& flight, int error) {
  if (error == EINTR || error == EAGAIN) return true;
  if (!flight.direct) return false;
  // Another read of the file may have switched direct reading off meanwhile.
  return flight.file->leave_direct_after(error) || !flight.file->is_direct();
}

bool StorageReader::advance(size_t tag, int64_t result) {
  Flight& flight = flights_[tag];
  const File& file = *flight.file;
  const FileRange& range = range_of(flight.work);
  const uint64_t before = flight.done;
  if (result > 0) flight.done += std::min(static_cast<uint64_t>(result), flight.count - flight.done);
  if (flight.done == flight.count) return true;
  const uint64_t end = range.begin + flight.work.position.bytes + flight.done;
  if (result == 0 || (result > 0 && end >= file.bytes())) {
    if (end < range.useful_end) throw_cut_off(*flight.work.source, range, end);
    return true;
  }
  const int error = result < 0 ? static_cast<int>(-result) : EIO;
  if (result < 0 && !try_again(flight, error)) file.throw_read_failed(error);
  // Direct reads can continue only at a boundary.
  if (file.is_direct()) flight.done = flight.done / kReadAlignment * kReadAlignment;
  flight.fruitless = flight.done > before ? 0 : flight.fruitless + 1;
  if (flight.fruitless > kFruitlessLimit) file.throw_read_failed(error);
  submit(tag);
  return false;
}

// A file may end behind the range's useful bytes: then the range counts as completely read.
ReadGo StorageReader::end_of(const Flight& flight) const {
  const ReadWork& work = flight.work;
  const IndexSpan ranges = work.plan->pieces[work.piece].ranges[index_of(work.part)];
  const FileRange& range = range_of(work);
  const uint64_t begin = range.begin + work.position.bytes;
  const uint64_t end = flight.done == flight.count ? begin + flight.count : range.end;
  ReadGo go;
  go.useful_bytes = useful_within(range, begin, end);
  go.position = {work.position.range, end - range.begin};
  if (end == range.end) go.position = {work.position.range + 1, 0};
  go.finished = ranges.begin + go.position.range == ranges.end;
  return go;
}

void StorageReader::add_end(size_t tag, const ReadGo& go, std::exception_ptr error) {
  flights_[tag].file.reset();
  ends_.push_back({tag, go, std::move(error)});
}

std::span<const ReadGoEnd> StorageReader::wait() {
  std::array<QueuedReadEnd, kReadDepthLimit> ends;
  const size_t count = queue_->wait(ends);
  for (const QueuedReadEnd& end : std::span(ends).first(count)) {
    Flight& flight = flights_[end.tag];
    try {
      if (!advance(end.tag, end.result)) continue;
      direct_refused_ = direct_refused_ || (direct_ && !flight.file->is_direct());
      add_end(end.tag, end_of(flight), nullptr);
    } catch (...) {
      add_end(end.tag, {}, std::current_exception());
    }
  }
  told_.clear();
  std::swap(ends_, told_);
  return told_;
}

}  // namespace odmoe
