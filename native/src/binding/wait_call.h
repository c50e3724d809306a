// waitUntil and eventTimeMs of native/addon.d.ts.
#pragma once
#include <napi.h>

namespace odmoe {

Napi::Value wait_until_of(const Napi::CallbackInfo& info);

}  // namespace odmoe
