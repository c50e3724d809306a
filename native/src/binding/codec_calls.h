// The addon's functions that encode, decode and measure chunks and storage; they run on separate threads.
#pragma once
#include <napi.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "odmoe/device.h"

namespace odmoe {

// Created at the first use.
const std::shared_ptr<JobQueue>& codec_threads(Napi::Env env);
// Uses the bytes themselves, not a copy: there may be many, and this runs on the JavaScript thread.
Napi::Value from_bytes(Napi::Env env, std::vector<uint8_t>& bytes);

Napi::Value encode_chunk_of(const Napi::CallbackInfo& info);
Napi::Value decode_chunk_of(const Napi::CallbackInfo& info);
Napi::Value measure_codec_of(const Napi::CallbackInfo& info);
Napi::Value measure_reads_of(const Napi::CallbackInfo& info);
Napi::Value measure_queued_reads_of(const Napi::CallbackInfo& info);
Napi::Value measure_memory_copy_of(const Napi::CallbackInfo& info);

}  // namespace odmoe
