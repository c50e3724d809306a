#include <array>

#include "odmoe/error.h"
#include "odmoe/store.h"
#include "repacked_matrix.h"
#include "stored_chunk.h"
#include "tensor_view.h"

namespace odmoe {
namespace {

void check_chunk(const ChunkLocation& chunk, int planes) {
  if (chunk.plane < 0 || chunk.plane >= planes) {
    throw_corrupt(chunk, "a chunk belongs to plane " + std::to_string(chunk.plane) + ", which the tensor has not got");
  }
  if (chunk.plain_bytes == 0) throw_corrupt(chunk, "the chunk is empty");
  if (chunk.offset_bytes > INT64_MAX || chunk.stored_bytes > INT64_MAX - chunk.offset_bytes) {
    throw_corrupt(chunk, "a chunk of " + std::to_string(chunk.stored_bytes) + " bytes lies beyond the end of any file");
  }
  if (chunk.codec == CodecKind::raw && chunk.stored_bytes != chunk.plain_bytes) {
    throw_corrupt(chunk, "an uncompressed chunk stores " + std::to_string(chunk.stored_bytes) + " bytes for " +
                             std::to_string(chunk.plain_bytes));
  }
}

// Adds two numbers; a result over `limit` becomes limit + 1.
uint64_t add_up_to(uint64_t limit, uint64_t total, uint64_t more) {
  return total > limit || more > limit - total ? limit + 1 : total + more;
}

}  // namespace

void check_chunks(const TensorSource& source) {
  if (source.view.has_value()) {
    check_view(source);
  } else if (source.split == Split::mxfp4 && source.columns % kMxfp4Block != 0) {
    throw Error(ErrorCode::model_corrupt, "an MXFP4 tensor has " + std::to_string(source.columns) + " columns, no multiple of 32");
  }
  if (source.view.has_value() && source.view->form != StoredForm::planes) {
    for (const ChunkLocation& chunk : source.chunks) check_chunk(chunk, kMaxStoredPlanes);
    return check_form_bytes(source);
  }
  const Split split = source.view.has_value() ? source.view->stored_split : source.split;
  const int planes = plane_count(split);
  const auto plane_bytes = [&](int plane) {
    if (source.view.has_value()) return viewed_plane_bytes(*source.view, plane);
    return static_cast<uint64_t>(source.rows) * static_cast<uint64_t>(plane_row_bytes(source.split, plane, source.columns));
  };
  std::array<uint64_t, kMaxPlanes> totals{};
  std::array<const ChunkLocation*, kMaxPlanes> firsts{};
  for (const ChunkLocation& chunk : source.chunks) {
    check_chunk(chunk, planes);
    const auto plane = static_cast<size_t>(chunk.plane);
    const uint64_t bytes = plane_bytes(chunk.plane);
    totals[plane] = add_up_to(bytes, totals[plane], chunk.plain_bytes);
    if (firsts[plane] == nullptr) firsts[plane] = &chunk;
  }
  for (int i = 0; i < planes; i++) {
    const auto plane = static_cast<size_t>(i);
    const uint64_t bytes = plane_bytes(i);
    if (totals[plane] == bytes) continue;
    const std::string what =
        "the chunks of plane " + std::to_string(i) + " do not make up the tensor's " + std::to_string(bytes) + " bytes";
    if (firsts[plane] != nullptr) throw_corrupt(*firsts[plane], what);
    throw Error(ErrorCode::pack_corrupt, what + "; there are none; pack the model again");
  }
}

}  // namespace odmoe
