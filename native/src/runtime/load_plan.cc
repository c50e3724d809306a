#include "load_plan.h"

#include <algorithm>
#include <string>

#include "../store/stored_chunk.h"
#include "odmoe/error.h"

namespace odmoe {
namespace {

// Backends interleave rows in groups; pieces of whole groups avoid half-filled groups.
constexpr int64_t kPieceRowMultiple = 16;
constexpr int64_t kExpectedBlockBytes = 128 * 1024;
// Most unneeded bytes that a range may read at its two ends together.
constexpr uint64_t kRangeSlack = 2 * kReadAlignment;

uint64_t align_down(uint64_t bytes) { return bytes / kReadAlignment * kReadAlignment; }
uint64_t align_up(uint64_t bytes) { return align_down(bytes + kReadAlignment - 1); }

Part part_of(int plane) { return plane == 0 ? Part::exponents : Part::sign_mantissa; }

uint32_t size_as_index(size_t size) { return static_cast<uint32_t>(size); }

// Chunks of one plane that can be read as if they were one: a coded chunk, or raw chunks that follow one another in a file.
// Positions are bytes of the plane.
struct Run {
  bool coded = false;
  uint64_t begin = 0;
  uint64_t end = 0;
  uint64_t file_begin = 0;
  // For a raw run in an entry: its offset there, from the boundary before file_begin on, and the file position up to which it is
  // read.
  uint64_t entry_offset = 0;
  uint64_t read_end = 0;

  uint64_t file_position(uint64_t position) const { return file_begin + (position - begin); }
  uint64_t file_end() const { return file_position(end); }
};

struct PlaneCursor {
  const std::vector<uint32_t>* chunks = nullptr;
  uint64_t row_bytes = 0;
  Run run;
  size_t chunk = 0;  // the next chunk, and where it begins in the plane
  uint64_t chunk_begin = 0;
};

class TensorPlanner {
 public:
  TensorPlanner(const TensorSource& source, const LoadRequest& request, const PlanLimits& limits,
                std::array<uint64_t, kParts>& entry_used, TensorPlan& plan)
      : source_(source), request_(request), limits_(limits), entry_used_(entry_used), plan_(plan) {}

  void run() {
    plan_.clear();
    plan_.checks.resize(source_.chunks.size());
    for (uint32_t i = 0; i < source_.chunks.size(); i++) {
      plan_.plane_chunks[static_cast<size_t>(source_.chunks[i].plane)].push_back(i);
    }
    for (int plane = 0; plane < planes(); plane++) {
      cursor(plane).chunks = &plan_.plane_chunks[static_cast<size_t>(plane)];
      cursor(plane).row_bytes = static_cast<uint64_t>(plane_row_bytes(source_.split, plane, source_.columns));
      plan_.wanted[static_cast<size_t>(plane)] = part_plan(request_, part_of(plane)).from != PartOrigin::not_wanted;
    }
    for (int64_t row = 0; row < source_.rows;) row = add_shard(row);
  }

 private:
  int planes() const { return plane_count(source_.split); }
  PlaneCursor& cursor(int plane) { return cursors_[static_cast<size_t>(plane)]; }
  const ChunkLocation& chunk_at(const PlaneCursor& plane) const { return source_.chunks[(*plane.chunks)[plane.chunk]]; }
  bool is_wanted(int plane) const { return plan_.wanted[static_cast<size_t>(plane)]; }
  bool from_storage(Part part) const { return part_plan(request_, part).from == PartOrigin::storage; }
  bool in_entry(Part part) const { return part_plan(request_, part).entry >= 0; }
  static Holder entry_of(Part part) { return part == Part::exponents ? Holder::exponent_entry : Holder::sign_mantissa_entry; }

  // Reserves room in an entry for [file_begin, file_end), rounded outwards to boundaries.
  uint64_t take_entry(Part part, uint64_t file_begin, uint64_t file_end) {
    uint64_t& used = entry_used_[index_of(part)];
    const uint64_t offset = used;
    used += align_up(file_end) - align_down(file_begin);
    if (used <= limits_.entry_bytes[index_of(part)]) return offset;
    throw Error(ErrorCode::internal, "an expert's part takes more than the " + std::to_string(limits_.entry_bytes[index_of(part)]) +
                                         " bytes of an entry");
  }

  void start_run(int plane) {
    PlaneCursor& at = cursor(plane);
    const ChunkLocation& first = chunk_at(at);
    at.run = {};
    at.run.coded = first.codec != CodecKind::raw;
    at.run.begin = at.chunk_begin;
    at.run.end = at.chunk_begin + first.plain_bytes;
    at.run.file_begin = first.offset_bytes;
    if (at.run.coded) return;
    for (size_t i = at.chunk + 1; i < at.chunks->size(); i++) {
      const ChunkLocation& next = source_.chunks[(*at.chunks)[i]];
      if (next.codec != CodecKind::raw || next.offset_bytes != at.run.file_end() || next.path != first.path) break;
      at.run.end += next.plain_bytes;
    }
    if (!in_entry(part_of(plane))) return;
    at.run.entry_offset = take_entry(part_of(plane), at.run.file_begin, at.run.file_end());
    at.run.read_end = align_down(at.run.file_begin);
  }

  // The row at which the first of the planes' runs ends.
  int64_t shard_end(int64_t first_row) {
    int64_t end_row = source_.rows;
    for (int plane = 0; plane < planes(); plane++) {
      if (!is_wanted(plane)) continue;
      PlaneCursor& at = cursor(plane);
      if (at.run.end == static_cast<uint64_t>(first_row) * at.row_bytes) start_run(plane);
      if (at.run.end % at.row_bytes != 0) throw_corrupt(chunk_at(at), "the chunk ends inside a row of the matrix");
      end_row = std::min(end_row, static_cast<int64_t>(at.run.end / at.row_bytes));
    }
    return end_row;
  }

  int64_t add_shard(int64_t first_row) {
    PlannedShard shard;
    shard.first_row = first_row;
    shard.rows = shard_end(first_row) - first_row;
    shard.pieces.begin = size_as_index(plan_.pieces.size());
    uint64_t shard_used = 0;
    for (int plane = 0; plane < planes(); plane++) place_coded_chunk(plane, shard, shard_used);
    const int64_t piece_rows = rows_per_piece(shard);
    const auto pieces = size_as_index(static_cast<size_t>((shard.rows + piece_rows - 1) / piece_rows));
    shard.pieces.end = shard.pieces.begin + pieces;
    for (int64_t row = 0; row < shard.rows; row += piece_rows) {
      add_piece(shard, first_row + row, std::min(piece_rows, shard.rows - row));
    }
    for (int plane = 0; plane < planes(); plane++) pass_coded_chunk(plane);
    plan_.shards.push_back(shard);
    return first_row + shard.rows;
  }

  void place_coded_chunk(int plane, PlannedShard& shard, uint64_t& shard_used) {
    const PlaneCursor& at = cursor(plane);
    if (!at.run.coded) return;
    const ChunkLocation& chunk = chunk_at(at);
    if (at.run.begin != static_cast<uint64_t>(shard.first_row) * at.row_bytes ||
        at.run.end != static_cast<uint64_t>(shard.first_row + shard.rows) * at.row_bytes) {
      throw_corrupt(chunk, "the chunk's rows are not those of the matrix's other chunks");
    }
    const Part part = part_of(plane);
    const uint64_t end = chunk.offset_bytes + chunk.stored_bytes;
    const uint64_t before = chunk.offset_bytes - align_down(chunk.offset_bytes);
    CodedChunk& coded = shard.coded[static_cast<size_t>(plane)];
    coded.present = true;
    coded.chunk = (*at.chunks)[at.chunk];
    if (in_entry(part)) {
      coded.place = {entry_of(part), take_entry(part, chunk.offset_bytes, end) + before};
      return;
    }
    coded.place = {Holder::shard_buffer, shard_used + before};
    shard_used += align_up(end) - align_down(chunk.offset_bytes);
    shard.buffered[index_of(part)] = true;
    if (shard_used <= limits_.shard_buffer_bytes) return;
    throw Error(ErrorCode::internal, "a shard's coded chunks take more than the " + std::to_string(limits_.shard_buffer_bytes) +
                                         " bytes that the loader was made for");
  }

  void pass_coded_chunk(int plane) {
    PlaneCursor& at = cursor(plane);
    if (!at.run.coded) return;
    at.chunk_begin += chunk_at(at).plain_bytes;
    at.chunk++;
  }

  int64_t rows_per_piece(const PlannedShard& shard) {
    uint64_t raw_row_bytes = 0;
    uint64_t buffered_row_bytes = 0;
    uint64_t slack = 0;
    bool coded = false;
    for (int plane = 0; plane < planes(); plane++) {
      if (!is_wanted(plane)) continue;
      coded = coded || cursor(plane).run.coded;
      if (cursor(plane).run.coded) continue;
      raw_row_bytes += cursor(plane).row_bytes;
      if (in_entry(part_of(plane))) continue;
      buffered_row_bytes += cursor(plane).row_bytes;
      slack += kRangeSlack;
    }
    const int64_t unit = coded ? expected_block_rows(source_.columns) : kPieceRowMultiple;
    const auto wanted = static_cast<int64_t>(kPieceBytes / std::max<uint64_t>(raw_row_bytes, 1));
    int64_t rows = std::min(std::max(unit, wanted / unit * unit), shard.rows);
    const auto fits = [&] { return static_cast<uint64_t>(rows) * buffered_row_bytes + slack <= limits_.piece_buffer_bytes; };
    while (rows > 1 && !fits()) rows /= 2;
    if (fits()) return rows;
    throw Error(ErrorCode::internal, "a row of " + std::to_string(source_.columns) + " values takes more than the " +
                                         std::to_string(limits_.piece_buffer_bytes) + " bytes that the loader was made for");
  }

  void add_piece(const PlannedShard& shard, int64_t first_row, int64_t rows) {
    PlannedPiece piece;
    piece.shard = size_as_index(plan_.shards.size());
    piece.first_row = first_row;
    piece.rows = rows;
    piece.slices.begin = size_as_index(plan_.slices.size());
    piece_used_ = 0;
    for (const Part part : kBothParts) {
      IndexSpan& ranges = piece.ranges[index_of(part)];
      ranges.begin = size_as_index(plan_.ranges.size());
      for (int plane = 0; plane < planes(); plane++) {
        if (part_of(plane) != part || !is_wanted(plane)) continue;
        if (cursor(plane).run.coded) {
          add_coded(plane, shard);
        } else {
          add_raw(plane, piece);
        }
      }
      ranges.end = size_as_index(plan_.ranges.size());
    }
    piece.slices.end = size_as_index(plan_.slices.size());
    plan_.pieces.push_back(piece);
  }

  // The first piece of a shard reads the chunk; all pieces share the work of its checksum.
  void add_coded(int plane, const PlannedShard& shard) {
    if (!from_storage(part_of(plane))) return;
    const CodedChunk& coded = shard.coded[static_cast<size_t>(plane)];
    const ChunkLocation& chunk = source_.chunks[coded.chunk];
    const uint64_t end = chunk.offset_bytes + chunk.stored_bytes;
    const auto index = size_as_index(plan_.pieces.size()) - shard.pieces.begin;
    const uint64_t pieces = shard.pieces.end - shard.pieces.begin;
    if (index == 0) {
      const uint64_t begin = align_down(chunk.offset_bytes);
      const Place place = {coded.place.holder, coded.place.offset - (chunk.offset_bytes - begin)};
      plan_.ranges.push_back({coded.chunk, begin, align_up(end), chunk.offset_bytes, end, place});
    }
    const uint64_t from = chunk.stored_bytes * index / pieces;
    const uint64_t to = chunk.stored_bytes * (index + 1) / pieces;
    add_slice(coded.chunk, to - from, {coded.place.holder, coded.place.offset + from});
  }

  void add_raw(int plane, PlannedPiece& piece) {
    PlaneCursor& at = cursor(plane);
    const Part part = part_of(plane);
    const uint64_t begin = static_cast<uint64_t>(piece.first_row) * at.row_bytes;
    const uint64_t end = begin + static_cast<uint64_t>(piece.rows) * at.row_bytes;
    Place& place = piece.raw[static_cast<size_t>(plane)];
    if (in_entry(part)) {
      const uint64_t image = at.run.entry_offset - align_down(at.run.file_begin);
      place = {entry_of(part), image + at.run.file_position(begin)};
      if (from_storage(part)) add_entry_range(at, part, end);
    } else {
      const uint64_t from = align_down(at.run.file_position(begin));
      const uint64_t to = align_up(at.run.file_position(end));
      place = {Holder::piece_buffer, piece_used_ + (at.run.file_position(begin) - from)};
      plan_.ranges.push_back({(*at.chunks)[at.chunk],
                              from,
                              to,
                              at.run.file_position(begin),
                              at.run.file_position(end),
                              {Holder::piece_buffer, piece_used_}});
      piece_used_ += to - from;
      piece.buffered[index_of(part)] = true;
    }
    add_raw_slices(at, part, begin, end, place);
  }

  // Reads up to the boundary after the piece's last byte. The next piece begins to read there, so that no byte is read twice.
  void add_entry_range(PlaneCursor& at, Part part, uint64_t end) {
    const uint64_t to = align_up(at.run.file_position(end));
    if (to <= at.run.read_end) return;
    const uint64_t useful_begin = std::max(at.run.read_end, at.run.file_begin);
    const uint64_t useful_end = std::min(to, at.run.file_end());
    const uint64_t offset = at.run.entry_offset + (at.run.read_end - align_down(at.run.file_begin));
    plan_.ranges.push_back({(*at.chunks)[at.chunk], at.run.read_end, to, useful_begin, useful_end, {entry_of(part), offset}});
    at.run.read_end = to;
  }

  void add_raw_slices(PlaneCursor& at, Part part, uint64_t begin, uint64_t end, Place place) {
    while (begin < end) {
      const uint64_t chunk_end = at.chunk_begin + chunk_at(at).plain_bytes;
      const uint64_t bytes = std::min(end, chunk_end) - begin;
      if (from_storage(part)) add_slice((*at.chunks)[at.chunk], bytes, place);
      place.offset += bytes;
      begin += bytes;
      if (begin < chunk_end) return;
      at.chunk_begin = chunk_end;
      at.chunk++;
    }
  }

  void add_slice(uint32_t chunk, uint64_t bytes, Place place) {
    if (!source_.chunks[chunk].crc32c.has_value()) return;
    const auto index = size_as_index(plan_.slices.size());
    plan_.slices.push_back({chunk, kNoSlice, bytes, place});
    ChunkCheck& check = plan_.checks[chunk];
    if (check.slices++ == 0) {
      check.first_slice = index;
    } else {
      plan_.slices[check.last_slice].next = index;
    }
    check.last_slice = index;
  }

  const TensorSource& source_;
  const LoadRequest& request_;
  const PlanLimits& limits_;
  std::array<uint64_t, kParts>& entry_used_;
  TensorPlan& plan_;
  std::array<PlaneCursor, kMaxPlanes> cursors_;
  uint64_t piece_used_ = 0;
};

}  // namespace

void TensorPlan::clear() {
  ranges.clear();
  slices.clear();
  pieces.clear();
  shards.clear();
  checks.clear();
  for (std::vector<uint32_t>& chunks : plane_chunks) chunks.clear();
  wanted = {};
}

int64_t expected_block_rows(int64_t columns) {
  const int64_t group_bytes = columns * kPieceRowMultiple;
  const int64_t groups = (kExpectedBlockBytes + group_bytes / 2) / group_bytes;
  return std::max<int64_t>(groups, 1) * kPieceRowMultiple;
}

uint64_t piece_buffer_bytes(int64_t rows, int64_t columns) {
  const auto bytes = [columns](int64_t count, uint64_t value_bytes) {
    return static_cast<uint64_t>(count) * static_cast<uint64_t>(columns) * value_bytes;
  };
  // The rows of a block with the widest values, four bytes in three planes. If the whole matrix with two-byte values is smaller,
  // that size; wider values then come in two pieces.
  const uint64_t least = bytes(expected_block_rows(columns), 4);
  const uint64_t whole = bytes(rows, 2);
  return align_up(std::min(whole, std::max(kPieceBytes, least)) + kMaxPlanes * kRangeSlack);
}

void plan_tensor(const TensorSource& source, const LoadRequest& request, const PlanLimits& limits,
                 std::array<uint64_t, kParts>& entry_used, TensorPlan& plan) {
  if (source.view.has_value()) {
    throw Error(ErrorCode::internal, "a slot is loaded from a pack, and this expert is a view of a checkpoint's tensor");
  }
  check_chunks(source);
  TensorPlanner(source, request, limits, entry_used, plan).run();
}

}  // namespace odmoe
