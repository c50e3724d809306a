// Tensors that are views of stored matrices: the values read equal those of a simple loop over the view's definition; invalid views
// are refused.
#include <algorithm>
#include <cstring>
#include <fstream>
#include <limits>
#include <tuple>

#include "native_tests.h"
#include "odmoe/quantized_values.h"
#include "odmoe/store.h"
#include "stored_expert.h"

namespace odmoe::test {
namespace {

int64_t between(std::mt19937& random, int64_t least, int64_t most) {
  return std::uniform_int_distribution<int64_t>(least, most)(random);
}

// Planes of random values without NaN; FP8 has a row of scales for every `scale_rows` rows.
std::vector<std::vector<uint8_t>> random_planes(std::mt19937& random, Split split, int64_t rows, int64_t columns,
                                                int64_t scale_rows) {
  std::vector<std::vector<uint8_t>> planes;
  for (int plane = 0; plane < plane_count(split); plane++) {
    const bool scales = split == Split::fp8 && plane == 1;
    const int64_t plane_rows = scales ? (rows + scale_rows - 1) / scale_rows : rows;
    std::vector<uint8_t> bytes(static_cast<size_t>(plane_rows * plane_row_bytes(split, plane, columns)));
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
    if (split == Split::mxfp4 && plane == 1) {
      for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(between(random, 0, 252));
    }
    if (split == Split::fp8 && plane == 0) {
      for (uint8_t& byte : bytes) byte = (byte & 0x7f) == 0x7f ? 0 : byte;
    }
    for (size_t i = 0; scales && i < bytes.size(); i += 4) {
      const auto scale = static_cast<float>(between(random, 0, 1000)) * 0.0003f;
      std::memcpy(bytes.data() + i, &scale, 4);
    }
    planes.push_back(std::move(bytes));
  }
  return planes;
}

// A stored matrix in a file, and views of it.
struct ViewedFile {
  TensorView view;
  std::vector<std::vector<uint8_t>> planes;
  std::vector<ChunkLocation> chunks;

  const uint8_t* plane_row(int plane, int64_t row) const {
    if (view.stored_split == Split::fp8 && plane == 1) row /= view.scale_block_rows;
    return planes[static_cast<size_t>(plane)].data() + row * plane_row_bytes(view.stored_split, plane, view.stored_columns);
  }
  // One value decoded.
  float value(int64_t row, int64_t column, float multiply, float add) const {
    const uint8_t* const codes = plane_row(0, row);
    float decoded = 0.0f;
    if (view.stored_split == Split::fp8) {
      std::memcpy(&decoded, plane_row(1, row) + column / 128 * 4, 4);
      decoded *= kE4m3Values[codes[column]];
    } else if (view.stored_split == Split::mxfp4) {
      const int code = column % 2 == 0 ? codes[column / 2] & 15 : codes[column / 2] >> 4;
      decoded = kMxfp4Values[code] * power_of_two(plane_row(1, row)[column / 32] - 127);
    } else {
      const uint8_t* const at = codes + column * value_bytes(view.stored_split);
      planes_to_floats(&decoded, &at, view.stored_split, 1);
    }
    const float multiplied = decoded * multiply;
    return multiply == 1.0f && add == 0.0f ? decoded : multiplied + add;
  }
};

// Writes every plane in a few chunks somewhere in the file, with checksums or without.
ViewedFile write_matrix(std::mt19937& random, const std::string& path, Split split, int64_t rows, int64_t columns, bool checksums) {
  ViewedFile file;
  file.view.stored_rows = rows;
  file.view.stored_columns = columns;
  file.view.stored_split = split;
  file.view.scale_block_rows = split == Split::fp8 ? between(random, 1, rows) : 1;
  file.planes = random_planes(random, split, rows, columns, file.view.scale_block_rows);
  std::vector<uint8_t> bytes(static_cast<size_t>(between(random, 0, 100)));
  for (size_t plane = 0; plane < file.planes.size(); plane++) {
    const std::vector<uint8_t>& plain = file.planes[plane];
    for (size_t done = 0; done < plain.size();) {
      const auto left = static_cast<int64_t>(plain.size() - done);
      const auto count = static_cast<size_t>(between(random, (left + 1) / 2, left));
      ChunkLocation chunk{static_cast<int>(plane), path, bytes.size(), count, count, CodecKind::raw, std::nullopt};
      if (checksums) chunk.crc32c = crc32c(0, plain.data() + done, count);
      file.chunks.push_back(chunk);
      bytes.insert(bytes.end(), plain.begin() + static_cast<int64_t>(done), plain.begin() + static_cast<int64_t>(done + count));
      bytes.resize(bytes.size() + static_cast<size_t>(between(random, 0, 9)));
      done += count;
    }
  }
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  return file;
}

// All rows of each plane, read in random pieces.
std::vector<std::vector<uint8_t>> read_all(std::mt19937& random, const TensorSource& source) {
  TensorReader reader(source);
  std::vector<std::vector<uint8_t>> planes(static_cast<size_t>(plane_count(source.split)));
  while (reader.rows_left() > 0) {
    const int64_t rows = between(random, 1, reader.rows_left());
    std::vector<uint8_t> staging(staging_bytes(source.split, rows, source.columns));
    const uint8_t* pointers[kMaxPlanes] = {};
    reader.read_rows(rows, staging.data(), pointers);
    for (size_t plane = 0; plane < planes.size(); plane++) {
      const int64_t bytes = rows * plane_row_bytes(source.split, static_cast<int>(plane), source.columns);
      planes[plane].insert(planes[plane].end(), pointers[plane], pointers[plane] + bytes);
    }
  }
  return planes;
}

// Blocks of rows somewhere in the matrix, columns somewhere, transposed or not; the tensor's sizes follow.
TensorSource random_view(std::mt19937& random, const ViewedFile& file, bool decoded) {
  TensorSource source{1, 1, decoded ? Split::none_fp32 : file.view.stored_split, file.chunks, file.view};
  TensorView& view = *source.view;
  const bool kept_quantized = !decoded && is_quantized(view.stored_split);
  view.transposed = !kept_quantized && between(random, 0, 1) == 1;
  view.block_rows = between(random, 1, view.stored_rows);
  view.first_row = between(random, 0, view.stored_rows - view.block_rows);
  view.step_rows = between(random, 0, view.stored_rows);
  const int64_t room = view.stored_rows - view.first_row - view.block_rows;
  const int64_t most_blocks = view.step_rows == 0 ? 3 : room / view.step_rows + 1;
  const int64_t blocks = between(random, 1, most_blocks);
  if (kept_quantized) {
    const int64_t together = view.stored_split == Split::mxfp4 ? kMxfp4Block : kFp8Block;
    view.first_column = between(random, 0, (view.stored_columns - 1) / together) * together;
    const int64_t left = view.stored_columns - view.first_column;
    source.columns = view.stored_split == Split::mxfp4 ? between(random, 1, left / together) * together : between(random, 1, left);
    source.rows = blocks * view.block_rows;
    return source;
  }
  view.step_columns = between(random, 1, 3);
  view.first_column = between(random, 0, view.stored_columns - 1);
  const int64_t available = (view.stored_columns - view.first_column + view.step_columns - 1) / view.step_columns;
  const int64_t picked = view.transposed && blocks > 1 ? available : between(random, 1, available);
  source.rows = view.transposed ? blocks * picked : blocks * view.block_rows;
  source.columns = view.transposed ? view.block_rows : picked;
  if (decoded && between(random, 0, 1) == 1) {
    view.multiply = 0.75f;
    view.add = 1.0f;
  }
  return source;
}

struct StoredPlace {
  int64_t row;
  int64_t column;
};

StoredPlace place_of(const TensorSource& source, int64_t row, int64_t column) {
  const TensorView& view = *source.view;
  int64_t block_rows = view.block_rows;
  if (view.transposed) {
    const int64_t available = (view.stored_columns - view.first_column + view.step_columns - 1) / view.step_columns;
    block_rows = std::min(source.rows, available);
  }
  const int64_t in_row = view.transposed ? column : row % block_rows;
  const int64_t in_column = view.transposed ? row % block_rows : column;
  return {view.first_row + row / block_rows * view.step_rows + in_row, view.first_column + in_column * view.step_columns};
}

void check_values(const ViewedFile& file, const TensorSource& source, bool decoded, const std::vector<uint8_t>& bytes) {
  const auto width = static_cast<size_t>(value_bytes(source.split));
  for (int64_t row = 0; row < source.rows; row++) {
    for (int64_t column = 0; column < source.columns; column++) {
      const StoredPlace place = place_of(source, row, column);
      const uint8_t* const read = bytes.data() + static_cast<size_t>(row * source.columns + column) * width;
      const uint8_t* expected = file.plane_row(0, place.row) + place.column * static_cast<int64_t>(width);
      const float value = file.value(place.row, place.column, source.view->multiply, source.view->add);
      if (decoded) expected = reinterpret_cast<const uint8_t*>(&value);
      check(std::memcmp(read, expected, width) == 0, "row " + std::to_string(row) + ", column " + std::to_string(column));
    }
  }
}

void reads_what_the_view_says(Split split, bool decoded) {
  const TestDirectory directory;
  std::mt19937 random(static_cast<uint32_t>(split) * 2 + decoded);
  for (int round = 0; round < 60; round++) {
    const int64_t rows = between(random, 1, 40);
    const int64_t columns = split == Split::mxfp4 ? 32 * between(random, 1, 5) : between(random, 1, split == Split::fp8 ? 400 : 60);
    const ViewedFile file = write_matrix(random, directory.path("matrix"), split, rows, columns, round % 3 == 0);
    const TensorSource source = random_view(random, file, decoded);
    const auto planes = read_all(random, source);
    if (decoded || !is_quantized(split)) {
      check_values(file, source, decoded, planes[0]);
      continue;
    }
    for (int plane = 0; plane < 2; plane++) {
      const int64_t bytes = plane_row_bytes(split, plane, source.columns);
      for (int64_t row = 0; row < source.rows; row++) {
        const StoredPlace place = place_of(source, row, 0);
        const uint8_t* const expected = file.plane_row(plane, place.row) + plane_row_bytes(split, plane, place.column);
        check(std::memcmp(planes[static_cast<size_t>(plane)].data() + row * bytes, expected, static_cast<size_t>(bytes)) == 0,
              "plane " + std::to_string(plane) + ", row " + std::to_string(row));
      }
    }
  }
}

// Sizes of any kind: reads are in bounds or refused; a sanitizer build finds other errors.
void refuses_what_is_no_view() {
  const TestDirectory directory;
  std::mt19937 random(5);
  const ViewedFile file = write_matrix(random, directory.path("matrix"), Split::none_bf16, 12, 20, false);
  const int64_t odd[] = {-1, 0, 1, 2, 13, 21, 240, INT32_MAX, int64_t{INT32_MAX} + 1, INT64_MAX, INT64_MIN};
  int refused = 0;
  for (int round = 0; round < 3000; round++) {
    TensorSource source = random_view(random, file, round % 2 == 0);
    TensorView& view = *source.view;
    int64_t* const numbers[] = {&source.rows,    &source.columns,  &view.stored_rows, &view.stored_columns, &view.scale_block_rows,
                                &view.first_row, &view.block_rows, &view.step_rows,   &view.first_column,   &view.step_columns};
    for (int64_t count = between(random, 1, 3); count > 0; count--) {
      *numbers[static_cast<size_t>(between(random, 0, 9))] = odd[static_cast<size_t>(between(random, 0, 10))];
    }
    try {
      if (source.rows > 0 && source.columns > 0 && source.rows < 1000 && source.columns < 1000) {
        read_all(random, source);
      } else {
        check_chunks(source);
      }
    } catch (const Error& error) {
      check(error.code() == ErrorCode::model_corrupt, error.what());
      refused++;
    }
  }
  check(refused > 1000, "little of it was refused");
}

TensorSource whole(const ViewedFile& file, Split split) {
  TensorSource source{file.view.stored_rows, file.view.stored_columns, split, file.chunks, file.view};
  source.view->block_rows = source.rows;
  return source;
}

void refuses_wrong_bytes() {
  const TestDirectory directory;
  std::mt19937 random(6);
  const auto refused = [&](ErrorCode code, const TensorSource& source) { check_refused(code, [&] { read_all(random, source); }); };
  ViewedFile file = write_matrix(random, directory.path("matrix"), Split::none_fp32, 9, 33, true);
  TensorSource source = whole(file, Split::none_fp32);
  read_all(random, source);
  source.chunks[0].crc32c = *source.chunks[0].crc32c + 1;
  refused(ErrorCode::pack_corrupt, source);
  file = write_matrix(random, directory.path("matrix"), Split::none_fp32, 9, 33, false);
  source = whole(file, Split::none_fp32);
  source.chunks.back().offset_bytes += 1000;
  refused(ErrorCode::model_corrupt, source);
  source = whole(file, Split::none_fp32);
  source.chunks.pop_back();
  refused(ErrorCode::model_corrupt, source);
  source = whole(file, Split::none_bf16);
  refused(ErrorCode::internal, source);  // there is no conversion between the two
  source = whole(file, Split::none_fp32);
  source.chunks[0].codec = CodecKind::zstd;
  refused(ErrorCode::internal, source);
  // For a file that ends early, no memory is taken for the declared size.
  source = whole(file, Split::none_fp32);
  source.chunks = {
      {0, directory.path("matrix"), 0, uint64_t{INT32_MAX} * 4, uint64_t{INT32_MAX} * 4, CodecKind::raw, std::nullopt}};
  source.rows = source.view->block_rows = source.view->stored_rows = 1;
  source.view->stored_columns = INT32_MAX;
  refused(ErrorCode::model_corrupt, source);
}

// Changes the bytes of a plane; with a view and without.
void refuses_weights_that_are_none(Split split, int plane, int64_t at, std::vector<uint8_t> bytes, uint8_t last_code,
                                   bool accepted) {
  const TestDirectory directory;
  std::mt19937 random(7);
  std::vector<std::vector<uint8_t>> planes = random_planes(random, split, 4, 128, 1);
  std::fill(planes[0].begin(), planes[0].end(), uint8_t{0x23});
  planes[0][63] = last_code;
  std::copy(bytes.begin(), bytes.end(), planes[static_cast<size_t>(plane)].begin() + at);
  std::ofstream file(directory.path("matrix"), std::ios::binary);
  TensorSource source{4, 128, split, {}, std::nullopt};
  uint64_t offset = 0;
  for (int i = 0; i < 2; i++) {
    const std::vector<uint8_t>& plain = planes[static_cast<size_t>(i)];
    file.write(reinterpret_cast<const char*>(plain.data()), static_cast<std::streamsize>(plain.size()));
    source.chunks.push_back({i, directory.path("matrix"), offset, plain.size(), plain.size(), CodecKind::raw, std::nullopt});
    offset += plain.size();
  }
  file.close();
  TensorSource viewed = source;
  viewed.view = {.stored_rows = 4, .stored_columns = 128, .stored_split = split, .block_rows = 4};
  TensorSource decoded = viewed;
  decoded.split = Split::none_fp32;
  for (const TensorSource& tensor : {source, viewed, decoded}) {
    if (accepted) {
      read_all(random, tensor);
    } else {
      check_refused(ErrorCode::model_corrupt, [&] { read_all(random, tensor); });
    }
  }
}

std::vector<uint8_t> bytes_of(float value) {
  std::vector<uint8_t> bytes(4);
  std::memcpy(bytes.data(), &value, 4);
  return bytes;
}

void refuses_quantized_weights_that_are_none() {
  // The largest code that a scale can have: 6, 3 and 1.5; all others are codes of 1.5 and 1.
  for (const auto& [scale, code, accepted] : {std::tuple<uint8_t, uint8_t, bool>{252, 7, true},
                                              {253, 0xd, true},
                                              {253, 6, false},
                                              {254, 0xb, true},
                                              {254, 4, false},
                                              {255, 0, false}}) {
    refuses_weights_that_are_none(Split::mxfp4, 1, 3, {scale}, code, accepted);
  }
  for (const uint8_t no_number : {uint8_t{0x7f}, uint8_t{0xff}})
    refuses_weights_that_are_none(Split::fp8, 0, 300, {no_number}, 0, false);
  refuses_weights_that_are_none(Split::fp8, 0, 300, {0x7e}, 0, true);
  constexpr float kLargest = std::numeric_limits<float>::max();
  for (const float scale : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(), -1.0f, kLargest}) {
    refuses_weights_that_are_none(Split::fp8, 1, 4, bytes_of(scale), 0, false);
  }
  for (const float scale : {0.0f, 0x1p-149f, kLargest / 512.0f}) {
    refuses_weights_that_are_none(Split::fp8, 1, 4, bytes_of(scale), 0, true);
  }
}

}  // namespace

void add_tensor_view_cases(std::vector<Case>& cases) {
  const std::string name = "tensor views: ";
  const std::pair<Split, const char*> splits[] = {{Split::none_bf16, "bf16"},
                                                  {Split::none_fp16, "fp16"},
                                                  {Split::none_fp32, "fp32"},
                                                  {Split::mxfp4, "mxfp4"},
                                                  {Split::fp8, "fp8"}};
  for (const auto& [split, split_name] : splits) {
    cases.push_back({name + "reads " + split_name + " as it is", [split = split] { reads_what_the_view_says(split, false); }});
    cases.push_back({name + "reads " + split_name + " decoded", [split = split] { reads_what_the_view_says(split, true); }});
  }
  cases.push_back({name + "refuses what is no view", refuses_what_is_no_view});
  cases.push_back({name + "refuses wrong bytes", refuses_wrong_bytes});
  cases.push_back({name + "refuses quantized weights that are none", refuses_quantized_weights_that_are_none});
}

}  // namespace odmoe::test
