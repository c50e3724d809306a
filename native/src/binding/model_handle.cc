#include "addon_data.h"
#include "arguments.h"
#include "async_call.h"
#include "handles.h"

namespace odmoe {

Napi::Function ModelHandle::define(Napi::Env env) {
  return DefineClass(
      env, "Model",
      {promise_named<&ModelHandle::load_dense>("loadDense"),
       promise_named<&ModelHandle::load_resident_expert>("loadResidentExpert"),
       method_named<&ModelHandle::resident_weights>("residentWeights"),
       method_named<&ModelHandle::create_sequence>("createSequence"), method_named<&ModelHandle::create_pass>("createPass"),
       property_named<&ModelHandle::sequence_bytes>("sequenceBytes"), dispose_method()});
}

Napi::Value ModelHandle::load_dense(const Napi::CallbackInfo& info) {
  const DenseRole role = to_dense_role(info[0]);
  const int layer = to_int(info[1], "layer");
  TensorSource source = to_tensor_source(info[2], "source");
  const WeightFormat format = to_weight_format(info[3]);
  return call_async(
      info.Env(), runtime()->device(), Thread::storage, {},
      [model = runtime(), role, layer, source = std::move(source), format] {
        model->load_dense(role, layer, source, format);
        return Nothing{};
      },
      to_undefined);
}

Napi::Value ModelHandle::load_resident_expert(const Napi::CallbackInfo& info) {
  const int layer = to_int(info[0], "layer");
  const int expert = to_int(info[1], "expert");
  ExpertSource source = to_expert_source(info[2]);
  const WeightFormat format = to_weight_format(info[3]);
  const SliceReading reading = info[4].IsUndefined() ? SliceReading::both : to_slice_reading(info[4]);
  return call_async(
      info.Env(), runtime()->device(), Thread::storage, {},
      [model = runtime(), layer, expert, source = std::move(source), format, reading] {
        model->load_resident_expert(layer, expert, source, format, reading);
        return Nothing{};
      },
      to_undefined);
}

Napi::Value ModelHandle::resident_weights(const Napi::CallbackInfo& info) {
  return from_resident_weights(info.Env(), runtime()->resident_weights());
}

Napi::Value ModelHandle::create_sequence(const Napi::CallbackInfo& info) {
  return SequenceHandle::create(info.Env(), AddonData::of(info.Env()).sequence, std::make_shared<Sequence>(runtime()));
}

Napi::Value ModelHandle::sequence_bytes(const Napi::CallbackInfo& info) {
  return Napi::Number::New(info.Env(), static_cast<double>(runtime()->sequence_memory()->held_bytes()));
}

Napi::Value ModelHandle::create_pass(const Napi::CallbackInfo& info) {
  const int max_rows = to_int(info[0], "maxRows", 1, kLargestPassRows);
  const bool all_scores = info.Length() > 1 && to_flag(info[1], "allScores");
  const RouterAnswer answer = all_scores ? RouterAnswer::all_scores : RouterAnswer::choice;
  return PassHandle::create(info.Env(), AddonData::of(info.Env()).pass, std::make_shared<Pass>(runtime(), max_rows, answer));
}

}  // namespace odmoe
