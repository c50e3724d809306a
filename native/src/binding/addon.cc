// The addon's functions, in the order of native/addon.d.ts.
#include <napi.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <utility>

#include "addon_data.h"
#include "arguments.h"
#include "async_call.h"
#include "codec_calls.h"
#include "core_files.h"
#include "file_lock.h"
#include "format_names.h"
#include "handles.h"
#include "model_shape_argument.h"
#include "odmoe/answer_math.h"
#include "odmoe/error.h"
#include "odmoe/finite_values.h"
#include "odmoe/measure.h"
#include "odmoe/measure_experts.h"
#include "odmoe/measure_operators.h"
#include "odmoe/service_notice.h"
#include "parent_process.h"
#include "slice_calls.h"
#include "train_maps_call.h"
#include "wait_call.h"

#ifndef ODMOE_VERSION
#error "ODMOE_VERSION comes from the build"
#endif

namespace odmoe {
namespace {

// Most rows that an expert computes at a time.
constexpr int kLargestExpertRows = 128;
constexpr int kLargestSlots = 65536;

// A set is usable if a backend opens with it.
bool is_usable(const std::string& instruction_set) {
  try {
    make_cpu_backend({.threads = 1, .budget_bytes = 0, .instruction_set = instruction_set});
    return true;
  } catch (const Error&) {
    return false;
  }
}

Napi::Value instruction_sets(const Napi::CallbackInfo& info) {
  Napi::Array sets = Napi::Array::New(info.Env());
  for (const char* name : {"avx512", "avx2", "neon", "scalar"}) {
    if (is_usable(name)) sets.Set(sets.Length(), name);
  }
  return sets;
}

Napi::Value dense_roles(const Napi::CallbackInfo& info) {
  Napi::Object roles = Napi::Object::New(info.Env());
  for (const DenseRoleFacts& facts : kDenseRoles) {
    roles.Set(facts.name, std::string(facts.of_model ? "model " : "layer ") + (facts.is_vector ? "vector" : "matrix"));
  }
  return roles;
}

template <typename Names>
Napi::Object numbers_of(Napi::Env env, const Names& names) {
  Napi::Object numbers = Napi::Object::New(env);
  for (const auto& [member, name] : names) numbers.Set(name, static_cast<int>(static_cast<uint64_t>(member) & 0xff));
  return numbers;
}

Napi::Value format_numbers(const Napi::CallbackInfo& info) {
  Napi::Object lists = Napi::Object::New(info.Env());
  lists.Set("formats", numbers_of(info.Env(), kWeightFormatNames));
  lists.Set("splits", numbers_of(info.Env(), kSplitNames));
  lists.Set("codecs", numbers_of(info.Env(), kCodecNames));
  lists.Set("parts", numbers_of(info.Env(), kPartNames));
  lists.Set("readings", numbers_of(info.Env(), kSliceReadingNames));
  return lists;
}

Napi::Value error_codes(const Napi::CallbackInfo& info) {
  Napi::Array names = Napi::Array::New(info.Env());
  for (const char* name : kErrorCodeNames) names.Set(names.Length(), name);
  return names;
}

Napi::Value cuda_status_of(const Napi::CallbackInfo& info) { return from_cuda_status(info.Env(), cuda_status()); }

std::unique_ptr<Backend> open_backend(const Napi::Object& options) {
  if (names_cuda(options)) return make_cuda_backend(to_cuda_options(options));
  return make_cpu_backend(to_cpu_options(options));
}

Napi::Value open_device(const Napi::CallbackInfo& info) {
  auto device = std::make_shared<Device>(open_backend(to_object(info[0], "options")));
  return DeviceHandle::create(info.Env(), AddonData::of(info.Env()).device, std::move(device));
}

Napi::Value create_model(const Napi::CallbackInfo& info) {
  ModelShape shape = to_model_shape(to_object(info[1], "shape"));
  auto model = std::make_shared<Model>(DeviceHandle::of(info[0]), std::move(shape));
  return ModelHandle::create(info.Env(), AddonData::of(info.Env()).model, std::move(model));
}

Napi::Value create_expert_slots(const Napi::CallbackInfo& info) {
  const ExpertShape shape = to_expert_shape(info[1]);
  const int count = to_int(info[2], "count", 1, kLargestSlots);
  const int max_rows = to_int(info[3], "maxRows", 1, kLargestPassRows);
  const LoaderOptions loader = to_loader_options(info[4]);
  auto slots = std::make_shared<ExpertSlots>(DeviceHandle::of(info[0]), shape, count, max_rows, loader);
  return ExpertSlotsHandle::create(info.Env(), AddonData::of(info.Env()).expert_slots, std::move(slots));
}

Napi::Value expert_slot_bytes_of(const Napi::CallbackInfo& info) {
  const ExpertShape shape = to_expert_shape(info[1]);
  const int max_rows = to_int(info[2], "maxRows", 1, kLargestPassRows);
  const LoaderOptions loader = to_loader_options(info[3]);
  const ExpertSlotBytes bytes = expert_slot_bytes(*DeviceHandle::of(info[0])->backend(), shape, max_rows, loader);
  Napi::Object object = Napi::Object::New(info.Env());
  object.Set("slotBytes", static_cast<double>(bytes.slot_bytes));
  object.Set("lowerBytes", static_cast<double>(bytes.lower_bytes));
  object.Set("sharedBytes", static_cast<double>(bytes.shared_bytes));
  object.Set("exponentEntryBytes", static_cast<double>(bytes.exponent_entry_bytes));
  object.Set("signMantissaEntryBytes", static_cast<double>(bytes.sign_mantissa_entry_bytes));
  return object;
}

Napi::Value split_values(const Napi::CallbackInfo& info) {
  const std::span<const uint8_t> values = bytes_of(info[0], "values");
  const auto planes = split_planes(values.data(), values.size(), to_split(info[1]));
  Napi::Array arrays = Napi::Array::New(info.Env(), planes.size());
  for (uint32_t i = 0; i < planes.size(); i++) {
    Napi::Uint8Array array = Napi::Uint8Array::New(info.Env(), planes[i].size());
    std::copy(planes[i].begin(), planes[i].end(), array.Data());
    arrays.Set(i, array);
  }
  return arrays;
}

Napi::Value join_values(const Napi::CallbackInfo& info) {
  if (!info[0].IsArray()) refuse("planes", info[0], "an array");
  const auto arrays = info[0].As<Napi::Array>();
  const Split split = to_split(info[1]);
  const auto count = static_cast<uint32_t>(plane_count(split));
  if (is_quantized(split)) throw Error(ErrorCode::internal, "the planes of quantized weights are not joined");
  const auto width = [split](uint32_t plane) { return static_cast<uint64_t>(plane_value_bytes(split, static_cast<int>(plane))); };
  bool fit = arrays.Length() == count;
  const uint64_t values = fit ? bytes_of(arrays.Get(0u), "plane").size() / width(0) : 0;
  std::array<const uint8_t*, kMaxPlanes> planes{};
  for (uint32_t i = 0; fit && i < count; i++) {
    const std::span<const uint8_t> plane = bytes_of(arrays.Get(i), "plane");
    fit = plane.size() == values * width(i);
    planes[i] = plane.data();
  }
  if (!fit) throw Error(ErrorCode::internal, "the planes to join do not belong together");
  Napi::Uint8Array joined = Napi::Uint8Array::New(info.Env(), values * static_cast<uint64_t>(value_bytes(split)));
  join_planes(joined.Data(), planes.data(), split, values);
  return joined;
}

Napi::Value crc32c_of(const Napi::CallbackInfo& info) {
  const std::span<const uint8_t> bytes = bytes_of(info[0], "bytes");
  const auto seed = static_cast<uint32_t>(to_integer(info[1], "seed", 0, UINT32_MAX));
  return Napi::Number::New(info.Env(), crc32c(seed, bytes.data(), bytes.size()));
}

Napi::Value all_finite_of(const Napi::CallbackInfo& info) {
  return Napi::Boolean::New(info.Env(), all_finite(bytes_of(info[0], "values")));
}

float float_of(const Napi::Value& value, const char* name) { return static_cast<float>(to_number(value, name)); }

Napi::Value token_weights_of(const Napi::CallbackInfo& info) {
  const std::span<const float> logits = floats_of(info[0], "logits");
  const float highest = float_of(info[1], "highest");
  const float temperature = float_of(info[2], "temperature");
  if (temperature < 0) refuse("temperature", info[2], "a number of at least 0");
  Napi::Float32Array weights = Napi::Float32Array::New(info.Env(), logits.size());
  token_weights({weights.Data(), weights.ElementLength()}, logits, highest, temperature);
  return weights;
}

Napi::Value log_sum_exp_of(const Napi::CallbackInfo& info) {
  return Napi::Number::New(info.Env(), log_sum_exp(floats_of(info[0], "logits"), float_of(info[1], "highest")));
}

Napi::Value open_handles(const Napi::CallbackInfo& info) {
  Napi::Object counts = Napi::Object::New(info.Env());
  const auto set = [&](const char* name, int64_t count) { counts.Set(name, static_cast<double>(count)); };
  set("devices", Device::live());
  set("models", Model::live());
  set("sequences", Sequence::live());
  set("passes", Pass::live());
  set("expertSlots", ExpertSlots::live());
  set("expertMaps", ExpertMaps::live());
  set("calls", AddonData::of(info.Env()).completions->pending_calls());
  set("memoryBytes", static_cast<int64_t>(DeviceMemory::live_bytes()));
  return counts;
}

Napi::Value exit_with_parent_of(const Napi::CallbackInfo& info) {
  exit_with_parent();
  return info.Env().Undefined();
}

Napi::Value leave_no_core_of(const Napi::CallbackInfo& info) {
  leave_no_core();
  return info.Env().Undefined();
}

Napi::Value lock_file_of(const Napi::CallbackInfo& info) {
  return Napi::Boolean::New(info.Env(), lock_file(to_int(info[0], "file"), to_flag(info[1], "isShared")));
}

Napi::Value send_service_notice_of(const Napi::CallbackInfo& info) {
  const std::string reason = send_service_notice(to_text(info[0], "address"), to_text(info[1], "message"));
  return reason.empty() ? info.Env().Null() : Napi::Value(Napi::String::New(info.Env(), reason));
}

struct MachineSpeed {
  double read_bytes_per_s = 0;
  double fma_flop_per_s = 0;
};

Napi::Value measure_machine_of(const Napi::CallbackInfo& info) {
  const std::shared_ptr<Device> device = DeviceHandle::of(info[0]);
  return call_async(
      info.Env(), device, Thread::executor, {},
      [threads = device->backend()->info().threads, seconds = to_seconds(info[1])] {
        MachineSpeed speed;
        measure_machine(threads, seconds, &speed.read_bytes_per_s, &speed.fma_flop_per_s);
        return speed;
      },
      [](Napi::Env env, const MachineSpeed& speed) -> Napi::Value {
        Napi::Object object = Napi::Object::New(env);
        object.Set("readBytesPerS", speed.read_bytes_per_s);
        object.Set("fmaFlopPerS", speed.fma_flop_per_s);
        return object;
      });
}

std::vector<ExpertForm> forms_of(const Napi::Value& value) {
  if (!value.IsArray() || value.As<Napi::Array>().Length() == 0) refuse("forms", value, "a list of forms");
  const Napi::Array array = value.As<Napi::Array>();
  std::vector<ExpertForm> forms;
  for (uint32_t i = 0; i < array.Length(); i++) {
    const Napi::Object form = to_object(array.Get(i), "a form");
    const ExpertForm read{to_weight_format(form.Get("format")), to_flag(form.Get("upperAlone"), "upperAlone")};
    if (read.upper_alone && slice_bits(read.format) == 0)
      refuse("upperAlone", form.Get("upperAlone"), "false for a form without slices");
    forms.push_back(read);
  }
  return forms;
}

Napi::Value measure_experts_of(const Napi::CallbackInfo& info) {
  const std::shared_ptr<Device> device = DeviceHandle::of(info[0]);
  const Napi::Object object = to_object(info[1], "options");
  ExpertBenchOptions options;
  options.hidden_size = to_integer(object.Get("hiddenSize"), "hiddenSize", 1);
  options.intermediate_size = to_integer(object.Get("intermediateSize"), "intermediateSize", 1);
  options.experts = to_int(object.Get("experts"), "experts", 1);
  options.forms = forms_of(object.Get("forms"));
  for (const int32_t tokens : integers_of(object.Get("tokens"), "tokens")) {
    if (tokens < 1 || tokens > kLargestExpertRows)
      throw Error(ErrorCode::internal, "native call: tokens is " + std::to_string(tokens));
    options.tokens.push_back(tokens);
  }
  options.seconds = to_seconds(object.Get("milliseconds"));
  return call_async(
      info.Env(), device, Thread::executor, {}, [device, options] { return measure_experts(device->backend(), options); },
      [](Napi::Env env, const std::vector<ExpertSpeed>& speeds) -> Napi::Value {
        Napi::Array array = Napi::Array::New(env, speeds.size());
        for (uint32_t i = 0; i < speeds.size(); i++) {
          Napi::Object speed = Napi::Object::New(env);
          speed.Set("tokens", speeds[i].tokens);
          speed.Set("readBytesPerS", speeds[i].read_bytes_per_s);
          Napi::Array forms = Napi::Array::New(env, speeds[i].forms.size());
          for (uint32_t j = 0; j < speeds[i].forms.size(); j++) {
            const ExpertFormSpeed& measured = speeds[i].forms[j];
            Napi::Object form = Napi::Object::New(env);
            form.Set("bytesPerS", measured.bytes_per_s);
            form.Set("weightsPerS", measured.weights_per_s);
            form.Set("speedup", measured.speedup);
            forms.Set(j, form);
          }
          speed.Set("forms", forms);
          array.Set(i, speed);
        }
        return array;
      });
}

Napi::Value measure_operators_of(const Napi::CallbackInfo& info) {
  const std::shared_ptr<Device> device = DeviceHandle::of(info[0]);
  const double seconds = to_seconds(info[1]);
  return call_async(
      info.Env(), device, Thread::executor, {}, [device, seconds] { return measure_operators(device->backend(), seconds); },
      [](Napi::Env env, const std::vector<OperatorSpeed>& speeds) -> Napi::Value {
        Napi::Array array = Napi::Array::New(env, speeds.size());
        for (uint32_t i = 0; i < speeds.size(); i++) {
          Napi::Object speed = Napi::Object::New(env);
          speed.Set("operation", speeds[i].operation);
          speed.Set("sizes", speeds[i].sizes);
          speed.Set("rows", speeds[i].rows);
          speed.Set("callMs", speeds[i].call_s * 1000.0);
          speed.Set("readShare", speeds[i].read_share);
          speed.Set("fmaShare", speeds[i].fma_share);
          array.Set(i, speed);
        }
        return array;
      });
}

template <Napi::Value (*function)(const Napi::CallbackInfo&)>
Napi::Value translated(const Napi::CallbackInfo& info) {
  return translating_errors(info.Env(), [&] { return function(info); });
}

template <Napi::Value (*function)(const Napi::CallbackInfo&)>
void add(Napi::Object& exports, const char* name) {
  exports.Set(name, Napi::Function::New<translated<function>>(exports.Env(), name));
}

template <Napi::Value (*function)(const Napi::CallbackInfo&)>
Napi::Value rejected(const Napi::CallbackInfo& info) {
  return rejecting_errors(info.Env(), [&] { return function(info); });
}

// A function that returns a promise: its errors are rejections.
template <Napi::Value (*function)(const Napi::CallbackInfo&)>
void add_promise(Napi::Object& exports, const char* name) {
  exports.Set(name, Napi::Function::New<rejected<function>>(exports.Env(), name));
}

Napi::Value make_errors_with(const Napi::CallbackInfo& info) {
  if (!info[0].IsFunction()) refuse("toOdmoeError", info[0], "a function");
  AddonData::of(info.Env()).to_odmoe_error = Napi::Persistent(info[0].As<Napi::Function>());
  return info.Env().Undefined();
}

Napi::Object initialize(Napi::Env env, Napi::Object exports) {
  remember_parent();
  auto data = std::make_unique<AddonData>();
  data->completions = std::make_shared<Completions>(env);
  data->device = Napi::Persistent(DeviceHandle::define(env));
  data->model = Napi::Persistent(ModelHandle::define(env));
  data->sequence = Napi::Persistent(SequenceHandle::define(env));
  data->pass = Napi::Persistent(PassHandle::define(env));
  data->expert_slots = Napi::Persistent(ExpertSlotsHandle::define(env));
  data->tensor_rows = Napi::Persistent(TensorRowsHandle::define(env));
  data->expert_maps = Napi::Persistent(ExpertMapsHandle::define(env));
  env.SetInstanceData(data.release());

  exports.Set("version", ODMOE_VERSION);
  add<make_errors_with>(exports, "makeErrorsWith");
  add<instruction_sets>(exports, "instructionSets");
  add<dense_roles>(exports, "denseRoles");
  add<format_numbers>(exports, "formatNumbers");
  add<error_codes>(exports, "errorCodes");
  add<cuda_status_of>(exports, "cudaStatus");
  add<open_device>(exports, "openDevice");
  add<create_model>(exports, "createModel");
  add<create_expert_slots>(exports, "createExpertSlots");
  add<expert_slot_bytes_of>(exports, "expertSlotBytes");
  add<create_expert_maps>(exports, "createExpertMaps");
  add<train_expert_maps_of>(exports, "trainExpertMaps");
  add<open_tensor>(exports, "openTensor");
  add<split_values>(exports, "splitPlanes");
  add<join_values>(exports, "joinPlanes");
  add<crc32c_of>(exports, "crc32c");
  add<all_finite_of>(exports, "allFinite");
  add<token_weights_of>(exports, "tokenWeights");
  add<log_sum_exp_of>(exports, "logSumExp");
  add_promise<slice_rows_of>(exports, "sliceRows");
  add_promise<encode_chunk_of>(exports, "encodeChunk");
  add_promise<decode_chunk_of>(exports, "decodeChunk");
  add_promise<measure_codec_of>(exports, "measureCodec");
  add_promise<measure_reads_of>(exports, "measureReads");
  add_promise<measure_queued_reads_of>(exports, "measureQueuedReads");
  add_promise<measure_memory_copy_of>(exports, "measureMemoryCopy");
  add_promise<wait_until_of>(exports, "waitUntil");
  add<open_handles>(exports, "openHandles");
  add<exit_with_parent_of>(exports, "exitWithParent");
  add<leave_no_core_of>(exports, "leaveNoCore");
  add<lock_file_of>(exports, "lockFile");
  add<send_service_notice_of>(exports, "sendServiceNotice");
  add_promise<measure_machine_of>(exports, "measureMachine");
  add_promise<measure_experts_of>(exports, "measureExperts");
  add_promise<measure_operators_of>(exports, "measureOperators");
  return exports;
}

}  // namespace
}  // namespace odmoe

static Napi::Object initialize_addon(Napi::Env env, Napi::Object exports) { return odmoe::initialize(env, exports); }

NODE_API_MODULE(odmoe, initialize_addon)
