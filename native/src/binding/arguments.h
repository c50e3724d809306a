// Converts JavaScript values to the runtime's types and back. native/index.ts has checked them; a value that does not fit still
// throws.
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

int to_int(const Napi::Value& value);
uint64_t to_uint64(const Napi::Value& value);
WeightFormat to_weight_format(const Napi::Value& value);
CodecKind to_codec(const Napi::Value& value);
Split to_split(const Napi::Value& value);
DenseRole to_dense_role(const Napi::Value& value);
Napi::Object from_resident_weights(Napi::Env env, const ResidentWeights& weights);
ExpertShape to_expert_shape(const Napi::Object& object);
TensorSource to_tensor_source(const Napi::Object& object);
ExpertSource to_expert_source(const Napi::Object& object);
WantedStorageWay to_storage_way(const Napi::Value& value);
LoaderOptions to_loader_options(const Napi::Object& object);
LoadRequest to_load_request(const Napi::Object& object);
// null: none.
std::optional<ExpertOrder> to_expert_order(const Napi::Value& value);
// Device options: names_cuda tells the kind of device, the others convert the options.
bool names_cuda(const Napi::Object& object);
CpuOptions to_cpu_options(const Napi::Object& object);
CudaOptions to_cuda_options(const Napi::Object& object);
Napi::Object from_cuda_status(Napi::Env env, const CudaStatus& status);

// Views that are valid as long as the array exists.
std::span<uint8_t> bytes_of(const Napi::Value& value);
std::span<const float> floats_of(const Napi::Value& value);
std::vector<int32_t> integers_of(const Napi::Value& value);

Napi::Value from_router_choice(Napi::Env env, const RouterChoice& choice);
Napi::Value from_floats(Napi::Env env, const std::vector<float>& values);

}  // namespace odmoe
