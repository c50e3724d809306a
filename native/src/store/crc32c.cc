// CRC-32C by the processor's own instruction where it has one, by table elsewhere.
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
__attribute__((target("sse4.2"))) uint32_t crc_by_instruction(uint32_t crc, const uint8_t* bytes, uint64_t count) {
  uint64_t wide = crc;
  for (; count >= 8; bytes += 8, count -= 8) {
    uint64_t word;
    std::memcpy(&word, bytes, 8);
    wide = _mm_crc32_u64(wide, word);
  }
  crc = static_cast<uint32_t>(wide);
  for (; count > 0; bytes++, count--) crc = _mm_crc32_u8(crc, *bytes);
  return crc;
}
Crc choose() { return __builtin_cpu_supports("sse4.2") != 0 ? crc_by_instruction : crc_by_table; }
#elif defined(__aarch64__) && defined(__linux__)
__attribute__((target("+crc"))) uint32_t crc_by_instruction(uint32_t crc, const uint8_t* bytes, uint64_t count) {
  for (; count >= 8; bytes += 8, count -= 8) {
    uint64_t word;
    std::memcpy(&word, bytes, 8);
    crc = __crc32cd(crc, word);
  }
  for (; count > 0; bytes++, count--) crc = __crc32cb(crc, *bytes);
  return crc;
}
Crc choose() { return (getauxval(AT_HWCAP) & HWCAP_CRC32) != 0 ? crc_by_instruction : crc_by_table; }
#else
Crc choose() { return crc_by_table; }
#endif

}  // namespace

uint32_t crc32c(uint32_t seed, const uint8_t* bytes, uint64_t count) {
  static const Crc crc = choose();
  return ~crc(~seed, bytes, count);
}

}  // namespace odmoe
