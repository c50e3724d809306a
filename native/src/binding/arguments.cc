#include "arguments.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <iterator>
#include <string_view>

#include "enumeration.h"
#include "grouped_name.h"
#include "format_names.h"
#include "model_shape_argument.h"
#include "odmoe/error.h"

namespace odmoe {
namespace {

constexpr int64_t kLargestRow = int64_t{1} << 24;
constexpr int kLargestThreads = 1024;
constexpr int kLargestDecompressionThreads = 64;
constexpr int kLargestEntries = 1 << 20;

// For an error. Only primitive values are shown: the conversion of an object could run JavaScript.
std::string shown(const Napi::Value& value) {
  switch (value.Type()) {
    case napi_undefined: return "undefined";
    case napi_null: return "null";
    case napi_boolean:
    case napi_number: return value.ToString().Utf8Value();
    case napi_string: return value.As<Napi::String>().Utf8Value().substr(0, 100);
    default: return "a value of another type";
  }
}

int64_t get_integer(const Napi::Object& object, const char* name, const std::string& of, int64_t lowest = 0,
                    int64_t highest = kLargestInt) {
  return to_integer(object.Get(name), of + "." + name, lowest, highest);
}

int get_int(const Napi::Object& object, const char* name, const std::string& of, int64_t lowest = 0,
            int64_t highest = kLargestInt) {
  return static_cast<int>(get_integer(object, name, of, lowest, highest));
}

uint64_t get_bytes(const Napi::Object& object, const char* name, const std::string& of) {
  return static_cast<uint64_t>(get_integer(object, name, of, 0, kLargestInteger));
}

float get_float(const Napi::Object& object, const char* name, const std::string& of) {
  const double number = to_number(object.Get(name), of + "." + name);
  const auto value = static_cast<float>(number);
  if (!std::isfinite(value)) refuse(of + "." + name, object.Get(name), "a number that FP32 holds");
  return value;
}

Napi::Array to_array(const Napi::Value& value, const std::string& name) {
  if (!value.IsArray()) refuse(name, value, "an array");
  return value.As<Napi::Array>();
}

ChunkLocation to_chunk_location(const Napi::Value& value) {
  const Napi::Object object = to_object(value, "chunk");
  ChunkLocation chunk;
  chunk.plane = get_int(object, "plane", "chunk");
  chunk.path = to_text(object.Get("path"), "chunk.path");
  chunk.offset_bytes = get_bytes(object, "offsetBytes", "chunk");
  chunk.stored_bytes = get_bytes(object, "storedBytes", "chunk");
  chunk.plain_bytes = get_bytes(object, "plainBytes", "chunk");
  chunk.codec = to_codec(object.Get("codec"));
  const Napi::Value crc = object.Get("crc32c");
  if (!crc.IsNull()) chunk.crc32c = static_cast<uint32_t>(to_integer(crc, "chunk.crc32c", 0, UINT32_MAX));
  return chunk;
}

constexpr std::array kStoredFormNames = {
    Named{StoredForm::nvfp4, "nvfp4"},       Named{StoredForm::fp8_bf16, "fp8-bf16"},
    Named{StoredForm::fp8_fp16, "fp8-fp16"}, Named{StoredForm::fp8_e8m0, "fp8-e8m0"},
    Named{StoredForm::int8, "int8"},         Named{StoredForm::pack_quantized, "pack-quantized"},
    Named{StoredForm::gptq, "gptq"},         Named{StoredForm::gptq_v1, "gptq-v1"},
    Named{StoredForm::awq, "awq"},
};

// The split of a stored matrix, or its form: the name of a form of GGUF, or an object with the form and the split.
void to_stored_split(const Napi::Value& value, TensorView& view) {
  if (value.IsObject()) {
    const Napi::Object object = value.As<Napi::Object>();
    view.form = to_enumeration(object.Get("form"), "form", kStoredFormNames);
    view.stored_split = to_split(object.Get("split"));
    return;
  }
  const std::string name = to_text(value, "view.storedSplit");
  if (name == "gguf-mxfp4") {
    view.form = StoredForm::gguf_mxfp4;
    view.stored_split = Split::mxfp4;
  } else if (name == "gguf-nvfp4") {
    view.form = StoredForm::gguf_nvfp4;
    view.stored_split = Split::nvfp4_multiplied;
  } else {
    view.stored_split = to_split(value);
  }
}

// A read checks that the view lies within its matrix: that depends on the checkpoint, not on the caller.
TensorView to_tensor_view(const Napi::Value& value) {
  const std::string name = "view";
  const Napi::Object object = to_object(value, name);
  TensorView view;
  view.stored_rows = get_integer(object, "storedRows", name, 1);
  view.stored_columns = get_integer(object, "storedColumns", name, 1);
  to_stored_split(object.Get("storedSplit"), view);
  view.scale_block_rows = get_integer(object, "scaleBlockRows", name, 1);
  view.first_row = get_integer(object, "firstRow", name);
  view.block_rows = get_integer(object, "blockRows", name, 1);
  view.step_rows = get_integer(object, "stepRows", name);
  view.first_column = get_integer(object, "firstColumn", name);
  view.step_columns = get_integer(object, "stepColumns", name, 1);
  view.transposed = to_flag(object.Get("transposed"), "view.transposed");
  view.multiply = get_float(object, "multiply", name);
  view.add = get_float(object, "add", name);
  return view;
}

}  // namespace

CodecKind to_codec(const Napi::Value& value) { return to_enumeration(value, "codec", kCodecNames); }

void refuse(const std::string& name, const Napi::Value& value, const std::string& wanted) {
  throw Error(ErrorCode::internal, "native call: " + name + " is " + shown(value) + ", but must be " + wanted);
}

int64_t to_integer(const Napi::Value& value, const std::string& name, int64_t lowest, int64_t highest) {
  if (value.IsNumber()) {
    const double number = value.As<Napi::Number>().DoubleValue();
    // NaN fails the comparisons.
    if (number >= static_cast<double>(lowest) && number <= static_cast<double>(highest) && number == std::floor(number)) {
      return static_cast<int64_t>(number);
    }
  }
  refuse(name, value, "an integer from " + std::to_string(lowest) + " to " + std::to_string(highest));
}

int to_int(const Napi::Value& value, const std::string& name, int lowest, int highest) {
  return static_cast<int>(to_integer(value, name, lowest, highest));
}

double to_number(const Napi::Value& value, const std::string& name) {
  if (value.IsNumber()) {
    const double number = value.As<Napi::Number>().DoubleValue();
    if (std::isfinite(number)) return number;
  }
  refuse(name, value, "a finite number");
}

double to_seconds(const Napi::Value& value) { return to_int(value, "milliseconds", 1) / 1000.0; }

std::string to_text(const Napi::Value& value, const std::string& name) {
  if (!value.IsString()) refuse(name, value, "a string");
  return value.As<Napi::String>().Utf8Value();
}

Napi::Object to_object(const Napi::Value& value, const std::string& name) {
  if (!value.IsObject()) refuse(name, value, "an object");
  return value.As<Napi::Object>();
}

bool to_flag(const Napi::Value& value, const std::string& name) {
  if (!value.IsBoolean()) refuse(name, value, "true or false");
  return value.As<Napi::Boolean>().Value();
}

// The number of grouped codes with their parameters; absent: another name.
static std::optional<uint64_t> to_grouped(const Napi::Value& value) {
  if (!value.IsString()) return std::nullopt;
  const std::optional<GroupedCodes> codes = grouped_codes_of(value.As<Napi::String>().Utf8Value());
  return codes ? std::optional(grouped_bits(*codes)) : std::nullopt;
}

WeightFormat to_weight_format(const Napi::Value& value) {
  const std::optional<uint64_t> grouped = to_grouped(value);
  return grouped ? static_cast<WeightFormat>(*grouped) : to_enumeration(value, "format", kWeightFormatNames);
}

Napi::Object from_resident_weights(Napi::Env env, const ResidentWeights& weights) {
  Napi::Array kinds = Napi::Array::New(env);
  for (const ResidentWeights::Kind& kind : weights.kinds) {
    Napi::Object object = Napi::Object::New(env);
    object.Set("format", is_grouped(kind.format) ? grouped_name(grouped_codes(kind.format))
                                                 : std::string(name_of(kind.format, kWeightFormatNames)));
    object.Set("matrices", static_cast<double>(kind.matrices));
    object.Set("bytes", static_cast<double>(kind.bytes));
    kinds.Set(kinds.Length(), object);
  }
  Napi::Object object = Napi::Object::New(env);
  object.Set("kinds", kinds);
  object.Set("fellBack", static_cast<double>(weights.fell_back));
  return object;
}

Split to_split(const Napi::Value& value) {
  const std::optional<uint64_t> grouped = to_grouped(value);
  return grouped ? static_cast<Split>(*grouped) : to_enumeration(value, "split", kSplitNames);
}

SliceReading to_slice_reading(const Napi::Value& value) { return to_enumeration(value, "reading", kSliceReadingNames); }

std::vector<SliceReading> to_slice_readings(const Napi::Value& value) {
  std::vector<SliceReading> readings;
  if (value.IsUndefined()) return readings;
  const Napi::Array array = to_array(value, "readings");
  for (uint32_t i = 0; i < array.Length() && i < kLargestPassRows; i++) readings.push_back(to_slice_reading(array.Get(i)));
  return readings;
}

DenseRole to_dense_role(const Napi::Value& value) {
  const std::string name = to_text(value, "role");
  for (size_t i = 0; i < kDenseRoleCount; i++) {
    if (name == kDenseRoles[i].name) return static_cast<DenseRole>(i);
  }
  throw Error(ErrorCode::internal, "'" + name + "' is no role of a dense tensor");
}

// A slot must take any expert of the model, and fixed4 cannot hold all of them.
ExpertShape to_expert_shape(const Napi::Value& value) {
  const Napi::Object object = to_object(value, "shape");
  const int64_t hidden_size = get_integer(object, "hiddenSize", "shape", 1, kLargestRow);
  const GluShape glu = to_glu_shape(to_object(object.Get("glu"), "shape.glu"));
  const WeightFormat format = to_weight_format(object.Get("format"));
  if (format == WeightFormat::fixed4) refuse("shape.format", object.Get("format"), "a format that holds every expert");
  if (2 * glu.intermediate_size > kLargestRow) {
    throw Error(ErrorCode::model_unsupported, "the model has " + std::to_string(2 * glu.intermediate_size) +
                                                  " gate and up values of an expert, of at most " + std::to_string(kLargestRow) +
                                                  "; this build cannot run it");
  }
  ExpertShape shape{hidden_size, glu, format};
  if (format != WeightFormat::shipped) return shape;
  const Napi::Array shipped = to_array(object.Get("shipped"), "shape.shipped");
  if (shipped.Length() == 0) refuse("shape.shipped", shipped, "the formats of at least one expert");
  for (uint32_t i = 0; i < shipped.Length(); i++) {
    const Napi::Object formats = to_object(shipped.Get(i), "shape.shipped");
    shape.shipped.push_back(
        {to_weight_format(formats.Get("gate")), to_weight_format(formats.Get("up")), to_weight_format(formats.Get("down"))});
  }
  return shape;
}

TensorSource to_tensor_source(const Napi::Value& value, const std::string& name) {
  const Napi::Object object = to_object(value, name);
  TensorSource source;
  source.rows = get_integer(object, "rows", name, 1);
  source.columns = get_integer(object, "columns", name, 1);
  source.split = to_split(object.Get("split"));
  const Napi::Array chunks = to_array(object.Get("chunks"), name + ".chunks");
  for (uint32_t i = 0; i < chunks.Length(); i++) source.chunks.push_back(to_chunk_location(chunks.Get(i)));
  const Napi::Value view = object.Get("view");
  if (!view.IsNull()) source.view = to_tensor_view(view);
  return source;
}

ExpertSource to_expert_source(const Napi::Value& value) {
  const Napi::Object object = to_object(value, "source");
  ExpertSource source{to_tensor_source(object.Get("gate"), "source.gate"),
                      to_tensor_source(object.Get("up"), "source.up"),
                      to_tensor_source(object.Get("down"), "source.down"),
                      {}};
  if (const Napi::Value biases = object.Get("biases"); !biases.IsNull()) {
    const std::span<const float> values = floats_of(biases, "source.biases");
    source.biases.assign(values.begin(), values.end());
  }
  if (const Napi::Value limit = object.Get("gluLimit"); !limit.IsUndefined()) {
    const auto value = static_cast<float>(to_number(limit, "source.gluLimit"));
    if (!std::isfinite(value) || value < 0) refuse("source.gluLimit", limit, "a number of at least 0 that FP32 holds");
    source.glu_limit = value;
  }
  return source;
}

int to_read_depth(const Napi::Value& value) { return to_int(value, "depth", 1, kReadDepthLimit); }

WantedStorageWay to_storage_way(const Napi::Value& value) {
  static constexpr std::array<std::string_view, 3> kWays = {"auto", "threads", "io_uring"};
  return to_enumeration<WantedStorageWay>(value, "way", kWays);
}

LoaderOptions to_loader_options(const Napi::Value& value) {
  const std::string name = "loader";
  const Napi::Object object = to_object(value, name);
  LoaderOptions options;
  options.decompression_threads = get_int(object, "decompressionThreads", name, 0, kLargestDecompressionThreads);
  options.direct_io = to_flag(object.Get("directIo"), "loader.directIo");
  options.storage_bytes_per_s = static_cast<double>(get_bytes(object, "storageBytesPerS", name));
  options.read_depth = to_read_depth(object.Get("readDepth"));
  options.storage_way = to_storage_way(object.Get("storageWay"));
  options.exponent_entries = get_int(object, "exponentEntries", name, 0, kLargestEntries);
  options.sign_mantissa_entries = get_int(object, "signMantissaEntries", name, 0, kLargestEntries);
  options.expert_exponent_bytes = get_bytes(object, "expertExponentBytes", name);
  options.expert_sign_mantissa_bytes = get_bytes(object, "expertSignMantissaBytes", name);
  options.shard_exponent_bytes = get_bytes(object, "shardExponentBytes", name);
  options.shard_sign_mantissa_bytes = get_bytes(object, "shardSignMantissaBytes", name);
  options.experts = get_integer(object, "experts", name);
  const Napi::Value packs = object.Get("packs");
  options.packs = !packs.IsUndefined() && to_flag(packs, "loader.packs");
  return options;
}

std::optional<ExpertOrder> to_expert_order(const Napi::Value& value) {
  if (value.IsNull()) return std::nullopt;
  ExpertOrder order;
  const Napi::Array array = to_array(value, "order");
  if (array.Length() != order.size()) refuse("order", value, "null or three places");
  for (uint32_t i = 0; i < order.size(); i++) {
    const Napi::Object task = to_object(array.Get(i), "order");
    order[i] = {get_integer(task, "block", "order"), get_integer(task, "position", "order")};
  }
  return order;
}

LoadRequest to_load_request(const Napi::Value& value) {
  const auto to_part_plan = [](const Napi::Value& part, const std::string& name) {
    static constexpr std::array<std::string_view, 3> kOrigins = {"storage", "entry", "notWanted"};
    const Napi::Object plan = to_object(part, name);
    const auto from = to_enumeration<PartOrigin>(plan.Get("from"), "from", kOrigins);
    const int lowest = from == PartOrigin::entry ? 0 : -1;
    return PartPlan{from, get_int(plan, "entry", name, lowest, from == PartOrigin::not_wanted ? -1 : kLargestInt)};
  };
  const Napi::Object object = to_object(value, "request");
  LoadRequest request;
  request.exponents = to_part_plan(object.Get("exponents"), "exponents");
  request.sign_mantissa = to_part_plan(object.Get("signMantissa"), "signMantissa");
  request.order = to_expert_order(object.Get("order"));
  request.urgent = to_flag(object.Get("urgent"), "request.urgent");
  if (const Napi::Value held = object.Get("held"); !held.IsUndefined()) request.held = to_int(held, "held");
  return request;
}

CpuOptions to_cpu_options(const Napi::Object& object) {
  return {get_int(object, "threads", "device", 0, kLargestThreads), get_bytes(object, "budgetBytes", "device"),
          to_text(object.Get("instructionSet"), "instructionSet")};
}

bool names_cuda(const Napi::Object& object) {
  static constexpr std::array<std::string_view, 2> kBackends = {"cpu", "cuda"};
  return to_enumeration<int>(object.Get("backend"), "backend", kBackends) == 1;
}

CudaOptions to_cuda_options(const Napi::Object& object) {
  static constexpr std::array<std::string_view, 2> kArithmetics = {"exact", "fast"};
  return {get_int(object, "device", "device"), get_bytes(object, "budgetBytes", "device"),
          to_enumeration<int>(object.Get("arithmetic"), "arithmetic", kArithmetics) == 1};
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

namespace {

// A detached array has no values.
template <typename Array>
Array typed_array(const Napi::Value& value, const std::string& name, napi_typedarray_type type, const char* wanted) {
  if (!value.IsTypedArray() || value.As<Napi::TypedArray>().TypedArrayType() != type) refuse(name, value, wanted);
  return value.As<Array>();
}

}  // namespace

std::span<uint8_t> bytes_of(const Napi::Value& value, const std::string& name) {
  auto array = typed_array<Napi::Uint8Array>(value, name, napi_uint8_array, "a Uint8Array");
  return {array.Data(), array.ElementLength()};
}

std::span<float> written_floats_of(const Napi::Value& value, const std::string& name) {
  auto array = typed_array<Napi::Float32Array>(value, name, napi_float32_array, "a Float32Array");
  return {array.Data(), array.ElementLength()};
}

std::span<const float> floats_of(const Napi::Value& value, const std::string& name) { return written_floats_of(value, name); }

std::span<const int8_t> signed_bytes_of(const Napi::Value& value, const std::string& name) {
  const auto array = typed_array<Napi::Int8Array>(value, name, napi_int8_array, "an Int8Array");
  return {array.Data(), array.ElementLength()};
}

std::vector<int32_t> integers_of(const Napi::Value& value, const std::string& name) {
  const auto array = typed_array<Napi::Int32Array>(value, name, napi_int32_array, "an Int32Array");
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
  if (!choice.scores.empty()) {
    object.Set("logits", from_floats(env, choice.logits));
    object.Set("scores", from_floats(env, choice.scores));
  }
  return object;
}

}  // namespace odmoe
