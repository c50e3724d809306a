#include "addon_data.h"
#include "arguments.h"
#include "handles.h"

namespace odmoe {

Napi::Function SequenceHandle::define(Napi::Env env) {
  return DefineClass(
      env, "Sequence",
      {method_named<&SequenceHandle::read_rows>("readRows"), method_named<&SequenceHandle::write_rows>("writeRows"),
       method_named<&SequenceHandle::truncate>("truncate"), method_named<&SequenceHandle::fork>("fork"),
       method_named<&SequenceHandle::bytes_to_write>("bytesToWrite"), property_named<&SequenceHandle::length>("length"),
       property_named<&SequenceHandle::oldest_position>("oldestPosition"), dispose_method()});
}

Napi::Value SequenceHandle::read_rows(const Napi::CallbackInfo& info) {
  const int layer = to_int(info[0]);
  const int position = to_int(info[1]);
  const int rows = to_int(info[2]);
  // Sizes are checked before the array is made: an array that does not fit in memory ends the process.
  const Napi::Uint8Array values = Napi::Uint8Array::New(info.Env(), runtime()->row_bytes(layer, position, rows));
  runtime()->read_rows(layer, position, rows, bytes_of(values));
  return values;
}

Napi::Value SequenceHandle::write_rows(const Napi::CallbackInfo& info) {
  runtime()->write_rows(to_int(info[0]), to_int(info[1]), to_int(info[2]), bytes_of(info[3]));
  return info.Env().Undefined();
}

Napi::Value SequenceHandle::truncate(const Napi::CallbackInfo& info) {
  runtime()->truncate(to_int(info[0]));
  return info.Env().Undefined();
}

Napi::Value SequenceHandle::fork(const Napi::CallbackInfo& info) {
  return create(info.Env(), AddonData::of(info.Env()).sequence, runtime()->fork(to_int(info[0])));
}

Napi::Value SequenceHandle::bytes_to_write(const Napi::CallbackInfo& info) {
  const uint64_t bytes = runtime()->bytes_to_write(to_int(info[0]), to_int(info[1]));
  return Napi::Number::New(info.Env(), static_cast<double>(bytes));
}

Napi::Value SequenceHandle::length(const Napi::CallbackInfo& info) { return Napi::Number::New(info.Env(), runtime()->length()); }

Napi::Value SequenceHandle::oldest_position(const Napi::CallbackInfo& info) {
  return Napi::Number::New(info.Env(), runtime()->oldest_position());
}

}  // namespace odmoe
