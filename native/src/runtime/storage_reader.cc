#include "storage_reader.h"

#include <algorithm>

namespace odmoe {
namespace {

// The chunk of the range that a file of this size cuts off first.
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

// Returns how much further the range is; its whole length where the file ends behind its useful bytes.
uint64_t StorageReader::read_range(const ReadWork& work, const FileRange& range, uint64_t done, uint64_t limit) {
  const File& file = files_.open(work.source->chunks[range.chunk].path);
  const uint64_t begin = range.begin + done;
  const uint64_t count = std::min(limit, range.end - begin);
  const uint64_t got = file.read_at(begin, address(work.memory, range.place) + done, count);
  direct_refused_ = direct_refused_ || (direct_ && !file.is_direct());
  if (got == count) return count;
  if (begin + got < range.useful_end) throw_cut_off(*work.source, range, begin + got);
  return range.end - begin;
}

ReadGo StorageReader::read(const ReadWork& work, bool after_idle) {
  const auto start = StoragePacer::Clock::now();
  const IndexSpan ranges = work.plan->pieces[work.piece].ranges[index_of(work.part)];
  ReadGo go;
  go.position = work.position;
  uint64_t limit = kReadGoBytes;
  while (limit > 0 && ranges.begin + go.position.range < ranges.end) {
    const FileRange& range = work.plan->ranges[ranges.begin + go.position.range];
    const uint64_t read = read_range(work, range, go.position.bytes, limit);
    const uint64_t begin = range.begin + go.position.bytes;
    go.useful_bytes += useful_within(range, begin, begin + read);
    limit -= std::min(limit, read);
    go.position.bytes += read;
    if (go.position.bytes == range.end - range.begin) go.position = {go.position.range + 1, 0};
  }
  go.finished = ranges.begin + go.position.range == ranges.end;
  if (pacer_.is_on()) go.end = pacer_.end_of_read(go.useful_bytes, start, after_idle);
  return go;
}

}  // namespace odmoe
