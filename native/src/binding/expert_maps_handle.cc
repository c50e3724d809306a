#include <utility>

#include "arguments.h"
#include "async_call.h"
#include "codec_calls.h"
#include "handles.h"

namespace odmoe {
namespace {

std::vector<int> to_distances(const Napi::Value& value) {
  if (!value.IsArray()) refuse("shape.distances", value, "an array");
  const auto array = value.As<Napi::Array>();
  if (array.Length() > kMostMapDistances) refuse("shape.distances", value, "an array of at most 64 distances");
  std::vector<int> distances;
  for (uint32_t i = 0; i < array.Length(); i++) distances.push_back(to_int(array.Get(i), "shape.distances", 0, kLargestMapCount));
  return distances;
}

ExpertMapsShape to_shape(const Napi::Value& value) {
  const Napi::Object object = to_object(value, "shape");
  ExpertMapsShape shape;
  shape.hidden_size = to_int(object.Get("hiddenSize"), "shape.hiddenSize", 1, kLargestMapInputs);
  shape.experts = to_int(object.Get("experts"), "shape.experts", 1, kLargestMapCount);
  shape.units = to_int(object.Get("units"), "shape.units", 1, kLargestMapCount);
  shape.layers = to_int(object.Get("layers"), "shape.layers", 1, kLargestMapCount);
  shape.distances = to_distances(object.Get("distances"));
  return shape;
}

template <typename Value>
std::vector<Value> copied(std::span<const Value> values) {
  return {values.begin(), values.end()};
}

LayerMaps to_layer(const Napi::Value& value) {
  const Napi::Object object = to_object(value, "weights");
  LayerMaps maps;
  maps.units = copied(signed_bytes_of(object.Get("units"), "weights.units"));
  maps.unit_scales = copied(floats_of(object.Get("unitScales"), "weights.unitScales"));
  maps.heads = copied(signed_bytes_of(object.Get("heads"), "weights.heads"));
  maps.head_scales = copied(floats_of(object.Get("headScales"), "weights.headScales"));
  maps.biases = copied(floats_of(object.Get("biases"), "weights.biases"));
  return maps;
}

std::vector<LayerMaps> to_layers(const Napi::Value& value) {
  if (!value.IsArray()) refuse("weights", value, "an array");
  const auto array = value.As<Napi::Array>();
  std::vector<LayerMaps> layers;
  for (uint32_t i = 0; i < array.Length(); i++) layers.push_back(to_layer(array.Get(i)));
  return layers;
}

}  // namespace

Napi::Function ExpertMapsHandle::define(Napi::Env env) {
  return DefineClass(env, "ExpertMaps",
                     {promise_named<&ExpertMapsHandle::predict>("predict"),
                      method_named<&ExpertMapsHandle::predict_here>("predictHere"), dispose_method()});
}

Napi::Value ExpertMapsHandle::predict(const Napi::CallbackInfo& info) {
  const int layer = to_int(info[0], "layer");
  const std::span<const float> states = floats_of(info[1], "states");
  const int rows = to_int(info[2], "rows", 0, kLargestPassRows);
  const std::shared_ptr<JobQueue>& threads = codec_threads(info.Env());
  return call_async(
      info.Env(), *threads, threads, {info[1].As<Napi::Object>()},
      [maps = runtime(), layer, states, rows] { return maps->predict(layer, states, rows); }, from_floats);
}

Napi::Value ExpertMapsHandle::predict_here(const Napi::CallbackInfo& info) {
  const int layer = to_int(info[0], "layer");
  const std::span<const float> states = floats_of(info[1], "states");
  return from_floats(info.Env(), runtime()->predict(layer, states, to_int(info[2], "rows", 0, kLargestPassRows)));
}

Napi::Value create_expert_maps(const Napi::CallbackInfo& info) {
  ExpertMapsShape shape = to_shape(info[0]);
  auto maps = std::make_shared<ExpertMaps>(std::move(shape), to_layers(info[1]));
  return ExpertMapsHandle::create(info.Env(), AddonData::of(info.Env()).expert_maps, std::move(maps));
}

}  // namespace odmoe
