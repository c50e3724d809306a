#include "odmoe/codec_speed.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "odmoe/error.h"
#include "odmoe/store.h"

namespace odmoe {
namespace {

constexpr uint64_t kBlockBytes = 128 * 1024;
constexpr uint64_t kRowMultiple = 16;
// A larger tensor is written past the caches, as memcpy does.
constexpr uint64_t kStreamingBytes = uint64_t{16} << 20;
// Smaller tensors are decoded several times per round, so that a round is long compared with the clock's resolution.
constexpr uint64_t kRoundBytes = uint64_t{4} << 20;
constexpr std::align_val_t kAlignment{64};

// The same block size as in packing (blockRows in shared/pack/pack-layout.ts): a multiple of 16 rows near kBlockBytes.
uint64_t block_bytes_of(uint64_t columns) {
  const uint64_t group_bytes = columns * kRowMultiple;
  const uint64_t groups = std::max<uint64_t>(1, (kBlockBytes + group_bytes / 2) / group_bytes);
  return columns * std::min(groups * kRowMultiple, std::max<uint64_t>(1, kLargestPlainBlock / columns));
}

struct AlignedDelete {
  void operator()(uint8_t* bytes) const { ::operator delete[](bytes, kAlignment); }
};

using Seconds = std::chrono::duration<double>;

template <typename Task>
double seconds_of(Task task) {
  const auto start = std::chrono::steady_clock::now();
  task();
  return Seconds(std::chrono::steady_clock::now() - start).count();
}

class Measurement {
 public:
  Measurement(CodecKind codec, int level, std::span<const uint8_t> values, uint64_t columns)
      : codec_(codec),
        level_(level),
        values_(values),
        block_bytes_(block_bytes_of(columns)),
        planes_(split_planes(values.data(), values.size(), Split::bf16_e8_sm8)),
        out_(static_cast<uint8_t*>(::operator new[](values.size(), kAlignment))),
        scratch_(std::min(block_bytes_, planes_[0].size()) + ChunkDecoder::kScratchSlack),
        repeats_(std::max<uint64_t>(1, kRoundBytes / values.size())) {}

  CodecSpeed run(double seconds) {
    const double encode_seconds =
        fastest(seconds / 4, [this] { stored_ = encode_chunk(codec_, level_, planes_[0], block_bytes_); });
    double decode_seconds = 1e9;
    double copy_seconds = 1e9;
    double spent = 0;
    do {
      const double decoding = seconds_of([this] { repeat([this] { decode(); }); });
      if (spent == 0 && std::memcmp(out_.get(), values_.data(), values_.size()) != 0) {
        throw Error(ErrorCode::internal, "a tensor was not decoded to what it was");
      }
      const double copying = seconds_of([this] { repeat([this] { copy(); }); });
      decode_seconds = std::min(decode_seconds, decoding);
      copy_seconds = std::min(copy_seconds, copying);
      spent += decoding + copying;
    } while (spent < seconds);
    const auto bytes = static_cast<double>(values_.size());
    const double round_bytes = bytes * static_cast<double>(repeats_);
    return {static_cast<double>(stored_.size() + planes_[1].size()) / bytes, bytes / encode_seconds, round_bytes / decode_seconds,
            round_bytes / copy_seconds};
  }

 private:
  template <typename Task>
  static double fastest(double seconds, Task task) {
    double best = 1e9;
    double spent = 0;
    do {
      const double taken = seconds_of(task);
      best = std::min(best, taken);
      spent += taken;
    } while (spent < seconds);
    return best;
  }

  template <typename Task>
  void repeat(Task task) {
    for (uint64_t i = 0; i < repeats_; i++) task();
  }

  void decode() {
    const bool streaming = values_.size() >= kStreamingBytes;
    decoder_.open(codec_, stored_, planes_[0].size(), block_bytes_);
    for (uint64_t i = 0; i < decoder_.block_count(); i++) {
      const uint64_t first = i * block_bytes_;
      const uint8_t* const exponents = decoder_.decode_block(i, scratch_.data());
      merge_bf16(exponents, planes_[1].data() + first, out_.get() + 2 * first, decoder_.plain_bytes_of(i), streaming);
    }
  }

  void copy() { std::memcpy(out_.get(), values_.data(), values_.size()); }

  CodecKind codec_;
  int level_;
  std::span<const uint8_t> values_;
  uint64_t block_bytes_;
  std::vector<std::vector<uint8_t>> planes_;
  std::unique_ptr<uint8_t[], AlignedDelete> out_;
  std::vector<uint8_t> scratch_;
  uint64_t repeats_;
  std::vector<uint8_t> stored_;
  ChunkDecoder decoder_;
};

}  // namespace

CodecSpeed measure_codec(CodecKind codec, int level, std::span<const uint8_t> values, uint64_t columns, double seconds) {
  if (columns == 0 || columns > kLargestPlainBlock || values.empty() || values.size() % (2 * columns) != 0) {
    throw Error(ErrorCode::internal,
                std::to_string(values.size()) + " bytes are not rows of " + std::to_string(columns) + " BF16 values");
  }
  return Measurement(codec, level, values, columns).run(seconds);
}

}  // namespace odmoe
