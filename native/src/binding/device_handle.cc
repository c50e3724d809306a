#include "handles.h"

namespace odmoe {

Napi::Function DeviceHandle::define(Napi::Env env) {
  return DefineClass(env, "Device", {method_named<&DeviceHandle::info>("info"), dispose_method()});
}

Napi::Value DeviceHandle::info(const Napi::CallbackInfo& info) {
  const DeviceInfo device = runtime()->backend()->info();
  Napi::Object object = Napi::Object::New(info.Env());
  object.Set("backend", device.backend);
  object.Set("instructionSet", device.instruction_set);
  object.Set("threads", device.threads);
  object.Set("budgetBytes", static_cast<double>(device.budget_bytes));
  object.Set("usedBytes", static_cast<double>(device.used_bytes));
  object.Set("highWaterBytes", static_cast<double>(device.high_water_bytes));
  object.Set("name", device.name);
  object.Set("contextBytes", static_cast<double>(device.context_bytes));
  object.Set("driverUsedBytes", device.driver_used_bytes
                                    ? Napi::Number::New(info.Env(), static_cast<double>(*device.driver_used_bytes))
                                    : info.Env().Null());
  object.Set("pagedExperts", device.paged_experts);
  return object;
}

}  // namespace odmoe
