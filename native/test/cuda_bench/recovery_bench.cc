#include <algorithm>
#include <string>

#include "cuda_bench.h"
#include "odmoe/codec.h"

namespace odmoe::cuda_bench {
namespace {

// A Mixtral-8x7B expert's down matrix; blocks as in a pack: multiples of 16 rows near 128 KiB.
constexpr int64_t kRows = 4096;
constexpr int64_t kColumns = 14336;
constexpr int64_t kBlockRows = 16;
constexpr double kRecoveryAim = 0.7;
constexpr uint64_t kTransferBytes = uint64_t{256} << 20;

// docs/pack-format.md, "A coded chunk".
CudaRecovery blocks_of(CodecKind codec, const std::vector<uint8_t>& chunk, uint64_t plain_bytes, uint64_t block_bytes) {
  constexpr uint64_t kHeaderBytes = 16;
  CudaRecovery recovery;
  recovery.codec = codec;
  recovery.table = chunk.data() + kHeaderBytes;
  const uint8_t* const index = recovery.table + (codec == CodecKind::fixed4 ? 16 : 128);
  const auto entry = [&](uint64_t i) {
    const uint8_t* const at = index + 4 * i;
    return at[0] | uint32_t{at[1]} << 8 | uint32_t{at[2]} << 16 | uint32_t{at[3]} << 24;
  };
  for (uint64_t i = 0; i * block_bytes < plain_bytes; ++i) {
    const uint64_t begin = entry(i) & ~15u;
    const uint64_t end = (entry(i + 1) & ~15u) - (entry(i + 1) & 15u);
    recovery.blocks.push_back({chunk.data() + begin, end - begin, std::min(block_bytes, plain_bytes - i * block_bytes)});
  }
  return recovery;
}

Figure rate(std::string what, double bytes, double seconds) {
  return {"recovery", std::move(what), bytes / seconds * 1e-9, "GB/s", {}, {}, {}};
}

// Measures the kernels, with planes already on the device.
void measure_kernels(Bench& bench, const std::string& name, const CudaRecovery& recovery, double chunk_bytes) {
  const double values = static_cast<double>(recovery.rows * recovery.columns);
  const double bandwidth = bench.copy_bandwidth();
  const CudaRecoverySeconds seconds = bench.speed().recovery_seconds(recovery, bench.smoke() ? 1 : 20);
  Figure decode = rate(name + ", decoding exponents (plain bytes)", values, seconds.decode);
  decode.copy_share = (chunk_bytes + values) / seconds.decode / bandwidth;
  bench.add(decode);
  Figure whole = rate(name + ", recovery to BF16 (bytes of BF16)", 2 * values, seconds.whole);
  // The least work: codes, signs and mantissas are read and the matrix is written.
  whole.copy_share = (chunk_bytes + values + 2 * values) / seconds.whole / bandwidth;
  if (recovery.codec == CodecKind::fixed4) whole.aim = kRecoveryAim;
  bench.add(whole);
}

// Measures recovery from host memory, as in the load of an expert.
void measure_loading(Bench& bench, const std::string& name, const CudaRecovery& recovery, const std::vector<uint8_t>& chunk) {
  DeviceMemory staging(bench.backend(), chunk.size(), DeviceMemory::Kind::staging);
  std::copy(chunk.begin(), chunk.end(), staging.bytes());
  const auto staged = [&](const uint8_t* bytes) { return staging.bytes() + (bytes - chunk.data()); };
  std::vector<CodedBlock> blocks = recovery.blocks;
  for (CodedBlock& block : blocks) block.bytes = staged(block.bytes);
  BenchMatrix written(bench, WeightFormat::bf16, recovery.rows, recovery.columns);
  PlaneSource planes[2];
  planes[0] = {nullptr, recovery.codec, staged(recovery.table), blocks.data(), static_cast<int>(blocks.size()), 0};
  planes[1].plain = recovery.sign_mantissas;
  const double seconds = bench.seconds_of(
      [&](int64_t) { bench.backend()->write_coded_rows(written.matrix, 0, recovery.rows, Split::bf16_e8_sm8, planes); });
  bench.add(rate(name + ", from host memory to BF16 (bytes of BF16)", 2.0 * static_cast<double>(recovery.rows * recovery.columns),
                 seconds));
}

}  // namespace

void measure_recovery(Bench& bench) {
  const int64_t rows = bench.smoke() ? 48 : kRows;
  const int64_t columns = bench.smoke() ? 256 : kColumns;
  const auto values = static_cast<uint64_t>(rows * columns);
  const uint64_t block_bytes = static_cast<uint64_t>(kBlockRows * columns);
  for (const CodecKind codec : {CodecKind::fixed4, CodecKind::huffman}) {
    if (!bench.backend()->decodes(codec)) continue;
    const std::vector<uint8_t> chunk = encode_chunk(codec, 0, {bench.exponents(rows * columns), values}, block_bytes);
    CudaRecovery recovery = blocks_of(codec, chunk, values, block_bytes);
    recovery.sign_mantissas = bench.sign_mantissas(rows * columns);
    recovery.rows = rows;
    recovery.columns = columns;
    recovery.matrix_bytes = bench.backend()->matrix_bytes(WeightFormat::bf16, rows, columns);
    const std::string name = codec == CodecKind::fixed4 ? "fixed4" : "huffman";
    measure_kernels(bench, name, recovery, static_cast<double>(chunk.size()));
    measure_loading(bench, name, recovery, chunk);
  }
}

void measure_copies(Bench& bench) {
  bench.add({"copy", "device to device, read and written", bench.copy_bandwidth() * 1e-9, "GB/s", {}, {}, {}});
  const uint64_t bytes = bench.smoke() ? 1 << 16 : kTransferBytes;
  const int times = bench.smoke() ? 1 : 8;
  const auto link = [&](const char* what, CudaCopy copy) {
    const double seconds = bench.speed().copy_seconds(copy, bytes, times);
    bench.add({"copy", what, static_cast<double>(bytes) / seconds * 1e-9, "GB/s", {}, {}, {}});
  };
  link("host to device, pinned", CudaCopy::from_pinned);
  link("host to device, pageable", CudaCopy::from_pageable);
}

}  // namespace odmoe::cuda_bench
