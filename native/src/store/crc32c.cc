// CRC-32C by the processor's instruction where it has one, otherwise by table.
#include <array>
#include <cstring>

#include "odmoe/store.h"

#if defined(__x86_64__)
#include <nmmintrin.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <arm_acle.h>
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace odmoe {
namespace {

constexpr uint32_t kReversedPolynomial = 0x82F63B78u;

using Crc = uint32_t (*)(uint32_t, const uint8_t*, uint64_t);

// Eight tables: entry [t][b] is the CRC of byte b followed by t zero bytes ("slicing by 8").
constexpr std::array<std::array<uint32_t, 256>, 8> make_tables() {
  std::array<std::array<uint32_t, 256>, 8> tables{};
  for (uint32_t byte = 0; byte < 256; byte++) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; bit++) crc = (crc >> 1) ^ ((crc & 1) != 0 ? kReversedPolynomial : 0);
    tables[0][byte] = crc;
  }
  for (size_t t = 1; t < 8; t++) {
    for (size_t byte = 0; byte < 256; byte++) {
      const uint32_t previous = tables[t - 1][byte];
      tables[t][byte] = (previous >> 8) ^ tables[0][previous & 0xFF];
    }
  }
  return tables;
}

uint32_t crc_by_table(uint32_t crc, const uint8_t* bytes, uint64_t count) {
  static constexpr auto tables = make_tables();
  for (; count >= 8; bytes += 8, count -= 8) {
    const uint32_t low = crc ^ (static_cast<uint32_t>(bytes[0]) | static_cast<uint32_t>(bytes[1]) << 8 |
                                static_cast<uint32_t>(bytes[2]) << 16 | static_cast<uint32_t>(bytes[3]) << 24);
    crc = tables[7][low & 0xFF] ^ tables[6][(low >> 8) & 0xFF] ^ tables[5][(low >> 16) & 0xFF] ^ tables[4][low >> 24] ^
          tables[3][bytes[4]] ^ tables[2][bytes[5]] ^ tables[1][bytes[6]] ^ tables[0][bytes[7]];
  }
  for (; count > 0; bytes++, count--) crc = (crc >> 8) ^ tables[0][(crc ^ *bytes) & 0xFF];
  return crc;
}

#if defined(__x86_64__)
#define ODMOE_CRC_TARGET __attribute__((target("sse4.2")))
ODMOE_CRC_TARGET inline uint32_t add_word(uint32_t crc, uint64_t word) { return static_cast<uint32_t>(_mm_crc32_u64(crc, word)); }
ODMOE_CRC_TARGET inline uint32_t add_byte(uint32_t crc, uint8_t byte) { return _mm_crc32_u8(crc, byte); }
bool has_instruction() { return __builtin_cpu_supports("sse4.2") != 0; }
#elif defined(__aarch64__) && defined(__linux__)
#define ODMOE_CRC_TARGET __attribute__((target("+crc")))
ODMOE_CRC_TARGET inline uint32_t add_word(uint32_t crc, uint64_t word) { return __crc32cd(crc, word); }
ODMOE_CRC_TARGET inline uint32_t add_byte(uint32_t crc, uint8_t byte) { return __crc32cb(crc, byte); }
bool has_instruction() { return (getauxval(AT_HWCAP) & HWCAP_CRC32) != 0; }
#endif

#if defined(ODMOE_CRC_TARGET)
// The instruction has a latency of three cycles but can start in each cycle: three ranges are processed side by side.
constexpr uint64_t kStretch = 1024;

// Entry [i][b]: the contribution of byte i of a CRC, with value b, after kStretch zero bytes.
constexpr std::array<std::array<uint32_t, 256>, 4> make_shifts() {
  const std::array<uint32_t, 256> by_byte = make_tables()[0];
  std::array<uint32_t, 32> by_bit{};
  for (size_t bit = 0; bit < 32; bit++) {
    uint32_t crc = 1u << bit;
    for (uint64_t i = 0; i < kStretch; i++) crc = (crc >> 8) ^ by_byte[crc & 0xFF];
    by_bit[bit] = crc;
  }
  std::array<std::array<uint32_t, 256>, 4> shifts{};
  for (size_t at = 0; at < 4; at++) {
    for (size_t byte = 0; byte < 256; byte++) {
      for (size_t bit = 0; bit < 8; bit++) shifts[at][byte] ^= (byte >> bit & 1) != 0 ? by_bit[8 * at + bit] : 0;
    }
  }
  return shifts;
}

uint32_t shift_by_stretch(uint32_t crc) {
  static constexpr auto shifts = make_shifts();
  return shifts[0][crc & 0xFF] ^ shifts[1][(crc >> 8) & 0xFF] ^ shifts[2][(crc >> 16) & 0xFF] ^ shifts[3][crc >> 24];
}

uint64_t word_at(const uint8_t* bytes) {
  uint64_t word;
  std::memcpy(&word, bytes, 8);
  return word;
}

ODMOE_CRC_TARGET uint32_t crc_by_instruction(uint32_t crc, const uint8_t* bytes, uint64_t count) {
  for (; count >= 3 * kStretch; bytes += 3 * kStretch, count -= 3 * kStretch) {
    uint32_t second = 0;
    uint32_t third = 0;
    for (uint64_t i = 0; i < kStretch; i += 8) {
      crc = add_word(crc, word_at(bytes + i));
      second = add_word(second, word_at(bytes + kStretch + i));
      third = add_word(third, word_at(bytes + 2 * kStretch + i));
    }
    crc = shift_by_stretch(shift_by_stretch(crc) ^ second) ^ third;
  }
  for (; count >= 8; bytes += 8, count -= 8) crc = add_word(crc, word_at(bytes));
  for (; count > 0; bytes++, count--) crc = add_byte(crc, *bytes);
  return crc;
}
Crc choose() { return has_instruction() ? crc_by_instruction : crc_by_table; }
#else
Crc choose() { return crc_by_table; }
#endif

}  // namespace

uint32_t crc32c(uint32_t seed, const uint8_t* bytes, uint64_t count) {
  static const Crc crc = choose();
  return ~crc(~seed, bytes, count);
}

}  // namespace odmoe
