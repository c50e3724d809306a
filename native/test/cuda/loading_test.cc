// Weights are written to the device: plain and coded, in pieces, by several threads, from memory that is reused at once.
#include <algorithm>
#include <atomic>
#include <exception>
#include <functional>
#include <mutex>
#include <numeric>
#include <thread>

#include "coded_tensor.h"
#include "odmoe/error.h"

namespace odmoe::cuda_test {
namespace {

constexpr Split kSplits[] = {Split::none_bf16,    Split::none_fp16,       Split::none_fp32,       Split::bf16_e8_sm8,
                             Split::fp16_hi8_lo8, Split::fp32_e8_sm8_r16, Split::fp16_e5_lo8_s1m2};

WeightFormat exact_format_of(Split split) {
  if (split == Split::none_bf16 || split == Split::bf16_e8_sm8) return WeightFormat::bf16;
  return split == Split::none_fp32 || split == Split::fp32_e8_sm8_r16 ? WeightFormat::fp32 : WeightFormat::fp16;
}

std::string describe(const PlainTensor& tensor, CodecKind codec) {
  return "split " + std::to_string(static_cast<int>(tensor.split)) + ", codec " + std::to_string(static_cast<int>(codec)) + ", " +
         std::to_string(tensor.rows) + " x " + std::to_string(tensor.columns);
}

struct RowRange {
  int64_t first;
  int64_t rows;
};

// All rows, cut at random, in random order.
std::vector<RowRange> random_ranges(std::mt19937& random, int64_t rows, int64_t most) {
  std::vector<RowRange> ranges;
  for (int64_t row = 0; row < rows;) {
    const int64_t count = std::min<int64_t>(rows - row, 1 + static_cast<int64_t>(random() % static_cast<uint64_t>(most)));
    ranges.push_back({row, count});
    row += count;
  }
  std::shuffle(ranges.begin(), ranges.end(), random);
  return ranges;
}

// Calls `write` for all ranges, on six threads (more than there are lanes). Throws the first error.
void on_threads(const std::vector<RowRange>& ranges, const std::function<void(RowRange)>& write) {
  std::atomic<size_t> next = 0;
  std::mutex mutex;
  std::exception_ptr error;
  std::vector<std::thread> threads;
  for (int i = 0; i < 6; ++i) {
    threads.emplace_back([&] {
      try {
        for (size_t at = next++; at < ranges.size(); at = next++) write(ranges[at]);
      } catch (...) {
        const std::lock_guard lock(mutex);
        error = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (error != nullptr) std::rethrow_exception(error);
}

// Writes each range from its own pinned memory, which is overwritten with noise as soon as it may be reused.
void write_range_plain(const std::shared_ptr<Backend>& cuda, Matrix& matrix, const PlainTensor& tensor, RowRange range,
                       uint64_t offset) {
  std::vector<std::unique_ptr<Staging>> copies;
  const uint8_t* planes[kMaxPlanes] = {};
  for (int plane = 0; plane < plane_count(tensor.split); ++plane) {
    const uint8_t* const begin =
        tensor.planes[static_cast<size_t>(plane)].data() + static_cast<uint64_t>(range.first) * tensor.row_bytes(plane);
    const std::vector<uint8_t> bytes(begin, begin + static_cast<uint64_t>(range.rows) * tensor.row_bytes(plane));
    copies.push_back(std::make_unique<Staging>(cuda, bytes, offset));
    planes[plane] = copies.back()->bytes();
  }
  expect(cuda->write_rows(matrix, range.first, range.rows, tensor.split, planes), "rows do not fit their format");
  for (const auto& copy : copies) copy->fill(0xee);
}

void plain_rows_in_pieces(Devices& devices, Split split, WeightFormat format) {
  const PlainTensor tensor = random_tensor(devices.random, split, 61, 200);
  const std::string what = describe(tensor, CodecKind::raw) + ", format " + std::to_string(static_cast<int>(format));
  StoredWeights whole(devices.cuda, format, tensor.rows, tensor.columns);
  write_plain(*devices.cuda, whole.matrix, 0, tensor);
  StoredWeights pieces(devices.cuda, format, tensor.rows, tensor.columns);
  const uint64_t offset = devices.random() % 2 == 0 ? 0 : 4;
  on_threads(random_ranges(devices.random, tensor.rows, 9),
             [&](RowRange range) { write_range_plain(devices.cuda, pieces.matrix, tensor, range, offset); });
  expect(pieces.bytes() == whole.bytes(), what + ": rows in pieces differ from all in one");
}

// Compares every row, as floats, with the CPU's.
void rows_are_the_reference_ones(Devices& devices, const Matrix& matrix, const PlainTensor& tensor, const std::string& what) {
  std::vector<int32_t> ids(static_cast<size_t>(tensor.rows));
  std::iota(ids.begin(), ids.end(), 0);
  const int n = static_cast<int>(tensor.rows);
  const Floats got(devices.cuda, tensor.rows * tensor.columns);
  devices.cuda->embed(got.data(), matrix, ids.data(), n);
  StoredWeights expected(devices.reference, matrix.format, tensor.rows, tensor.columns);
  write_plain(*devices.reference, expected.matrix, 0, tensor);
  const Floats reference(devices.reference, tensor.rows * tensor.columns);
  devices.reference->embed(reference.data(), expected.matrix, ids.data(), n);
  expect_equal(what, got.values(), reference.values());
}

struct CodedSources {
  std::vector<std::unique_ptr<CodedPlane>> coded;  // by plane, null: plain
  std::vector<std::unique_ptr<Staging>> plain;
};

CodedSources code(Devices& devices, const PlainTensor& tensor, CodecKind codec, int64_t block_rows, uint64_t offset) {
  CodedSources sources;
  for (int plane = 0; plane < plane_count(tensor.split); ++plane) {
    const bool coded = plane == 0 || (tensor.split == Split::fp16_e5_lo8_s1m2 && plane == 2);
    sources.coded.push_back(coded ? std::make_unique<CodedPlane>(devices.cuda, tensor, plane, codec, block_rows, offset) : nullptr);
    sources.plain.push_back(coded ? nullptr
                                  : std::make_unique<Staging>(devices.cuda, tensor.planes[static_cast<size_t>(plane)], offset));
  }
  return sources;
}

void write_range_coded(Backend& cuda, Matrix& matrix, const PlainTensor& tensor, const CodedSources& sources, RowRange range) {
  PlaneSource planes[kMaxPlanes];
  std::vector<CodedBlock> blocks[kMaxPlanes];
  for (int plane = 0; plane < plane_count(tensor.split); ++plane) {
    const auto at = static_cast<size_t>(plane);
    if (sources.coded[at] != nullptr) {
      planes[plane] = sources.coded[at]->rows(range.first, range.rows, blocks[plane]);
    } else {
      planes[plane].plain = sources.plain[at]->bytes() + static_cast<uint64_t>(range.first) * tensor.row_bytes(plane);
    }
  }
  cuda.write_coded_rows(matrix, range.first, range.rows, tensor.split, planes);
}

void coded_rows(Devices& devices, Split split, CodecKind codec, int64_t rows, int64_t columns, int64_t block_rows, bool wild) {
  const PlainTensor tensor = random_tensor(devices.random, split, rows, columns, wild);
  const std::string what = describe(tensor, codec) + ", blocks of " + std::to_string(block_rows) + " rows";
  const uint64_t offset = devices.random() % 3 == 0 ? 1 + devices.random() % 63 : 0;
  CodedSources sources = code(devices, tensor, codec, block_rows, offset);
  StoredWeights stored(devices.cuda, exact_format_of(split), rows, columns);
  on_threads(random_ranges(devices.random, rows, 1 + rows / 3),
             [&](RowRange range) { write_range_coded(*devices.cuda, stored.matrix, tensor, sources, range); });
  for (const auto& plane : sources.plain) {
    if (plane != nullptr) plane->fill(0x5a);
  }
  rows_are_the_reference_ones(devices, stored.matrix, tensor, what);
}

// More than fits in a lane's scratch, in one call; and a single row that does not fit.
void large_writes(Devices& devices) {
  coded_rows(devices, Split::bf16_e8_sm8, CodecKind::fixed4, 2300, 1024, 48, false);
  const PlainTensor wide = random_tensor(devices.random, Split::none_fp32, 2, 1 << 20);
  StoredWeights stored(devices.cuda, WeightFormat::fp32, wide.rows, wide.columns);
  write_plain(*devices.cuda, stored.matrix, 0, wide);
  rows_are_the_reference_ones(devices, stored.matrix, wide, "rows wider than the scratch");
}

// Writes the rows in two calls.
void rows_in_two(Devices& devices, const PlainTensor& tensor, CodecKind codec, int64_t block_rows) {
  const CodedSources sources = code(devices, tensor, codec, block_rows, 0);
  StoredWeights stored(devices.cuda, WeightFormat::bf16, tensor.rows, tensor.columns);
  constexpr int64_t kFirst = 37;
  write_range_coded(*devices.cuda, stored.matrix, tensor, sources, {0, kFirst});
  write_range_coded(*devices.cuda, stored.matrix, tensor, sources, {kFirst, tensor.rows - kFirst});
  rows_are_the_reference_ones(devices, stored.matrix, tensor, describe(tensor, codec) + ", in two");
}

void coded_rows_in_two(Devices& devices, CodecKind codec) {
  constexpr Split kSplit = Split::bf16_e8_sm8;
  // More blocks than a launch takes.
  rows_in_two(devices, random_tensor(devices.random, kSplit, 250, 100), codec, 1);
  // A large block: it has more parts than a small device can decode at once.
  rows_in_two(devices, random_tensor(devices.random, kSplit, 700, 1024), codec, 700);
  // More escapes than there are threads to read them at once.
  PlainTensor escaping = random_tensor(devices.random, kSplit, 150, 1024);
  for (int i = 0; i < 4000; ++i)
    escaping.planes[0][devices.random() % escaping.planes[0].size()] = static_cast<uint8_t>(devices.random());
  rows_in_two(devices, escaping, codec, 150);
}

// With any contents of a block, only its own rows are written.
void damaged_blocks(Devices& devices, CodecKind codec) {
  const PlainTensor tensor = random_tensor(devices.random, Split::bf16_e8_sm8, 64, 300);
  StoredWeights stored(devices.cuda, WeightFormat::bf16, tensor.rows, tensor.columns);
  write_plain(*devices.cuda, stored.matrix, 0, tensor);
  const std::vector<uint8_t> before = stored.bytes();
  const uint64_t row = before.size() / static_cast<uint64_t>(tensor.rows);
  for (int round = 0; round < 12; ++round) {
    CodedSources sources = code(devices, tensor, codec, 16, round % 2 == 0 ? 0 : 5);
    std::vector<CodedBlock> blocks;
    // The blocks' sizes are read before the damage, as by a caller that has checked them.
    PlaneSource planes[kMaxPlanes];
    planes[0] = sources.coded[0]->rows(20, 30, blocks);
    planes[1].plain = sources.plain[1]->bytes() + 20 * tensor.row_bytes(1);
    sources.coded[0]->damage(devices.random, round < 6 ? 20 : 20000);
    devices.cuda->write_coded_rows(stored.matrix, 20, 30, tensor.split, planes);
    const std::vector<uint8_t> after = stored.bytes();
    expect(std::equal(before.begin(), before.begin() + static_cast<int64_t>(20 * row), after.begin()) &&
               std::equal(before.begin() + static_cast<int64_t>(50 * row), before.end(),
                          after.begin() + static_cast<int64_t>(50 * row)),
           "damaged blocks change rows that are not theirs");
  }
}

}  // namespace

void test_loading(Devices& devices) {
  expect(devices.cuda->decodes(CodecKind::fixed4) && devices.cuda->decodes(CodecKind::huffman), "the device decodes");
  expect(!devices.cuda->decodes(CodecKind::zstd) && !devices.cuda->decodes(CodecKind::packed3) &&
             !devices.cuda->decodes(CodecKind::e4m3),
         "but not everything");
  for (const Split split : kSplits) {
    plain_rows_in_pieces(devices, split, exact_format_of(split));
    plain_rows_in_pieces(devices, split, WeightFormat::int8);
    if (plane_count(split) == 1) continue;
    for (const CodecKind codec : {CodecKind::fixed4, CodecKind::huffman}) {
      coded_rows(devices, split, codec, 40, 160, 16, false);
      coded_rows(devices, split, codec, 75, 77, 3, false);
      coded_rows(devices, split, codec, 90, 333, 7, true);
      coded_rows(devices, split, codec, 1, 5, 1, false);
    }
  }
  for (const CodecKind codec : {CodecKind::fixed4, CodecKind::huffman}) {
    coded_rows(devices, Split::bf16_e8_sm8, codec, 150, 1024, 150, true);
    coded_rows_in_two(devices, codec);
    damaged_blocks(devices, codec);
  }
  large_writes(devices);
}

}  // namespace odmoe::cuda_test
