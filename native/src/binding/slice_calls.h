// The addon's function that cuts weights into slices (packing); it runs on separate threads.
#pragma once
#include <napi.h>

namespace odmoe {

Napi::Value slice_rows_of(const Napi::CallbackInfo& info);

}  // namespace odmoe
