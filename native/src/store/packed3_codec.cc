#include "packed3_codec.h"

#include <algorithm>

#include "little_endian.h"
#include "odmoe/error.h"

namespace odmoe {
namespace {

constexpr uint64_t kGroup = 8;
constexpr uint64_t kGroupBytes = 3;

// Spreads eight 3-bit values to one byte each: it separates halves, then quarters, then single values.
uint64_t spread(uint64_t bits) {
  bits = (bits | bits << 20) & 0x00000FFF00000FFFu;
  bits = (bits | bits << 10) & 0x003F003F003F003Fu;
  return (bits | bits << 5) & 0x0707070707070707u;
}

class Packed3Encoder : public BlockEncoder {
 public:
  void encode(std::span<const uint8_t> plain, std::vector<uint8_t>& out) override {
    for (uint64_t start = 0; start < plain.size(); start += kGroup) {
      uint32_t bits = 0;
      for (uint64_t i = 0; i < std::min(kGroup, plain.size() - start); i++) bits |= plain[start + i] << 3 * i;
      for (uint64_t i = 0; i < kGroupBytes; i++) out.push_back(static_cast<uint8_t>(bits >> 8 * i));
    }
  }
};

class Packed3Decoder : public BlockDecoder {
 public:
  void decode(std::span<const uint8_t> coded, std::span<uint8_t> plain) override {
    const uint64_t groups = (plain.size() + kGroup - 1) / kGroup;
    if (coded.size() != groups * kGroupBytes) throw_corrupt_chunk("a packed3 block has another size than it should");
    const uint8_t* in = coded.data();
    uint8_t* out = plain.data();
    // Four bytes are read for each three, except for the last group.
    for (uint64_t group = 0; group + 1 < groups; group++, in += kGroupBytes, out += kGroup) {
      store_number(out, spread(load_number<uint32_t>(in) & 0xFFFFFF));
    }
    store_number(out, spread(static_cast<uint64_t>(in[0] | in[1] << 8 | in[2] << 16)));
  }
};

}  // namespace

std::unique_ptr<BlockEncoder> make_packed3_encoder(std::span<const uint8_t> plain) {
  if (std::any_of(plain.begin(), plain.end(), [](uint8_t value) { return value > 7; })) {
    throw Error(ErrorCode::internal, "packed3 takes values of 3 bits only");
  }
  return std::make_unique<Packed3Encoder>();
}

std::unique_ptr<BlockDecoder> make_packed3_decoder() { return std::make_unique<Packed3Decoder>(); }

}  // namespace odmoe
