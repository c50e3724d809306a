#include "plane_transfer.h"

#include <algorithm>

#include "cuda_error.h"
#include "decoding.h"
#include "odmoe/error.h"

namespace odmoe::cuda {
namespace {

// Blocks begin at multiples of this in their chunk, with gaps smaller than this.
constexpr uint64_t kBlockAlignment = 16;
constexpr uint64_t kLargestTable = 128;

uint64_t table_bytes(CodecKind codec) { return codec == CodecKind::huffman ? kLargestTable : 16; }

bool is_stored_plain(const CodedBlock& block) { return block.coded_bytes == block.plain_bytes; }

// Kernels that write rows into the layout load up to sixteen bytes at a time.
bool is_aligned(const uint8_t* address) { return reinterpret_cast<uintptr_t>(address) % kBlockAlignment == 0; }

void copy_to_device(uint8_t* device, const uint8_t* host, uint64_t bytes, cudaStream_t stream) {
  check(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, stream), "copying weights to the device");
}

}  // namespace

uint8_t* LaneScratch::take(uint64_t bytes) {
  uint8_t* const taken = static_cast<uint8_t*>(memory_.data) + used_;
  used_ += padded(bytes);
  if (used_ > memory_.bytes) throw Error(ErrorCode::internal, "weights outgrow the scratch that was taken for them");
  return taken;
}

template <class Visit>
void PlaneTransfer::each_block(uint64_t bytes, Visit visit) const {
  uint64_t skipped = skipped_;
  for (int i = block_; bytes > 0; ++i) {
    if (i >= source_->block_count) throw Error(ErrorCode::internal, "a coded plane has fewer rows than are written");
    const CodedBlock& block = source_->blocks[i];
    if (skipped < block.plain_bytes) {
      const uint64_t taken = std::min(bytes, block.plain_bytes - skipped);
      visit(block, skipped, taken, i);
      bytes -= taken;
      skipped = 0;
    } else {
      skipped -= block.plain_bytes;
    }
  }
}

uint64_t PlaneTransfer::scratch_bytes(int64_t rows) const {
  if (source_ == nullptr) return 0;
  const uint64_t bytes = static_cast<uint64_t>(rows) * row_bytes_;
  uint64_t needed = LaneScratch::padded(bytes);
  if (source_->plain != nullptr) return needed;
  needed += LaneScratch::padded(kLargestTable);
  each_block(bytes, [&](const CodedBlock& block, uint64_t, uint64_t, int) {
    needed += LaneScratch::padded(block.coded_bytes + kBlockAlignment);
  });
  return needed;
}

const uint8_t* PlaneTransfer::bring(int64_t rows, LaneScratch& scratch, cudaStream_t stream) {
  if (source_ == nullptr) return nullptr;
  const uint64_t bytes = static_cast<uint64_t>(rows) * row_bytes_;
  return source_->plain != nullptr ? bring_plain(bytes, scratch, stream) : bring_coded(bytes, scratch, stream);
}

const uint8_t* PlaneTransfer::bring_plain(uint64_t bytes, LaneScratch& scratch, cudaStream_t stream) {
  const uint8_t* const host = source_->plain + skipped_;
  skipped_ += bytes;
  const uint8_t* const in_place = staging_->in_place(host, bytes);
  if (in_place != nullptr && is_aligned(in_place)) {
    reads_host_memory_ = true;
    return in_place;
  }
  uint8_t* const copied = scratch.take(bytes);
  copy_to_device(copied, host, bytes, stream);
  return copied;
}

const uint8_t* PlaneTransfer::bring_coded(uint64_t bytes, LaneScratch& scratch, cudaStream_t stream) {
  uint8_t* const plain = scratch.take(bytes);
  bring_table(scratch, stream);
  uint64_t done = 0;
  int last_block = block_;
  uint64_t last_end = 0;
  each_block(bytes, [&](const CodedBlock& block, uint64_t skipped, uint64_t taken, int index) {
    bring_block(block, skipped, taken, plain + done, scratch, stream);
    done += taken;
    last_block = index;
    last_end = skipped + taken;
  });
  copy_stretch(stream);
  block_ = last_block;
  skipped_ = last_end;
  return plain;
}

void PlaneTransfer::bring_table(LaneScratch& scratch, cudaStream_t stream) {
  const uint64_t bytes = table_bytes(source_->codec);
  table_ = staging_->in_place(source_->table, bytes);
  if (table_ != nullptr) {
    reads_host_memory_ = true;
    return;
  }
  uint8_t* const copied = scratch.take(bytes);
  copy_to_device(copied, source_->table, bytes, stream);
  table_ = copied;
}

void PlaneTransfer::bring_block(const CodedBlock& block, uint64_t skipped, uint64_t taken, uint8_t* plain, LaneScratch& scratch,
                                cudaStream_t stream) {
  if (is_stored_plain(block)) {
    copy_to_device(plain, block.bytes + skipped, taken, stream);
    return;
  }
  const uint8_t* coded = staging_->in_place(block.bytes, block.coded_bytes);
  if (coded != nullptr) {
    reads_host_memory_ = true;
  } else {
    const uint8_t* const end = batch_.host + batch_.bytes;
    const bool follows = batch_.host != nullptr && block.bytes >= end && block.bytes < end + kBlockAlignment;
    if (follows) {
      batch_.bytes = static_cast<uint64_t>(block.bytes - batch_.host) + block.coded_bytes;
      scratch.take(block.coded_bytes + kBlockAlignment);  // behind the memory of the stretch, so that it can grow
    } else {
      copy_stretch(stream);
      batch_.host = block.bytes;
      batch_.bytes = block.coded_bytes;
      batch_.device = scratch.take(block.coded_bytes + kBlockAlignment);
    }
    coded = batch_.device + (block.bytes - batch_.host);
  }
  batch_.blocks[batch_.count++] = {coded, block.coded_bytes, block.plain_bytes, skipped, taken, plain};
  if (batch_.count < kMostBlocksToDecode) return;
  copy_stretch(stream);
  decode(stream);
}

void PlaneTransfer::copy_stretch(cudaStream_t stream) {
  if (batch_.host != nullptr) copy_to_device(batch_.device, batch_.host, batch_.bytes, stream);
  batch_.host = nullptr;
}

void PlaneTransfer::decode(cudaStream_t stream) {
  if (batch_.count == 0) return;
  if (source_->codec == CodecKind::fixed4) {
    check(launch_decode_fixed4(batch_.blocks, batch_.count, table_, stream), "decoding exponents");
  } else if (source_->codec == CodecKind::huffman) {
    check(launch_decode_huffman(batch_.blocks, batch_.count, table_, multiprocessors_, stream), "decoding exponents");
  } else {
    throw Error(ErrorCode::internal, "the device decodes no blocks of this codec");
  }
  batch_.count = 0;
}

}  // namespace odmoe::cuda
