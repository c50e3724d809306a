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
  const int layer = to_int(info[0], "layer");
  const int position = to_int(info[1], "position");
  const int rows = to_int(info[2], "rows");
  // Sizes are checked before the array is made: an array that does not fit in memory ends the process.
  Napi::Uint8Array values = Napi::Uint8Array::New(info.Env(), runtime()->row_bytes(layer, position, rows));
  runtime()->read_rows(layer, position, rows, {values.Data(), values.ElementLength()});
  return values;
}

Napi::Value SequenceHandle::write_rows(const Napi::CallbackInfo& info) {
  runtime()->write_rows(to_int(info[0], "layer"), to_int(info[1], "position"), to_int(info[2], "rows"),
                        bytes_of(info[3], "values"));
  return info.Env().Undefined();
}

Napi::Value SequenceHandle::truncate(const Napi::CallbackInfo& info) {
  runtime()->truncate(to_int(info[0], "length"));
  return info.Env().Undefined();
}

Napi::Value SequenceHandle::fork(const Napi::CallbackInfo& info) {
  return create(info.Env(), AddonData::of(info.Env()).sequence, runtime()->fork(to_int(info[0], "length")));
}

Napi::Value SequenceHandle::bytes_to_write(const Napi::CallbackInfo& info) {
  const int position = to_int(info[0], "position");
  const uint64_t bytes = runtime()->bytes_to_write(position, to_int(info[1], "end", position));
  return Napi::Number::New(info.Env(), static_cast<double>(bytes));
}

Napi::Value SequenceHandle::length(const Napi::CallbackInfo& info) { return Napi::Number::New(info.Env(), runtime()->length()); }

Napi::Value SequenceHandle::oldest_position(const Napi::CallbackInfo& info) {
  return Napi::Number::New(info.Env(), runtime()->oldest_position());
}

}  // namespace odmoe
