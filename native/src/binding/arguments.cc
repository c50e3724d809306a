#include "arguments.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <string_view>

#include "enumeration.h"
#include "format_names.h"
#include "model_shape_argument.h"
#include "odmoe/error.h"

namespace odmoe {
namespace {

int64_t get_integer(const Napi::Object& object, const char* name) { return object.Get(name).As<Napi::Number>().Int64Value(); }

int get_int(const Napi::Object& object, const char* name) { return static_cast<int>(get_integer(object, name)); }

std::string get_string(const Napi::Object& object, const char* name) { return object.Get(name).As<Napi::String>().Utf8Value(); }

ChunkLocation to_chunk_location(const Napi::Object& object) {
  ChunkLocation chunk;
  chunk.plane = get_int(object, "plane");
  chunk.path = get_string(object, "path");
  chunk.offset_bytes = static_cast<uint64_t>(get_integer(object, "offsetBytes"));
  chunk.stored_bytes = static_cast<uint64_t>(get_integer(object, "storedBytes"));
  chunk.plain_bytes = static_cast<uint64_t>(get_integer(object, "plainBytes"));
  chunk.codec = to_codec(object.Get("codec"));
  const Napi::Value crc = object.Get("crc32c");
  if (crc.IsNumber()) chunk.crc32c = crc.As<Napi::Number>().Uint32Value();
  return chunk;
}

TensorView to_tensor_view(const Napi::Object& object) {
  TensorView view;
  view.stored_rows = get_integer(object, "storedRows");
  view.stored_columns = get_integer(object, "storedColumns");
  view.stored_split = to_split(object.Get("storedSplit"));
  view.scale_block_rows = get_integer(object, "scaleBlockRows");
  view.first_row = get_integer(object, "firstRow");
  view.block_rows = get_integer(object, "blockRows");
  view.step_rows = get_integer(object, "stepRows");
  view.first_column = get_integer(object, "firstColumn");
  view.step_columns = get_integer(object, "stepColumns");
  view.transposed = object.Get("transposed").As<Napi::Boolean>().Value();
  view.multiply = object.Get("multiply").As<Napi::Number>().FloatValue();
  view.add = object.Get("add").As<Napi::Number>().FloatValue();
  return view;
}

}  // namespace

CodecKind to_codec(const Napi::Value& value) { return to_member(value, kCodecNames); }

int to_int(const Napi::Value& value) { return value.As<Napi::Number>().Int32Value(); }

uint64_t to_uint64(const Napi::Value& value) { return static_cast<uint64_t>(value.As<Napi::Number>().Int64Value()); }

WeightFormat to_weight_format(const Napi::Value& value) { return to_member(value, kWeightFormatNames); }

Napi::Object from_resident_weights(Napi::Env env, const ResidentWeights& weights) {
  Napi::Array kinds = Napi::Array::New(env);
  for (const ResidentWeights::Kind& kind : weights.kinds) {
    Napi::Object object = Napi::Object::New(env);
    object.Set("format", name_of(kind.format, kWeightFormatNames));
    object.Set("matrices", static_cast<double>(kind.matrices));
    object.Set("bytes", static_cast<double>(kind.bytes));
    kinds.Set(kinds.Length(), object);
  }
  Napi::Object object = Napi::Object::New(env);
  object.Set("kinds", kinds);
  object.Set("fellBack", static_cast<double>(weights.fell_back));
  return object;
}

Split to_split(const Napi::Value& value) { return to_member(value, kSplitNames); }

DenseRole to_dense_role(const Napi::Value& value) {
  const std::string name = value.As<Napi::String>().Utf8Value();
  for (size_t i = 0; i < kDenseRoleCount; i++) {
    if (name == kDenseRoles[i].name) return static_cast<DenseRole>(i);
  }
  throw Error(ErrorCode::internal, "'" + name + "' is no role of a dense tensor");
}

ExpertShape to_expert_shape(const Napi::Object& object) {
  return {get_integer(object, "hiddenSize"), to_glu_shape(object.Get("glu").As<Napi::Object>()),
          to_weight_format(object.Get("format"))};
}

TensorSource to_tensor_source(const Napi::Object& object) {
  TensorSource source;
  source.rows = get_integer(object, "rows");
  source.columns = get_integer(object, "columns");
  source.split = to_split(object.Get("split"));
  const auto chunks = object.Get("chunks").As<Napi::Array>();
  for (uint32_t i = 0; i < chunks.Length(); i++) {
    source.chunks.push_back(to_chunk_location(chunks.Get(i).As<Napi::Object>()));
  }
  const Napi::Value view = object.Get("view");
  if (view.IsObject()) source.view = to_tensor_view(view.As<Napi::Object>());
  return source;
}

ExpertSource to_expert_source(const Napi::Object& object) {
  ExpertSource source{to_tensor_source(object.Get("gate").As<Napi::Object>()),
                      to_tensor_source(object.Get("up").As<Napi::Object>()),
                      to_tensor_source(object.Get("down").As<Napi::Object>()),
                      {}};
  if (const Napi::Value biases = object.Get("biases"); biases.IsTypedArray()) {
    const std::span<const float> values = floats_of(biases);
    source.biases.assign(values.begin(), values.end());
  }
  return source;
}

WantedStorageWay to_storage_way(const Napi::Value& value) {
  static constexpr std::array<std::string_view, 3> kWays = {"auto", "threads", "io_uring"};
  return to_enumeration<WantedStorageWay>(value, kWays);
}

LoaderOptions to_loader_options(const Napi::Object& object) {
  LoaderOptions options;
  options.decompression_threads = get_int(object, "decompressionThreads");
  options.direct_io = object.Get("directIo").As<Napi::Boolean>().Value();
  options.storage_bytes_per_s = object.Get("storageBytesPerS").As<Napi::Number>().DoubleValue();
  options.read_depth = get_int(object, "readDepth");
  options.storage_way = to_storage_way(object.Get("storageWay"));
  options.exponent_entries = get_int(object, "exponentEntries");
  options.sign_mantissa_entries = get_int(object, "signMantissaEntries");
  options.expert_exponent_bytes = static_cast<uint64_t>(get_integer(object, "expertExponentBytes"));
  options.expert_sign_mantissa_bytes = static_cast<uint64_t>(get_integer(object, "expertSignMantissaBytes"));
  options.shard_exponent_bytes = static_cast<uint64_t>(get_integer(object, "shardExponentBytes"));
  options.shard_sign_mantissa_bytes = static_cast<uint64_t>(get_integer(object, "shardSignMantissaBytes"));
  options.experts = get_integer(object, "experts");
  const Napi::Value packs = object.Get("packs");
  options.packs = packs.IsBoolean() && packs.As<Napi::Boolean>().Value();
  return options;
}

std::optional<ExpertOrder> to_expert_order(const Napi::Value& value) {
  if (!value.IsArray()) return std::nullopt;
  const auto array = value.As<Napi::Array>();
  ExpertOrder order;
  for (uint32_t i = 0; i < order.size(); i++) {
    const auto task = array.Get(i).As<Napi::Object>();
    order[i] = {get_integer(task, "block"), get_integer(task, "position")};
  }
  return order;
}

LoadRequest to_load_request(const Napi::Object& object) {
  const auto to_part_plan = [](const Napi::Object& plan) {
    static constexpr std::array<std::string_view, 2> kOrigins = {"storage", "entry"};
    return PartPlan{to_enumeration<PartOrigin>(plan.Get("from"), kOrigins), get_int(plan, "entry")};
  };
  LoadRequest request;
  request.exponents = to_part_plan(object.Get("exponents").As<Napi::Object>());
  request.sign_mantissa = to_part_plan(object.Get("signMantissa").As<Napi::Object>());
  request.order = to_expert_order(object.Get("order"));
  request.urgent = object.Get("urgent").As<Napi::Boolean>().Value();
  if (object.Has("held")) request.held = get_int(object, "held");
  return request;
}

CpuOptions to_cpu_options(const Napi::Object& object) {
  return {get_int(object, "threads"), static_cast<uint64_t>(get_integer(object, "budgetBytes")),
          get_string(object, "instructionSet")};
}

bool names_cuda(const Napi::Object& object) {
  static constexpr std::array<std::string_view, 2> kBackends = {"cpu", "cuda"};
  return to_enumeration<int>(object.Get("backend"), kBackends) == 1;
}

CudaOptions to_cuda_options(const Napi::Object& object) {
  static constexpr std::array<std::string_view, 2> kArithmetics = {"exact", "fast"};
  return {get_int(object, "device"), static_cast<uint64_t>(get_integer(object, "budgetBytes")),
          to_enumeration<int>(object.Get("arithmetic"), kArithmetics) == 1};
}

Napi::Object from_cuda_status(Napi::Env env, const CudaStatus& status) {
  const auto optional_text = [env](const std::string& text) -> Napi::Value {
    return text.empty() ? env.Null() : Napi::String::New(env, text);
  };
  Napi::Array architectures = Napi::Array::New(env);
  for (const std::string& name : status.architectures) architectures.Set(architectures.Length(), name);
  Napi::Array devices = Napi::Array::New(env);
  for (const CudaDevice& device : status.devices) {
    Napi::Object object = Napi::Object::New(env);
    object.Set("index", device.index);
    object.Set("name", device.name);
    object.Set("capability", device.capability);
    object.Set("memoryBytes", static_cast<double>(device.memory_bytes));
    object.Set("multiprocessors", device.multiprocessors);
    object.Set("integrated", device.integrated);
    object.Set("pagedMemory", device.paged_memory);
    object.Set("usable", device.usable);
    object.Set("reason", optional_text(device.reason));
    devices.Set(devices.Length(), object);
  }
  Napi::Object object = Napi::Object::New(env);
  object.Set("built", status.built);
  object.Set("library", status.library);
  object.Set("architectures", architectures);
  object.Set("usable", status.usable);
  object.Set("reason", optional_text(status.reason));
  object.Set("driverVersion", optional_text(status.driver_version));
  object.Set("runtimeVersion", optional_text(status.runtime_version));
  object.Set("devices", devices);
  return object;
}

std::span<uint8_t> bytes_of(const Napi::Value& value) {
  auto array = value.As<Napi::Uint8Array>();
  return {array.Data(), array.ElementLength()};
}

std::span<const float> floats_of(const Napi::Value& value) {
  const auto array = value.As<Napi::Float32Array>();
  return {array.Data(), array.ElementLength()};
}

std::vector<int32_t> integers_of(const Napi::Value& value) {
  const auto array = value.As<Napi::Int32Array>();
  return std::vector<int32_t>(array.Data(), array.Data() + array.ElementLength());
}

Napi::Value from_floats(Napi::Env env, const std::vector<float>& values) {
  Napi::Float32Array array = Napi::Float32Array::New(env, values.size());
  std::copy(values.begin(), values.end(), array.Data());
  return array;
}

Napi::Value from_router_choice(Napi::Env env, const RouterChoice& choice) {
  Napi::Int32Array experts = Napi::Int32Array::New(env, choice.experts.size());
  std::copy(choice.experts.begin(), choice.experts.end(), experts.Data());
  Napi::Object object = Napi::Object::New(env);
  object.Set("experts", experts);
  object.Set("weights", from_floats(env, choice.weights));
  return object;
}

}  // namespace odmoe
