// Planes cut and joined again for every pattern, their sizes, and the speed of storage.
#include <array>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "native_tests.h"
#include "odmoe/read_speed.h"
#include "odmoe/store.h"

namespace odmoe::test {
namespace {

constexpr Split kSplits[] = {Split::none_bf16,    Split::none_fp16,       Split::none_fp32,       Split::bf16_e8_sm8,
                             Split::fp16_hi8_lo8, Split::fp32_e8_sm8_r16, Split::fp16_e5_lo8_s1m2};

// All patterns of two bytes, or equally many random patterns of four.
std::vector<uint8_t> every_pattern(Split split) {
  std::mt19937 generator(11);
  std::vector<uint8_t> values;
  for (uint32_t i = 0; i < 65536; i++) {
    const uint32_t pattern = value_bytes(split) == 2 ? i : static_cast<uint32_t>(generator());
    for (int byte = 0; byte < value_bytes(split); byte++) values.push_back(static_cast<uint8_t>(pattern >> 8 * byte));
  }
  return values;
}

void joins_what_it_cut() {
  for (const Split split : kSplits) {
    const std::string name = "split " + std::to_string(static_cast<int>(split));
    const std::vector<uint8_t> values = every_pattern(split);
    const auto planes = split_planes(values.data(), values.size(), split);
    check(planes.size() == static_cast<size_t>(plane_count(split)), name + ": planes");
    std::array<const uint8_t*, kMaxPlanes> pointers{};
    for (size_t i = 0; i < planes.size(); i++) {
      check(planes[i].size() == 65536u * static_cast<size_t>(plane_value_bytes(split, static_cast<int>(i))), name + ": size");
      pointers[i] = planes[i].data();
    }
    std::vector<uint8_t> joined(values.size());
    join_planes(joined.data(), pointers.data(), split, 65536);
    check(joined == values, name + ": joined");
  }
}

// Values of one type are the same numbers in every split.
void gives_the_same_numbers() {
  const Split pairs[][2] = {{Split::none_bf16, Split::bf16_e8_sm8},
                            {Split::none_fp16, Split::fp16_hi8_lo8},
                            {Split::none_fp16, Split::fp16_e5_lo8_s1m2},
                            {Split::none_fp32, Split::fp32_e8_sm8_r16}};
  for (const auto& [plain, cut] : pairs) {
    const std::vector<uint8_t> values = every_pattern(plain);
    const auto numbers = [&values](Split split) {
      const auto planes = split_planes(values.data(), values.size(), split);
      std::array<const uint8_t*, kMaxPlanes> pointers{};
      for (size_t i = 0; i < planes.size(); i++) pointers[i] = planes[i].data();
      std::vector<float> out(65536);
      planes_to_floats(out.data(), pointers.data(), split, 65536);
      return out;
    };
    const std::vector<float> expected = numbers(plain);
    const std::vector<float> found = numbers(cut);
    check(std::memcmp(expected.data(), found.data(), expected.size() * sizeof(float)) == 0,
          "split " + std::to_string(static_cast<int>(cut)));
  }
}

void packs_three_bits_of_fp16() {
  const std::vector<uint8_t> values = every_pattern(Split::fp16_e5_lo8_s1m2);
  const auto planes = split_planes(values.data(), values.size(), Split::fp16_e5_lo8_s1m2);
  for (size_t i = 0; i < 65536; i++) check(planes[0][i] < 32 && planes[2][i] < 8, "pattern " + std::to_string(i));
}

void measures_reading() {
  const std::string path = std::filesystem::temp_directory_path() / ("odmoe-reads-" + std::to_string(std::random_device{}()));
  std::ofstream(path, std::ios::binary) << std::string((5u << 20) + 100, 'x');
  const ReadSpeed whole = measure_reads(path, uint64_t{8} << 20, 60);
  const ReadSpeed part = measure_reads(path, 10000, 60);
  std::filesystem::resize_file(path, 100);
  const ReadSpeed little = measure_reads(path, 4096, 60);
  std::filesystem::remove(path);
  check(whole.read_bytes == (5u << 20) + 100 && whole.bytes_per_s > 0, "reads to the end of the file");
  check(part.read_bytes == 8192, "reads whole blocks");
  check(little.read_bytes == 100, "reads the part of a block that is there");
  check_refused(ErrorCode::storage_failed, [&path] { measure_reads(path, 4096, 1); });
  check_refused(ErrorCode::storage_failed, [] { measure_reads("/", 4096, 1); });
}

}  // namespace

void add_plane_cases(std::vector<Case>& cases) {
  cases.push_back({"planes: joins what it cut", joins_what_it_cut});
  cases.push_back({"planes: gives the same numbers", gives_the_same_numbers});
  cases.push_back({"planes: packs three bits of fp16", packs_three_bits_of_fp16});
  cases.push_back({"storage: measures reading", measures_reading});
}

}  // namespace odmoe::test
