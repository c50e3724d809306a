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
                     {promise_named<&PassHandle::begin>("begin"), promise_named<&PassHandle::attend>("attend"),
                      method_named<&PassHandle::attend_here>("attendHere"), method_named<&PassHandle::combine_here>("combineHere"),
                      promise_named<&PassHandle::choose_ahead>("chooseAhead"), promise_named<&PassHandle::combine>("combine"),
                      promise_named<&PassHandle::residual>("residual"), method_named<&PassHandle::residual_here>("residualHere"),
                      promise_named<&PassHandle::forward>("forward"), promise_named<&PassHandle::logits>("logits"),
                      promise_named<&PassHandle::states>("states"), method_named<&PassHandle::cancel>("cancel"), dispose_method()});
}

Napi::Value PassHandle::begin(const Napi::CallbackInfo& info) {
  PassRows rows;
  rows.row_sequence = integers_of(info[1], "rowSequence");
  rows.positions = integers_of(info[2], "positions");
  rows.token_ids = integers_of(info[3], "tokenIds");
  if (!info[4].IsUndefined()) {
    const std::span<const float> states = floats_of(info[4], "states");
    rows.states.assign(states.begin(), states.end());
  }
  if (!info[0].IsArray()) refuse("sequences", info[0], "an array");
  const auto given = info[0].As<Napi::Array>();
  // A copy, because the caller may change the array later.
  Napi::Array sequences = Napi::Array::New(info.Env());
  for (uint32_t i = 0; i < given.Length(); i++) {
    const Napi::Value sequence = given.Get(i);
    rows.sequences.push_back(SequenceHandle::of(sequence));
    sequences.Set(i, sequence);
  }
  Pass::Call call(runtime(), rows.sequences);
  sequences_ = Napi::Persistent(sequences.As<Napi::Object>());
  return call_async(
      info.Env(), runtime()->model()->device(), Thread::executor, {},
      [pass = runtime(), call = std::move(call), rows = std::move(rows)]() mutable {
        pass->begin(std::move(rows));
        return Nothing{};
      },
      to_undefined);
}

Napi::Value PassHandle::attend(const Napi::CallbackInfo& info) {
  const int layer = to_int(info[0], "layer");
  const std::span<uint8_t> hidden = bytes_of(info[1], "hidden");
  const std::shared_ptr<Device>& device = runtime()->model()->device();
  Napi::Value chosen = call_async(
      info.Env(), device, Thread::executor, {info[1].As<Napi::Object>()},
      [pass = runtime(), call = Pass::Call(runtime()), layer, hidden] { return pass->attend(layer, hidden); }, from_router_choice);
  if (runtime()->has_always(layer)) run_always(info.Env(), layer);
  return chosen;
}

Napi::Value PassHandle::attend_here(const Napi::CallbackInfo& info) {
  const int layer = to_int(info[0], "layer");
  const std::span<uint8_t> hidden = bytes_of(info[1], "hidden");
  const std::shared_ptr<Pass> pass = runtime();
  const std::shared_ptr<Device>& device = pass->model()->device();
  if (!device->works_here()) return info.Env().Null();
  std::optional<RouterChoice> choice;
  device->executor().run_here([&] {
    const Pass::Call call(pass);
    choice = pass->attend(layer, hidden);
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
  const int layer = to_int(info[0], "layer");
  return call_async(
      info.Env(), runtime()->model()->device(), Thread::executor, {},
      [pass = runtime(), call = Pass::Call(runtime()), layer] { return pass->choose_ahead(layer); }, from_router_choice);
}

Napi::Value PassHandle::combine(const Napi::CallbackInfo& info) {
  const int layer = to_int(info[0], "layer");
  const std::span<const uint8_t> outputs = bytes_of(info[1], "outputs");
  const std::span<const float> weights = floats_of(info[2], "weights");
  return call_async(
      info.Env(), runtime()->model()->device(), Thread::executor, {info[1].As<Napi::Object>(), info[2].As<Napi::Object>()},
      [pass = runtime(), call = Pass::Call(runtime()), layer, outputs, weights] {
        pass->combine(layer, outputs, weights);
        return Nothing{};
      },
      to_undefined);
}

Napi::Value PassHandle::combine_here(const Napi::CallbackInfo& info) {
  const int layer = to_int(info[0], "layer");
  const std::span<const uint8_t> outputs = bytes_of(info[1], "outputs");
  const std::span<const float> weights = floats_of(info[2], "weights");
  const std::shared_ptr<Pass> pass = runtime();
  const std::shared_ptr<Device>& device = pass->model()->device();
  const bool done = device->works_here() && device->executor().run_here([&] {
    const Pass::Call call(pass);
    pass->combine(layer, outputs, weights);
  });
  return Napi::Boolean::New(info.Env(), done);
}

Napi::Value PassHandle::residual(const Napi::CallbackInfo& info) {
  const std::span<float> states = written_floats_of(info[0], "states");
  return call_async(
      info.Env(), runtime()->model()->device(), Thread::executor, {info[0].As<Napi::Object>()},
      [pass = runtime(), call = Pass::Call(runtime()), states] {
        pass->residual(states);
        return Nothing{};
      },
      to_undefined);
}

Napi::Value PassHandle::residual_here(const Napi::CallbackInfo& info) {
  const std::span<float> states = written_floats_of(info[0], "states");
  const std::shared_ptr<Pass> pass = runtime();
  const std::shared_ptr<Device>& device = pass->model()->device();
  const bool done = device->works_here() && device->executor().run_here([&] {
    const Pass::Call call(pass);
    pass->residual(states);
  });
  return Napi::Boolean::New(info.Env(), done);
}

Napi::Value PassHandle::forward(const Napi::CallbackInfo& info) {
  if (!info[0].IsFunction() && !info[0].IsNull()) refuse("onRouter", info[0], "a function or null");
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
  std::vector<int32_t> rows = integers_of(info[0], "rows");
  return call_async(
      info.Env(), runtime()->model()->device(), Thread::executor, {},
      [pass = runtime(), call = Pass::Call(runtime()), rows = std::move(rows)] { return pass->logits(rows); }, from_floats);
}

Napi::Value PassHandle::states(const Napi::CallbackInfo& info) {
  std::vector<int32_t> rows = integers_of(info[0], "rows");
  const bool normed = to_flag(info[1], "normed");
  return call_async(
      info.Env(), runtime()->model()->device(), Thread::executor, {},
      [pass = runtime(), call = Pass::Call(runtime()), rows = std::move(rows), normed] { return pass->states(rows, normed); },
      from_floats);
}

Napi::Value PassHandle::cancel(const Napi::CallbackInfo& info) {
  runtime()->cancel();
  return info.Env().Undefined();
}

}  // namespace odmoe
