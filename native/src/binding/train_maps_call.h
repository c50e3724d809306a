// The addon's function that trains expert maps.
#pragma once
#include <napi.h>

namespace odmoe {

Napi::Value train_expert_maps_of(const Napi::CallbackInfo& info);

}  // namespace odmoe
