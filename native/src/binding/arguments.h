// Converts JavaScript values to the runtime's types and back. This is the one place where arguments are checked: each conversion throws
// INTERNAL for a value that does not fit. A conversion may run JavaScript (getters of an object), which may dispose of handles; so a call
// converts its arguments before it looks at its runtime object.
#pragma once
#include <napi.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "odmoe/backend.h"
#include "odmoe/cuda.h"
#include "odmoe/expert.h"
#include "odmoe/expert_load.h"
#include "odmoe/model.h"
#include "odmoe/pass.h"
#include "odmoe/store.h"

namespace odmoe {

inline constexpr int64_t kLargestInt = (int64_t{1} << 31) - 1;
// Number.MAX_SAFE_INTEGER.
inline constexpr int64_t kLargestInteger = (int64_t{1} << 53) - 1;
// Most rows of a pass and of an execute.
inline constexpr int kLargestPassRows = 65536;

// Sizes of expert maps; they bound every product of sizes.
inline constexpr int kLargestMapInputs = 1 << 20;
inline constexpr int kLargestMapCount = 1 << 16;
inline constexpr uint32_t kMostMapDistances = 64;

// `name`: the argument, for the error.
[[noreturn]] void refuse(const std::string& name, const Napi::Value& value, const std::string& wanted);
int64_t to_integer(const Napi::Value& value, const std::string& name, int64_t lowest = 0, int64_t highest = kLargestInt);
int to_int(const Napi::Value& value, const std::string& name, int lowest = 0, int highest = static_cast<int>(kLargestInt));
double to_number(const Napi::Value& value, const std::string& name);
// Milliseconds, at least 1, as seconds.
double to_seconds(const Napi::Value& value);
std::string to_text(const Napi::Value& value, const std::string& name);
Napi::Object to_object(const Napi::Value& value, const std::string& name);
WeightFormat to_weight_format(const Napi::Value& value);
CodecKind to_codec(const Napi::Value& value);
Split to_split(const Napi::Value& value);
SliceReading to_slice_reading(const Napi::Value& value);
// An array of a reading for each row; undefined: none.
std::vector<SliceReading> to_slice_readings(const Napi::Value& value);
DenseRole to_dense_role(const Napi::Value& value);
Napi::Object from_resident_weights(Napi::Env env, const ResidentWeights& weights);
ExpertShape to_expert_shape(const Napi::Value& value);
TensorSource to_tensor_source(const Napi::Value& value, const std::string& name);
ExpertSource to_expert_source(const Napi::Value& value);
WantedStorageWay to_storage_way(const Napi::Value& value);
int to_read_depth(const Napi::Value& value);
bool to_flag(const Napi::Value& value, const std::string& name);
LoaderOptions to_loader_options(const Napi::Value& value);
LoadRequest to_load_request(const Napi::Value& value);
// null: none.
std::optional<ExpertOrder> to_expert_order(const Napi::Value& value);
// Device options: names_cuda tells the kind of device, the others convert the options.
bool names_cuda(const Napi::Object& object);
CpuOptions to_cpu_options(const Napi::Object& object);
CudaOptions to_cuda_options(const Napi::Object& object);
Napi::Object from_cuda_status(Napi::Env env, const CudaStatus& status);

// Views that are valid as long as the array exists.
std::span<uint8_t> bytes_of(const Napi::Value& value, const std::string& name);
std::span<const float> floats_of(const Napi::Value& value, const std::string& name);
std::span<float> written_floats_of(const Napi::Value& value, const std::string& name);
std::span<const int8_t> signed_bytes_of(const Napi::Value& value, const std::string& name);
std::vector<int32_t> integers_of(const Napi::Value& value, const std::string& name);

Napi::Value from_router_choice(Napi::Env env, const RouterChoice& choice);
Napi::Value from_floats(Napi::Env env, const std::vector<float>& values);

}  // namespace odmoe
