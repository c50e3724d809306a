#include "device_speed.h"

#include <algorithm>

#include "cuda_error.h"
#include "kernels.h"

namespace odmoe::cuda {
namespace {

// Device memory, or host memory that is pinned or not.
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

// The blocks in device memory, and where their plain bytes go: one after the other.
std::vector<BlockToDecode> place_blocks(const std::vector<CodedBlock>& blocks, uint8_t* coded, uint8_t* plain) {
  std::vector<BlockToDecode> placed;
  for (const CodedBlock& block : blocks) {
    check(cudaMemcpy(coded, block.bytes, block.coded_bytes, cudaMemcpyHostToDevice), "copying to the device");
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

// FP32 lanes of a multiprocessor (CUDA C++ Programming Guide, "Arithmetic Instructions").
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
  const auto values = static_cast<uint64_t>(recovery.rows * recovery.columns);
  const uint64_t table_bytes = recovery.codec == CodecKind::fixed4 ? 16 : 128;
  const Memory table(Memory::Kind::device, table_bytes);
  const Memory coded(Memory::Kind::device, coded_bytes(recovery.blocks));
  const Memory exponents(Memory::Kind::device, values);
  const Memory sign_mantissas(Memory::Kind::device, values);
  const Memory matrix(Memory::Kind::device, recovery.matrix_bytes);
  check(cudaMemcpy(table.bytes(), recovery.table, table_bytes, cudaMemcpyHostToDevice), "copying to the device");
  check(cudaMemcpy(sign_mantissas.bytes(), recovery.sign_mantissas, values, cudaMemcpyHostToDevice), "copying to the device");
  const std::vector<BlockToDecode> blocks = place_blocks(recovery.blocks, coded.bytes(), exponents.bytes());
  const auto launch = recovery.codec == CodecKind::fixed4 ? &launch_decode_fixed4 : &launch_decode_huffman;
  const auto decode = [&] {
    for (size_t first = 0; first < blocks.size(); first += kMostBlocksToDecode) {
      const auto count = static_cast<int>(std::min<size_t>(kMostBlocksToDecode, blocks.size() - first));
      check(launch(blocks.data() + first, count, table.bytes(), stream_), "decoding");
    }
  };
  const RowsToWrite written{WeightFormat::bf16, matrix.bytes(), recovery.rows, recovery.columns,
                            0,                  recovery.rows,  Split::bf16_e8_sm8,
                            {exponents.bytes(), sign_mantissas.bytes(), nullptr}};
  CudaRecoverySeconds seconds;
  seconds.decode = seconds_of(times, decode);
  seconds.whole = seconds_of(times, [&] {
    decode();
    check(launch_write_rows(written, stream_), "laying weights out");
  });
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
