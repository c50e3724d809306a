#include "slice_calls.h"

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "arguments.h"
#include "async_call.h"
#include "codec_calls.h"
#include "odmoe/error.h"
#include "odmoe/slices.h"
#include "odmoe/store.h"

namespace odmoe {
namespace {

struct RowsToSlice {
  std::array<std::span<const uint8_t>, kMaxPlanes> planes;
  Split split;
  Split sliced;
  int64_t rows;
  int64_t columns;
};

using Planes = std::vector<std::vector<uint8_t>>;

Planes slice_rows(const RowsToSlice& source) {
  const int64_t upper_bytes = plane_row_bytes(source.sliced, 0, source.columns);
  const int64_t lower_bytes = plane_row_bytes(source.sliced, 1, source.columns);
  Planes slices(2);
  slices[0].resize(static_cast<size_t>(source.rows * upper_bytes));
  slices[1].resize(static_cast<size_t>(source.rows * lower_bytes));
  std::vector<float> weights(static_cast<size_t>(source.columns));
  for (int64_t row = 0; row < source.rows; row++) {
    const uint8_t* planes[kMaxPlanes] = {};
    for (int i = 0; i < plane_count(source.split); i++) {
      planes[i] = source.planes[static_cast<size_t>(i)].data() + row * plane_row_bytes(source.split, i, source.columns);
    }
    planes_to_floats(weights.data(), planes, source.split, source.columns);
    const char* const fault = slice_row(source.sliced, weights.data(), source.columns, slices[0].data() + row * upper_bytes,
                                        slices[1].data() + row * lower_bytes);
    if (fault != nullptr) throw Error(ErrorCode::model_unsupported, "row " + std::to_string(row) + " cannot be sliced: " + fault);
  }
  return slices;
}

Napi::Value from_planes(Napi::Env env, Planes& planes) {
  Napi::Array array = Napi::Array::New(env, planes.size());
  for (uint32_t i = 0; i < planes.size(); i++) array.Set(i, from_bytes(env, planes[i]));
  return array;
}

}  // namespace

Napi::Value slice_rows_of(const Napi::CallbackInfo& info) {
  if (!info[0].IsArray()) refuse("planes", info[0], "an array");
  const auto arrays = info[0].As<Napi::Array>();
  RowsToSlice source{{}, to_split(info[1]), to_split(info[4]), to_int(info[2], "rows", 1), to_int(info[3], "columns", 1)};
  if (slice_bits(source.sliced) == 0) refuse("sliced", info[4], "a split of slices");
  const auto count = static_cast<uint32_t>(plane_count(source.split));
  bool fit = slice_bits(source.split) == 0 && arrays.Length() == count;
  std::vector<Napi::Object> retained;
  for (uint32_t i = 0; fit && i < count; i++) {
    source.planes[i] = bytes_of(arrays.Get(i), "plane");
    const int64_t row_bytes = plane_row_bytes(source.split, static_cast<int>(i), source.columns);
    fit = source.planes[i].size() == static_cast<uint64_t>(source.rows) * static_cast<uint64_t>(row_bytes);
    retained.push_back(arrays.Get(i).As<Napi::Object>());
  }
  if (!fit) throw Error(ErrorCode::internal, "the planes to slice do not belong together");
  const std::shared_ptr<JobQueue>& threads = codec_threads(info.Env());
  return call_async(
      info.Env(), *threads, threads, std::move(retained), [source] { return slice_rows(source); }, from_planes);
}

}  // namespace odmoe
