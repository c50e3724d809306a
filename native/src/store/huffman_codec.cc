#include "huffman_codec.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "little_endian.h"
#include "prefix_code.h"

namespace odmoe {
namespace {

constexpr uint64_t kTableBytes = 128;  // a code length in four bits for each value
constexpr uint64_t kGroupStreams = 32;
constexpr uint64_t kGroupOffsetBytes = 4;
constexpr uint64_t kMostLookupValues = 6;
constexpr uint64_t kLongestStream = kStreamValues * kLongestCode / 8;
static_assert(kLongestStream <= UINT8_MAX, "a stream's length is one byte");

uint64_t streams_of(uint64_t values) { return (values + kStreamValues - 1) / kStreamValues; }
uint64_t stream_groups_of(uint64_t values) { return (streams_of(values) + kGroupStreams - 1) / kGroupStreams; }

class HuffmanEncoder : public BlockEncoder {
 public:
  explicit HuffmanEncoder(std::span<const uint8_t> plain)
      : lengths_(limited_code_lengths(count_bytes(plain), kLongestCode)), codes_(canonical_codes(lengths_)) {}

  std::vector<uint8_t> table() const override {
    std::vector<uint8_t> table(kTableBytes);
    for (size_t i = 0; i < kTableBytes; i++) {
      table[i] = static_cast<uint8_t>(lengths_[2 * i] | lengths_[2 * i + 1] << 4);
    }
    return table;
  }

  void encode(std::span<const uint8_t> plain, std::vector<uint8_t>& out) override {
    const size_t block = out.size();
    const uint64_t streams = streams_of(plain.size());
    const size_t stream_lengths = block + stream_groups_of(plain.size()) * kGroupOffsetBytes;
    size_t end = stream_lengths + streams;
    out.resize(end + streams * kLongestStream + sizeof(uint64_t));
    for (uint64_t stream = 0; stream < streams; stream++) {
      if (stream % kGroupStreams == 0) {
        store_number(out.data() + block + stream / kGroupStreams * kGroupOffsetBytes, static_cast<uint32_t>(end - block));
      }
      const uint64_t first = stream * kStreamValues;
      const uint64_t bytes = write_stream(plain.subspan(first, std::min(kStreamValues, plain.size() - first)), out.data() + end);
      out[stream_lengths + stream] = static_cast<uint8_t>(bytes);
      end += bytes;
    }
    out.resize(end);
  }

 private:
  // Returns the stream's bytes; writes up to seven more.
  uint64_t write_stream(std::span<const uint8_t> values, uint8_t* out) const {
    uint64_t bits = 0;
    uint64_t filled = 0;
    uint8_t* next = out;
    for (const uint8_t value : values) {
      bits |= static_cast<uint64_t>(codes_[value]) << filled;
      filled += lengths_[value];
      if (filled < 64 - kLongestCode) continue;
      store_number(next, bits);
      next += filled / 8;
      bits >>= filled / 8 * 8;
      filled %= 8;
    }
    store_number(next, bits);
    return static_cast<uint64_t>(next - out) + (filled + 7) / 8;
  }

  CodeLengths lengths_;
  std::array<uint16_t, 256> codes_;
};

class HuffmanDecoder : public BlockDecoder {
 public:
  explicit HuffmanDecoder(const PlaneKernels& kernels) : kernels_(kernels) {}

  uint64_t table_bytes() const override { return kTableBytes; }

  void open(const uint8_t* table) override {
    CodeLengths lengths;
    for (size_t i = 0; i < kTableBytes; i++) {
      lengths[2 * i] = table[i] & 15;
      lengths[2 * i + 1] = table[i] >> 4;
    }
    if (!is_complete(lengths, kLongestCode)) throw_corrupt_chunk("its Huffman code is none");
    fill_lookup(lengths);
  }

  void check(std::span<const uint8_t> coded, uint64_t plain_bytes) const override {
    const uint64_t streams = streams_of(plain_bytes);
    const uint64_t fixed_bytes = stream_groups_of(plain_bytes) * kGroupOffsetBytes + streams;
    if (coded.size() < fixed_bytes) throw_corrupt_chunk("a Huffman block is too short");
    const uint8_t* const lengths = coded.data() + fixed_bytes - streams;
    uint64_t next = fixed_bytes;
    for (uint64_t stream = 0; stream < streams; stream++) {
      check_group(coded, stream, next);
      if (lengths[stream] > coded.size() - next) throw_corrupt_chunk("a Huffman block ends within a stream");
      next += lengths[stream];
    }
    if (next != coded.size()) throw_corrupt_chunk("a Huffman block is longer than its streams");
  }

  void decode(std::span<const uint8_t> coded, std::span<uint8_t> plain) override {
    check(coded, plain.size());
    const uint64_t streams = streams_of(plain.size());
    const uint64_t fixed_bytes = stream_groups_of(plain.size()) * kGroupOffsetBytes + streams;
    const uint8_t* const lengths = coded.data() + fixed_bytes - streams;
    const uint8_t* const end = coded.data() + coded.size();
    const uint8_t* next = coded.data() + fixed_bytes;
    for (uint64_t stream = 0; stream < streams; stream += kStreamsAtOnce) {
      const auto count = static_cast<int>(std::min<uint64_t>(kStreamsAtOnce, streams - stream));
      const uint8_t* starts[kStreamsAtOnce] = {};
      for (int i = 0; i < count; i++) {
        starts[i] = next;
        next += lengths[stream + static_cast<uint64_t>(i)];
      }
      const uint64_t first = stream * kStreamValues;
      const uint64_t values = std::min(kStreamsAtOnce * kStreamValues, plain.size() - first);
      if (values == kStreamsAtOnce * kStreamValues && starts[kStreamsAtOnce - 1] + kStreamReadBytes <= end) {
        kernels_.decode_streams(lookup_.data(), starts, plain.data() + first);
      } else {
        decode_last(starts, count, end, plain.subspan(first, values));
      }
    }
  }

 private:
  // The start of each group of streams is stored for decoders that begin there; it must equal the sum of the lengths.
  static void check_group(std::span<const uint8_t> coded, uint64_t stream, uint64_t next) {
    if (stream % kGroupStreams != 0) return;
    const uint64_t offset = load_number<uint32_t>(coded.data() + stream / kGroupStreams * kGroupOffsetBytes);
    if (offset != next) {
      throw_corrupt_chunk("a Huffman block's offsets and lengths contradict each other");
    }
  }

  // Decodes copies of streams that are so near the block's end that reads might leave it, or that are fewer than four.
  void decode_last(const uint8_t* const* starts, int count, const uint8_t* end, std::span<uint8_t> plain) {
    uint8_t copies[kStreamsAtOnce][kStreamReadBytes] = {};
    const uint8_t* readable[kStreamsAtOnce] = {};
    for (int i = 0; i < kStreamsAtOnce; i++) {
      readable[i] = copies[i];
      if (i >= count) continue;
      std::memcpy(copies[i], starts[i], std::min(kStreamReadBytes, static_cast<uint64_t>(end - starts[i])));
    }
    uint8_t values[kStreamsAtOnce * kStreamValues];
    kernels_.decode_streams(lookup_.data(), readable, values);
    std::memcpy(plain.data(), values, plain.size());
  }

  void fill_lookup(const CodeLengths& lengths) {
    const std::array<uint16_t, 256> codes = canonical_codes(lengths);
    for (size_t value = 0; value < codes.size(); value++) {
      if (lengths[value] == 0) continue;
      const uint64_t step = uint64_t{1} << lengths[value];
      for (uint64_t bits = codes[value]; bits < kLookupEntries; bits += step) {
        first_[bits] = {static_cast<uint8_t>(value), lengths[value]};
      }
    }
    for (uint64_t bits = 0; bits < kLookupEntries; bits++) lookup_[bits] = lookup_entry(bits);
  }

  // The entry has all values whose codes lie completely within the bits.
  uint64_t lookup_entry(uint64_t bits) const {
    uint64_t entry = 0;
    uint64_t count = 0;
    uint64_t taken = 0;
    while (count < kMostLookupValues) {
      const First first = first_[bits >> taken];
      if (taken + first.length > kLongestCode) break;
      entry |= static_cast<uint64_t>(first.value) << 8 * count++;
      taken += first.length;
    }
    return entry | count << 48 | taken << 56;
  }

  struct First {
    uint8_t value;
    uint8_t length;
  };

  const PlaneKernels& kernels_;
  std::array<First, kLookupEntries> first_{};
  std::array<uint64_t, kLookupEntries> lookup_{};  // see PlaneKernels::decode_streams
};

}  // namespace

std::unique_ptr<BlockEncoder> make_huffman_encoder(std::span<const uint8_t> plain) {
  return std::make_unique<HuffmanEncoder>(plain);
}

std::unique_ptr<BlockDecoder> make_huffman_decoder(const PlaneKernels& kernels) {
  return std::make_unique<HuffmanDecoder>(kernels);
}

}  // namespace odmoe
