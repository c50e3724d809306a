// The addon's functions that encode, decode and measure chunks and storage; they run on threads of their own.
#pragma once
#include <napi.h>

namespace odmoe {

Napi::Value encode_chunk_of(const Napi::CallbackInfo& info);
Napi::Value decode_chunk_of(const Napi::CallbackInfo& info);
Napi::Value measure_codec_of(const Napi::CallbackInfo& info);
Napi::Value measure_reads_of(const Napi::CallbackInfo& info);

}  // namespace odmoe
