// What one JavaScript environment keeps of the addon.
#pragma once
#include <napi.h>

#include <memory>

#include "completions.h"
#include "odmoe/device.h"

namespace odmoe {

struct AddonData {
  std::shared_ptr<Completions> completions;
  std::shared_ptr<JobQueue> codec_threads;  // made when first asked for
  Napi::FunctionReference device;
  Napi::FunctionReference model;
  Napi::FunctionReference sequence;
  Napi::FunctionReference pass;
  Napi::FunctionReference expert_slots;

  static AddonData& of(Napi::Env env) { return *env.GetInstanceData<AddonData>(); }
};

}  // namespace odmoe
