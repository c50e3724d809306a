#include "arguments.h"
#include "handles.h"

namespace odmoe {

Napi::Function SequenceHandle::define(Napi::Env env) {
  return DefineClass(
      env, "Sequence",
      {method_named<&SequenceHandle::read_key_values>("readKeyValues"),
       method_named<&SequenceHandle::write_key_values>("writeKeyValues"), method_named<&SequenceHandle::truncate>("truncate"),
       property_named<&SequenceHandle::length>("length"), dispose_method()});
}

Napi::Value SequenceHandle::read_key_values(const Napi::CallbackInfo& info) {
  const int rows = to_int(info[2]);
  // Before the arrays are made: one that does not fit in memory ends the process.
  runtime()->check_range(to_int(info[0]), to_int(info[1]), rows);
  const uint64_t bytes = float_bytes(rows * runtime()->model()->shape().kv_size());
  const Napi::Uint8Array keys = Napi::Uint8Array::New(info.Env(), bytes);
  const Napi::Uint8Array values = Napi::Uint8Array::New(info.Env(), bytes);
  runtime()->read_key_values(to_int(info[0]), to_int(info[1]), rows, bytes_of(keys), bytes_of(values));
  Napi::Object object = Napi::Object::New(info.Env());
  object.Set("keys", keys);
  object.Set("values", values);
  return object;
}

Napi::Value SequenceHandle::write_key_values(const Napi::CallbackInfo& info) {
  runtime()->write_key_values(to_int(info[0]), to_int(info[1]), to_int(info[2]), bytes_of(info[3]), bytes_of(info[4]));
  return info.Env().Undefined();
}

Napi::Value SequenceHandle::truncate(const Napi::CallbackInfo& info) {
  runtime()->truncate(to_int(info[0]));
  return info.Env().Undefined();
}

Napi::Value SequenceHandle::length(const Napi::CallbackInfo& info) { return Napi::Number::New(info.Env(), runtime()->length()); }

}  // namespace odmoe
