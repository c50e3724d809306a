#include "device_speed.h"

#include <algorithm>

#include "cuda_error.h"
#include "kernels.h"
#include "load_lanes.h"

namespace odmoe::cuda {
namespace {

// Device memory, pinned host memory or unpinned host memory.
class Memory {
 public:
  enum class Kind : uint8_t { device, pinned, pageable };

  Memory(Kind kind, uint64_t bytes) : kind_(kind) {
    if (kind == Kind::device) check(cudaMalloc(&data_, bytes), "allocating memory");
    if (kind == Kind::pinned) check(cudaHostAlloc(&data_, bytes, cudaHostAllocDefault), "allocating pinned memory");
    if (kind == Kind::pageable) {
      pageable_.assign(bytes, 1);
      data_ = pageable_.data();
    }
  }
  ~Memory() {
    cudaDeviceSynchronize();  // needed because freeing does not wait
    if (kind_ == Kind::device) cudaFree(data_);
    if (kind_ == Kind::pinned) cudaFreeHost(data_);
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  uint8_t* bytes() const { return static_cast<uint8_t*>(data_); }

 private:
  Kind kind_;
  void* data_ = nullptr;
  std::vector<uint8_t> pageable_;
};

Memory::Kind source_of(CudaCopy copy) {
  if (copy == CudaCopy::on_device) return Memory::Kind::device;
  return copy == CudaCopy::from_pinned ? Memory::Kind::pinned : Memory::Kind::pageable;
}

// Copies to the device; copies_are_done() waits for it.
void copy_to_device(uint8_t* device, const uint8_t* host, uint64_t bytes) {
  check(cudaMemcpy(device, host, bytes, cudaMemcpyHostToDevice), "copying to the device");
}

// A copy from pageable memory returns before it is done, and non-blocking streams do not wait for it.
void copies_are_done() { check(cudaDeviceSynchronize(), "copying to the device"); }

// Places the blocks in device memory; their plain bytes go to `plain`, one block after the other.
std::vector<BlockToDecode> place_blocks(const std::vector<CodedBlock>& blocks, uint8_t* coded, uint8_t* plain) {
  std::vector<BlockToDecode> placed;
  for (const CodedBlock& block : blocks) {
    copy_to_device(coded, block.bytes, block.coded_bytes);
    placed.push_back({coded, block.coded_bytes, block.plain_bytes, 0, block.plain_bytes, plain});
    coded += (block.coded_bytes + 15) / 16 * 16;
    plain += block.plain_bytes;
  }
  return placed;
}

uint64_t coded_bytes(const std::vector<CodedBlock>& blocks) {
  uint64_t bytes = 0;
  for (const CodedBlock& block : blocks) bytes += (block.coded_bytes + 15) / 16 * 16;
  return bytes;
}

// Blocks that one launch decodes.
struct Slice {
  std::vector<BlockToDecode> blocks;
  uint64_t plain_bytes = 0;
};

// Cuts the blocks into slices of at most `most_bytes` plain bytes, unless a single block has more.
std::vector<Slice> slices_of(const std::vector<BlockToDecode>& blocks, uint64_t most_bytes) {
  std::vector<Slice> slices;
  for (const BlockToDecode& block : blocks) {
    const bool fits = !slices.empty() && slices.back().blocks.size() < kMostBlocksToDecode &&
                      slices.back().plain_bytes + block.plain_bytes <= most_bytes;
    if (!fits) slices.emplace_back();
    slices.back().blocks.push_back(block);
    slices.back().plain_bytes += block.plain_bytes;
  }
  return slices;
}

uint64_t largest_plain_bytes(const std::vector<Slice>& slices) {
  uint64_t bytes = 0;
  for (const Slice& slice : slices) bytes = std::max(bytes, slice.plain_bytes);
  return bytes;
}

uint64_t table_bytes(CodecKind codec) { return codec == CodecKind::fixed4 ? 16 : 128; }

// A recovery's planes and its matrix in device memory.
class PlacedRecovery {
 public:
  PlacedRecovery(const CudaRecovery& recovery, int multiprocessors, cudaStream_t stream)
      : recovery_(recovery),
        multiprocessors_(multiprocessors),
        stream_(stream),
        values_(static_cast<uint64_t>(recovery.rows * recovery.columns)),
        table_(Memory::Kind::device, table_bytes(recovery.codec)),
        coded_(Memory::Kind::device, coded_bytes(recovery.blocks)),
        exponents_(Memory::Kind::device, values_),
        sign_mantissas_(Memory::Kind::device, values_),
        matrix_(Memory::Kind::device, recovery.matrix_bytes),
        whole_(slices_of(place_blocks(recovery.blocks, coded_.bytes(), exponents_.bytes()), values_)),
        slices_(slices_of(whole_blocks(), kLaneScratchBytes)),
        scratch_(Memory::Kind::device, largest_plain_bytes(slices_)) {
    copy_to_device(table_.bytes(), recovery.table, table_bytes(recovery.codec));
    copy_to_device(sign_mantissas_.bytes(), recovery.sign_mantissas, values_);
    copies_are_done();
    for (Slice& slice : slices_) {
      uint8_t* plain = scratch_.bytes();
      for (BlockToDecode& block : slice.blocks) {
        block.plain = plain;
        plain += block.plain_bytes;
      }
    }
  }

  // Decodes all exponents to memory.
  void decode() const {
    for (const Slice& slice : whole_) decode(slice);
  }

  // Recovers as a load lane does: all slices share one piece of scratch, so that their exponents can stay in the second-level
  // cache.
  void recover() const {
    RowsToWrite written{
        WeightFormat::bf16, matrix_.bytes(), nullptr, recovery_.rows, recovery_.columns, 0, 0, Split::bf16_e8_sm8, {}};
    for (const Slice& slice : slices_) {
      decode(slice);
      written.row_count = static_cast<int64_t>(slice.plain_bytes) / recovery_.columns;
      written.planes[0] = scratch_.bytes();
      written.planes[1] = sign_mantissas_.bytes() + written.first_row * recovery_.columns;
      check(launch_write_rows(written, stream_), "laying weights out");
      written.first_row += written.row_count;
    }
  }

  void copy_matrix_to(uint8_t* host) const {
    check(cudaMemcpyAsync(host, matrix_.bytes(), recovery_.matrix_bytes, cudaMemcpyDeviceToHost, stream_),
          "copying from the device");
    check(cudaStreamSynchronize(stream_), "copying from the device");
  }

 private:
  std::vector<BlockToDecode> whole_blocks() const {
    std::vector<BlockToDecode> blocks;
    for (const Slice& slice : whole_) blocks.insert(blocks.end(), slice.blocks.begin(), slice.blocks.end());
    return blocks;
  }

  void decode(const Slice& slice) const {
    const BlockToDecode* const blocks = slice.blocks.data();
    const auto count = static_cast<int>(slice.blocks.size());
    check(recovery_.codec == CodecKind::fixed4 ? launch_decode_fixed4(blocks, count, table_.bytes(), stream_)
                                               : launch_decode_huffman(blocks, count, table_.bytes(), multiprocessors_, stream_),
          "decoding");
  }

  const CudaRecovery& recovery_;
  const int multiprocessors_;
  const cudaStream_t stream_;
  const uint64_t values_;
  const Memory table_;
  const Memory coded_;
  const Memory exponents_;
  const Memory sign_mantissas_;
  const Memory matrix_;
  std::vector<Slice> whole_;
  std::vector<Slice> slices_;
  const Memory scratch_;
};

// Number of FP32 lanes of a multiprocessor (CUDA C++ Programming Guide, "Arithmetic Instructions").
int lanes_of(int capability) { return capability == 80 || capability < 80 ? 64 : 128; }

}  // namespace

DeviceSpeed::DeviceSpeed(int device) : context_(device), stream_(context_.compute_stream()) {
  check(cudaEventCreate(&begin_), "creating an event");
  check(cudaEventCreate(&end_), "creating an event");
}

DeviceSpeed::~DeviceSpeed() {
  cudaSetDevice(context_.device());
  cudaStreamSynchronize(stream_);
  if (begin_ != nullptr) cudaEventDestroy(begin_);
  if (end_ != nullptr) cudaEventDestroy(end_);
}

double DeviceSpeed::seconds_of(int times, const std::function<void()>& launch) {
  context_.enter();
  launch();
  check(cudaEventRecord(begin_, stream_), "recording an event");
  for (int i = 0; i < times; ++i) launch();
  check(cudaEventRecord(end_, stream_), "recording an event");
  check(cudaStreamSynchronize(stream_), "waiting for the device");
  float milliseconds = 0;
  check(cudaEventElapsedTime(&milliseconds, begin_, end_), "reading the device's clock");
  return static_cast<double>(milliseconds) * 1e-3 / times;
}

double DeviceSpeed::copy_seconds(CudaCopy copy, uint64_t bytes, int times) {
  context_.enter();
  const Memory from(source_of(copy), bytes);
  const Memory to(Memory::Kind::device, bytes);
  const cudaMemcpyKind kind = copy == CudaCopy::on_device ? cudaMemcpyDeviceToDevice : cudaMemcpyHostToDevice;
  return seconds_of(times, [&] { check(cudaMemcpyAsync(to.bytes(), from.bytes(), bytes, kind, stream_), "copying"); });
}

CudaRecoverySeconds DeviceSpeed::recovery_seconds(const CudaRecovery& recovery, int times) {
  context_.enter();
  const PlacedRecovery placed(recovery, context_.traits().multiprocessors, stream_);
  CudaRecoverySeconds seconds;
  seconds.decode = seconds_of(times, [&] { placed.decode(); });
  seconds.whole = seconds_of(times, [&] { placed.recover(); });
  if (recovery.matrix != nullptr) placed.copy_matrix_to(recovery.matrix);
  return seconds;
}

double DeviceSpeed::peak_flops() const {
  context_.enter();
  int kilohertz = 0;
  if (cudaDeviceGetAttribute(&kilohertz, cudaDevAttrClockRate, context_.device()) != cudaSuccess) {
    cudaGetLastError();
    return 0;
  }
  const DeviceTraits& traits = context_.traits();
  return 2.0 * traits.multiprocessors * lanes_of(traits.capability) * kilohertz * 1e3;
}

}  // namespace odmoe::cuda
