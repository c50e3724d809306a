#include "fixed4_codec.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "histogram.h"
#include "little_endian.h"

namespace odmoe {
namespace {

constexpr uint64_t kTableBytes = 16;
constexpr uint8_t kEscape = 15;
// Escapes are listed by windows, so that 16 bits can hold an escape's position in its window.
constexpr uint64_t kWindowValues = 65536;
constexpr uint64_t kWindowEntryBytes = 4;
constexpr uint64_t kPositionBytes = 2;

uint64_t groups_of(uint64_t values) { return (values + kGroupValues - 1) / kGroupValues; }
uint64_t windows_of(uint64_t values) { return (values + kWindowValues - 1) / kWindowValues; }

class Fixed4Encoder : public BlockEncoder {
 public:
  explicit Fixed4Encoder(std::span<const uint8_t> plain) {
    const Histogram counts = count_bytes(plain);
    std::array<uint8_t, 256> values;
    std::iota(values.begin(), values.end(), uint8_t{0});
    std::stable_sort(values.begin(), values.end(), [&](uint8_t a, uint8_t b) { return counts[a] > counts[b]; });
    codes_.fill(kEscape);
    for (uint8_t code = 0; code < kEscape && counts[values[code]] > 0; code++) {
      values_[code] = values[code];
      codes_[values[code]] = code;
    }
  }

  std::vector<uint8_t> table() const override { return {values_.begin(), values_.end()}; }

  void encode(std::span<const uint8_t> plain, std::vector<uint8_t>& out) override {
    const size_t block = out.size();
    const uint64_t code_bytes = groups_of(plain.size()) * kGroupCodeBytes;
    out.resize(block + code_bytes + windows_of(plain.size()) * kWindowEntryBytes);
    std::vector<uint8_t> positions;
    std::vector<uint8_t> symbols;
    for (uint64_t group = 0; group < groups_of(plain.size()); group++) {
      const uint64_t first = group * kGroupValues;
      const std::span<const uint8_t> values = plain.subspan(first, std::min(kGroupValues, plain.size() - first));
      if (encode_group(values, out.data() + block + group * kGroupCodeBytes)) {
        list_escapes(values, first % kWindowValues, positions, symbols);
      }
      // Windows consist of whole groups: the value that the window's last group writes here is the final one.
      store_number(out.data() + block + code_bytes + first / kWindowValues * kWindowEntryBytes,
                   static_cast<uint32_t>(symbols.size()));
    }
    out.insert(out.end(), positions.begin(), positions.end());
    out.insert(out.end(), symbols.begin(), symbols.end());
  }

 private:
  // Returns true if there is an escape among the values. Codes past the last value are 0.
  bool encode_group(std::span<const uint8_t> values, uint8_t* out) const {
    std::array<uint8_t, kGroupValues> codes{};
    bool escaped = false;
    for (size_t i = 0; i < values.size(); i++) {
      codes[i] = codes_[values[i]];
      escaped |= codes[i] == kEscape;
    }
    for (size_t j = 0; j < kGroupCodeBytes; j++) {
      out[j] = static_cast<uint8_t>(codes[j] | codes[kGroupCodeBytes + j] << 4);
    }
    return escaped;
  }

  void list_escapes(std::span<const uint8_t> values, uint64_t first_position, std::vector<uint8_t>& positions,
                    std::vector<uint8_t>& symbols) const {
    for (size_t i = 0; i < values.size(); i++) {
      if (codes_[values[i]] != kEscape) continue;
      const uint64_t position = first_position + i;
      positions.push_back(static_cast<uint8_t>(position));
      positions.push_back(static_cast<uint8_t>(position >> 8));
      symbols.push_back(values[i]);
    }
  }

  std::array<uint8_t, kTableBytes> values_{};  // by code; the escape's is unused
  std::array<uint8_t, 256> codes_;
};

class Fixed4Decoder : public BlockDecoder {
 public:
  explicit Fixed4Decoder(const PlaneKernels& kernels) : kernels_(kernels) {}

  uint64_t table_bytes() const override { return kTableBytes; }
  void open(const uint8_t* table) override { std::copy(table, table + kTableBytes, table_.begin()); }

  void check(std::span<const uint8_t> coded, uint64_t plain_bytes) const override {
    const uint64_t code_bytes = groups_of(plain_bytes) * kGroupCodeBytes;
    const uint64_t fixed_bytes = code_bytes + windows_of(plain_bytes) * kWindowEntryBytes;
    if (coded.size() < fixed_bytes) throw_corrupt_chunk("a fixed4 block is too short");
    uint64_t escapes = 0;
    for (uint64_t at = code_bytes; at < fixed_bytes; at += kWindowEntryBytes) {
      const uint64_t end = load_number<uint32_t>(coded.data() + at);
      if (end < escapes) throw_corrupt_chunk("a fixed4 block's windows contradict each other");
      escapes = end;
    }
    if (coded.size() != fixed_bytes + escapes * (kPositionBytes + 1)) {
      throw_corrupt_chunk("a fixed4 block does not hold its escapes");
    }
  }

  void decode(std::span<const uint8_t> coded, std::span<uint8_t> plain) override {
    check(coded, plain.size());
    const uint64_t code_bytes = groups_of(plain.size()) * kGroupCodeBytes;
    const uint64_t fixed_bytes = code_bytes + windows_of(plain.size()) * kWindowEntryBytes;
    const uint64_t escapes = load_number<uint32_t>(coded.data() + fixed_bytes - kWindowEntryBytes);
    kernels_.expand_codes(coded.data(), table_.data(), plain.data(), groups_of(plain.size()));
    const uint8_t* const positions = coded.data() + fixed_bytes;
    const uint8_t* const symbols = positions + escapes * kPositionBytes;
    uint64_t escape = 0;
    for (uint64_t window = 0; window < windows_of(plain.size()); window++) {
      const uint64_t end = load_number<uint32_t>(coded.data() + code_bytes + window * kWindowEntryBytes);
      const std::span<uint8_t> values = plain.subspan(window * kWindowValues);
      for (; escape < end; escape++) {
        const uint64_t position = load_number<uint16_t>(positions + escape * kPositionBytes);
        if (position >= values.size()) throw_corrupt_chunk("an escape of a fixed4 block lies outside it");
        values[position] = symbols[escape];
      }
    }
  }

 private:
  const PlaneKernels& kernels_;
  std::array<uint8_t, kTableBytes> table_{};
};

}  // namespace

std::unique_ptr<BlockEncoder> make_fixed4_encoder(std::span<const uint8_t> plain) { return std::make_unique<Fixed4Encoder>(plain); }

std::unique_ptr<BlockDecoder> make_fixed4_decoder(const PlaneKernels& kernels) { return std::make_unique<Fixed4Decoder>(kernels); }

}  // namespace odmoe
