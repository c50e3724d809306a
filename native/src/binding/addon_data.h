// What one JavaScript environment keeps of the addon.
#pragma once
#include <napi.h>

#include <memory>

#include "completions.h"
#include "odmoe/device.h"
#include "odmoe/timer_queue.h"

namespace odmoe {

struct AddonData {
  std::shared_ptr<Completions> completions;
  std::shared_ptr<JobQueue> codec_threads;  // made when first asked for
  std::unique_ptr<TimerQueue> timers;       // likewise
  Napi::FunctionReference device;
  Napi::FunctionReference model;
  Napi::FunctionReference sequence;
  Napi::FunctionReference pass;
  Napi::FunctionReference expert_slots;
  Napi::FunctionReference tensor_rows;

  static AddonData& of(Napi::Env env) { return *env.GetInstanceData<AddonData>(); }
};

}  // namespace odmoe
