// Data of the addon in one JavaScript environment.
#pragma once
#include <napi.h>

#include <memory>

#include "completions.h"
#include "odmoe/device.h"
#include "odmoe/timer_queue.h"

namespace odmoe {

struct AddonData {
  std::shared_ptr<Completions> completions;
  std::shared_ptr<JobQueue> codec_threads;  // created at the first use
  std::unique_ptr<TimerQueue> timers;       // likewise
  // Turns a thrown value into an OdmoeError.
  Napi::FunctionReference to_odmoe_error;
  Napi::FunctionReference device;
  Napi::FunctionReference model;
  Napi::FunctionReference sequence;
  Napi::FunctionReference pass;
  Napi::FunctionReference expert_slots;
  Napi::FunctionReference tensor_rows;
  Napi::FunctionReference expert_maps;

  static AddonData& of(Napi::Env env) { return *env.GetInstanceData<AddonData>(); }
};

}  // namespace odmoe
