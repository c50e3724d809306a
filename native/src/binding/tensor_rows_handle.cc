#include <algorithm>
#include <atomic>
#include <utility>
#include <vector>

#include "arguments.h"
#include "async_call.h"
#include "codec_calls.h"
#include "handles.h"

namespace odmoe {

// One thread reads at a time.
struct TensorRows {
  explicit TensorRows(const TensorSource& tensor) : source(tensor), reader(source) {}

  std::vector<std::vector<uint8_t>> read(int64_t rows) {
    // Checked before memory is taken for the rows.
    if (rows > reader.rows_left()) throw Error(ErrorCode::internal, "more rows asked for than the tensor has left");
    std::vector<uint8_t> staging(staging_bytes(source.split, rows, source.columns));
    const uint8_t* planes[kMaxPlanes] = {};
    reader.read_rows(rows, staging.data(), planes);
    std::vector<std::vector<uint8_t>> bytes;
    for (int i = 0; i < plane_count(source.split); i++) {
      bytes.emplace_back(planes[i], planes[i] + rows * plane_row_bytes(source.split, i, source.columns));
    }
    return bytes;
  }

  TensorSource source;
  TensorReader reader;
  // It stays true after a failed read, because the planes may then be at different rows.
  std::atomic<bool> reading = false;
};

namespace {

Napi::Value from_planes(Napi::Env env, std::vector<std::vector<uint8_t>>& planes) {
  Napi::Array array = Napi::Array::New(env, planes.size());
  for (uint32_t i = 0; i < planes.size(); i++) array.Set(i, from_bytes(env, planes[i]));
  return array;
}

}  // namespace

Napi::Function TensorRowsHandle::define(Napi::Env env) {
  return DefineClass(env, "TensorRows", {promise_named<&TensorRowsHandle::read>("read"), dispose_method()});
}

Napi::Value TensorRowsHandle::read(const Napi::CallbackInfo& info) {
  const int64_t rows = to_int(info[0], "rows", 1);
  const std::shared_ptr<TensorRows> tensor = runtime();
  if (tensor->reading.exchange(true)) {
    throw Error(ErrorCode::internal, "rows of the tensor are being read already, or could not be read; open it again");
  }
  const std::shared_ptr<JobQueue>& threads = codec_threads(info.Env());
  try {
    return call_async(
        info.Env(), *threads, threads, {},
        [tensor, rows] {
          std::vector<std::vector<uint8_t>> planes = tensor->read(rows);
          tensor->reading = false;
          return planes;
        },
        from_planes);
  } catch (const Error&) {
    // The queue is full: nothing has been read.
    tensor->reading = false;
    throw;
  }
}

Napi::Value open_tensor(const Napi::CallbackInfo& info) {
  auto tensor = std::make_shared<TensorRows>(to_tensor_source(info[0], "source"));
  return TensorRowsHandle::create(info.Env(), AddonData::of(info.Env()).tensor_rows, std::move(tensor));
}

}  // namespace odmoe
