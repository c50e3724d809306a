#include "arguments.h"
#include "async_call.h"
#include "handles.h"

namespace odmoe {

Napi::Function ExpertSlotsHandle::define(Napi::Env env) {
  return DefineClass(
      env, "ExpertSlots",
      {property_named<&ExpertSlotsHandle::count>("count"), property_named<&ExpertSlotsHandle::slot_bytes>("slotBytes"),
       method_named<&ExpertSlotsHandle::load>("load"), method_named<&ExpertSlotsHandle::cancel>("cancel"),
       method_named<&ExpertSlotsHandle::execute>("execute"), dispose_method()});
}

Napi::Value ExpertSlotsHandle::count(const Napi::CallbackInfo& info) {
  return Napi::Number::New(info.Env(), runtime()->count());
}

Napi::Value ExpertSlotsHandle::slot_bytes(const Napi::CallbackInfo& info) {
  return Napi::Number::New(info.Env(), static_cast<double>(runtime()->slot_bytes()));
}

Napi::Value ExpertSlotsHandle::load(const Napi::CallbackInfo& info) {
  const int slot = to_int(info[0]);
  ExpertSource source = to_expert_source(info[1].As<Napi::Object>());
  return call_async(
      info.Env(), runtime()->device(), Thread::storage, {},
      [slots = runtime(), call = ExpertSlots::Call(runtime(), slot, ExpertSlots::Call::Kind::load), slot,
       source = std::move(source)] { return slots->load(slot, source); },
      [](Napi::Env env, const LoadOutcome& outcome) -> Napi::Value {
        Napi::Object object = Napi::Object::New(env);
        object.Set("loaded", outcome.loaded);
        object.Set("readBytes", static_cast<double>(outcome.read_bytes));
        object.Set("loadMs", outcome.load_ms);
        return object;
      });
}

Napi::Value ExpertSlotsHandle::cancel(const Napi::CallbackInfo& info) {
  runtime()->cancel(to_int(info[0]));
  return info.Env().Undefined();
}

Napi::Value ExpertSlotsHandle::execute(const Napi::CallbackInfo& info) {
  const int slot = to_int(info[0]);
  return call_async(
      info.Env(), runtime()->device(), Thread::executor, {info[2].As<Napi::Object>(), info[3].As<Napi::Object>()},
      [slots = runtime(), call = ExpertSlots::Call(runtime(), slot, ExpertSlots::Call::Kind::execute), slot,
       rows = to_int(info[1]), hidden = bytes_of(info[2]), output = bytes_of(info[3])] {
        return slots->execute(slot, rows, hidden, output);
      },
      [](Napi::Env env, double execute_ms) -> Napi::Value {
        Napi::Object object = Napi::Object::New(env);
        object.Set("executeMs", execute_ms);
        return object;
      });
}

}  // namespace odmoe
