// The codecs' inner loops give the same bytes on every instruction set, at any alignment, and access nothing outside their data.
#include <algorithm>
#include <cstring>
#include <random>

#include "../src/store/plane_kernels.h"
#include "native_tests.h"

namespace odmoe::test {
namespace {

constexpr uint8_t kUntouched = 0xA5;

std::vector<uint8_t> random_bytes(size_t count, uint32_t seed) {
  std::mt19937 generator(seed);
  std::vector<uint8_t> bytes(count);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(generator());
  return bytes;
}

template <typename Body>
void for_vector_kernels(Body body) {
  for (const PlaneKernels* const* kernels = usable_plane_kernels(); *kernels != nullptr; kernels++) {
    if (*kernels != &kScalarPlaneKernels) body(**kernels);
  }
}

void expands_codes_alike() {
  const auto codes = random_bytes(40 * kGroupCodeBytes, 1);
  const auto table = random_bytes(16, 2);
  for_vector_kernels([&](const PlaneKernels& kernels) {
    for (uint64_t groups = 0; groups <= 40; groups++) {
      std::vector<uint8_t> expected(groups * kGroupValues + 1, kUntouched);
      std::vector<uint8_t> actual = expected;
      kScalarPlaneKernels.expand_codes(codes.data(), table.data(), expected.data(), groups);
      kernels.expand_codes(codes.data(), table.data(), actual.data(), groups);
      check(actual == expected, std::to_string(groups) + " groups on " + kernels.name);
    }
  });
}

void merges_alike() {
  const size_t most = 700;
  const auto exponents = random_bytes(most, 3);
  const auto sign_mantissas = random_bytes(most, 4);
  for_vector_kernels([&](const PlaneKernels& kernels) {
    for (size_t count = 0; count <= most; count += count < 150 ? 1 : 61) {
      for (size_t shift = 0; shift < 66; shift += shift < 4 ? 1 : 31) {
        std::vector<uint8_t> expected(2 * count + shift + 1, kUntouched);
        kScalarPlaneKernels.merge_bf16(exponents.data(), sign_mantissas.data(), expected.data() + shift, count, false);
        for (const bool streaming : {false, true}) {
          std::vector<uint8_t> actual(expected.size(), kUntouched);
          kernels.merge_bf16(exponents.data(), sign_mantissas.data(), actual.data() + shift, count, streaming);
          check(actual == expected, std::to_string(count) + " values on " + kernels.name);
        }
      }
    }
  });
}

// All kinds of lookup tables, with meaningless entries: the loops must agree and end.
void decodes_streams_alike() {
  for (uint32_t seed = 0; seed < 50; seed++) {
    std::mt19937_64 generator(seed);
    std::vector<uint64_t> lookup(kLookupEntries);
    for (uint64_t& entry : lookup) {
      const uint64_t count = 1 + generator() % 6;
      const uint64_t bits = 1 + generator() % kLongestCode;
      entry = (generator() & 0xFFFFFFFFFFFF) | count << 48 | bits << 56;
    }
    const auto streams = random_bytes(kStreamsAtOnce * kStreamReadBytes, seed + 100);
    const uint8_t* starts[kStreamsAtOnce];
    for (size_t i = 0; i < kStreamsAtOnce; i++) starts[i] = streams.data() + i * kStreamReadBytes;
    std::vector<uint8_t> expected(kStreamsAtOnce * kStreamValues);
    kScalarPlaneKernels.decode_streams(lookup.data(), starts, expected.data());
    for_vector_kernels([&](const PlaneKernels& kernels) {
      std::vector<uint8_t> actual(expected.size());
      kernels.decode_streams(lookup.data(), starts, actual.data());
      check(actual == expected, std::string("streams on ") + kernels.name);
    });
  }
}

// The exponents stand alone, or at the end of the place for the values.
void joins_e4m3_alike() {
  const uint64_t most = 40;
  const auto exponents = random_bytes(most * kE4m3GroupBytes, 5);
  const auto sign_mantissas = random_bytes(most * kE4m3GroupBytes, 6);
  for (const PlaneKernels* const* kernels = usable_plane_kernels(); *kernels != nullptr; kernels++) {
    for (uint64_t groups = 0; groups <= most; groups++) {
      std::vector<uint8_t> expected(groups * kE4m3GroupValues + 1, kUntouched);
      for (uint64_t i = 0; i < groups * kE4m3GroupValues; i++) {
        const uint64_t byte = i / kE4m3GroupValues * kE4m3GroupBytes + i % kE4m3GroupBytes;
        const int shift = i % kE4m3GroupValues < kE4m3GroupBytes ? 0 : 4;
        const int sm = sign_mantissas[byte] >> shift & 15;
        expected[i] = static_cast<uint8_t>((sm >> 3) << 7 | (exponents[byte] >> shift & 15) << 3 | (sm & 7));
      }
      std::vector<uint8_t> actual(expected.size(), kUntouched);
      (*kernels)->join_e4m3(exponents.data(), sign_mantissas.data(), actual.data(), groups);
      check(actual == expected, std::to_string(groups) + " groups on " + (*kernels)->name);
      std::copy_n(exponents.data(), groups * kE4m3GroupBytes, actual.data() + groups * kE4m3GroupBytes);
      (*kernels)->join_e4m3(actual.data() + groups * kE4m3GroupBytes, sign_mantissas.data(), actual.data(), groups);
      check(actual == expected, std::to_string(groups) + " groups in place on " + (*kernels)->name);
    }
  }
}

// The slowest case: one value of eleven bits per lookup.
void decodes_the_slowest_streams() {
  std::vector<uint64_t> lookup(kLookupEntries, uint64_t{77} | uint64_t{1} << 48 | uint64_t{kLongestCode} << 56);
  const std::vector<uint8_t> streams(kStreamReadBytes);
  const uint8_t* const starts[kStreamsAtOnce] = {streams.data(), streams.data(), streams.data(), streams.data()};
  for (const PlaneKernels* const* kernels = usable_plane_kernels(); *kernels != nullptr; kernels++) {
    std::vector<uint8_t> values(kStreamsAtOnce * kStreamValues);
    (*kernels)->decode_streams(lookup.data(), starts, values.data());
    check(values == std::vector<uint8_t>(values.size(), 77), (*kernels)->name);
  }
}

}  // namespace

void add_codec_kernel_cases(std::vector<Case>& cases) {
  cases.push_back({"codec kernels expand codes alike", expands_codes_alike});
  cases.push_back({"codec kernels merge alike", merges_alike});
  cases.push_back({"codec kernels join e4m3 alike", joins_e4m3_alike});
  cases.push_back({"codec kernels decode streams alike", decodes_streams_alike});
  cases.push_back({"codec kernels decode the slowest streams", decodes_the_slowest_streams});
}

}  // namespace odmoe::test
