#include "arguments.h"
#include "async_call.h"
#include "handles.h"

namespace odmoe {
namespace {

// onRouter and the first error that it threw. Used on the JavaScript thread; it exists as long as its call.
struct RouterListener {
  Napi::FunctionReference function;
  std::exception_ptr thrown;
};

class RouterDecided : public Completion {
 public:
  RouterDecided(RouterListener& listener, int layer, RouterChoice choice)
      : listener_(listener), layer_(layer), choice_(std::move(choice)) {}

  void settle(Napi::Env env) override {
    if (listener_.thrown) return;
    try {
      listener_.function.Call({Napi::Number::New(env, layer_), from_router_choice(env, choice_)});
    } catch (...) {
      listener_.thrown = std::current_exception();
    }
  }

 private:
  RouterListener& listener_;  // the call owns it, and its completion comes after this one
  int layer_;
  RouterChoice choice_;
};

}  // namespace

Napi::Function PassHandle::define(Napi::Env env) {
  return DefineClass(env, "Pass",
                     {method_named<&PassHandle::begin>("begin"), method_named<&PassHandle::attend>("attend"),
                      method_named<&PassHandle::attend_here>("attendHere"), method_named<&PassHandle::combine_here>("combineHere"),
                      method_named<&PassHandle::choose_ahead>("chooseAhead"), method_named<&PassHandle::combine>("combine"),
                      method_named<&PassHandle::forward>("forward"), method_named<&PassHandle::logits>("logits"),
                      method_named<&PassHandle::cancel>("cancel"), dispose_method()});
}

Napi::Value PassHandle::begin(const Napi::CallbackInfo& info) {
  PassRows rows;
  const auto sequences = info[0].As<Napi::Array>();
  for (uint32_t i = 0; i < sequences.Length(); i++) rows.sequences.push_back(SequenceHandle::of(sequences.Get(i)));
  rows.row_sequence = integers_of(info[1]);
  rows.positions = integers_of(info[2]);
  rows.token_ids = integers_of(info[3]);
  Pass::Call call(runtime(), rows.sequences);
  sequences_ = Napi::Persistent(info[0].As<Napi::Object>());
  return call_async(
      info.Env(), runtime()->model()->device(), Thread::executor, {},
      [pass = runtime(), call = std::move(call), rows = std::move(rows)]() mutable {
        pass->begin(std::move(rows));
        return Nothing{};
      },
      to_undefined);
}

Napi::Value PassHandle::attend(const Napi::CallbackInfo& info) {
  const std::shared_ptr<Device>& device = runtime()->model()->device();
  const int layer = to_int(info[0]);
  Napi::Value chosen = call_async(
      info.Env(), device, Thread::executor, {info[1].As<Napi::Object>()},
      [pass = runtime(), call = Pass::Call(runtime()), layer, hidden = bytes_of(info[1])] { return pass->attend(layer, hidden); },
      from_router_choice);
  if (runtime()->has_always(layer)) run_always(info.Env(), layer);
  return chosen;
}

Napi::Value PassHandle::attend_here(const Napi::CallbackInfo& info) {
  const std::shared_ptr<Pass> pass = runtime();
  const std::shared_ptr<Device>& device = pass->model()->device();
  if (!device->works_here()) return info.Env().Null();
  const int layer = to_int(info[0]);
  std::optional<RouterChoice> choice;
  device->executor().run_here([&] {
    const Pass::Call call(pass);
    choice = pass->attend(layer, bytes_of(info[1]));
  });
  if (!choice) return info.Env().Null();
  if (pass->has_always(layer)) run_always(info.Env(), layer);
  return from_router_choice(info.Env(), *choice);
}

// Runs after attend and does not delay its result: meanwhile the experts run elsewhere.
void PassHandle::run_always(Napi::Env env, int layer) {
  try {
    call_async(
        env, runtime()->model()->device(), Thread::executor, {},
        [pass = runtime(), layer] {
          pass->run_always(layer);
          return Nothing{};
        },
        to_undefined);
  } catch (const Error&) {
    // The queue is full; then combine runs it.
  }
}

Napi::Value PassHandle::choose_ahead(const Napi::CallbackInfo& info) {
  return call_async(
      info.Env(), runtime()->model()->device(), Thread::executor, {},
      [pass = runtime(), call = Pass::Call(runtime()), layer = to_int(info[0])] { return pass->choose_ahead(layer); },
      from_router_choice);
}

Napi::Value PassHandle::combine(const Napi::CallbackInfo& info) {
  return call_async(
      info.Env(), runtime()->model()->device(), Thread::executor, {info[1].As<Napi::Object>(), info[2].As<Napi::Object>()},
      [pass = runtime(), call = Pass::Call(runtime()), layer = to_int(info[0]), outputs = bytes_of(info[1]),
       weights = floats_of(info[2])] {
        pass->combine(layer, outputs, weights);
        return Nothing{};
      },
      to_undefined);
}

Napi::Value PassHandle::combine_here(const Napi::CallbackInfo& info) {
  const std::shared_ptr<Pass> pass = runtime();
  const std::shared_ptr<Device>& device = pass->model()->device();
  const bool done = device->works_here() && device->executor().run_here([&] {
    const Pass::Call call(pass);
    pass->combine(to_int(info[0]), bytes_of(info[1]), floats_of(info[2]));
  });
  return Napi::Boolean::New(info.Env(), done);
}

Napi::Value PassHandle::forward(const Napi::CallbackInfo& info) {
  std::unique_ptr<RouterListener> listener;
  if (info[0].IsFunction()) {
    listener = std::make_unique<RouterListener>();
    listener->function = Napi::Persistent(info[0].As<Napi::Function>());
  }
  RouterListener* const listening = listener.get();
  return call_async(
      info.Env(), runtime()->model()->device(), Thread::executor, {},
      [pass = runtime(), call = Pass::Call(runtime(), Pass::Call::Kind::forward),
       completions = AddonData::of(info.Env()).completions, listening] {
        pass->forward([&](int layer, const RouterChoice& choice) {
          if (listening != nullptr) completions->deliver(std::make_unique<RouterDecided>(*listening, layer, choice));
        });
        return Nothing{};
      },
      [listener = std::move(listener)](Napi::Env env, Nothing& nothing) {
        if (listener != nullptr && listener->thrown) std::rethrow_exception(listener->thrown);
        return to_undefined(env, nothing);
      });
}

Napi::Value PassHandle::logits(const Napi::CallbackInfo& info) {
  return call_async(
      info.Env(), runtime()->model()->device(), Thread::executor, {},
      [pass = runtime(), call = Pass::Call(runtime()), rows = integers_of(info[0])] { return pass->logits(rows); }, from_floats);
}

Napi::Value PassHandle::cancel(const Napi::CallbackInfo& info) {
  runtime()->cancel();
  return info.Env().Undefined();
}

}  // namespace odmoe
