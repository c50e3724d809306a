#include "train_maps_call.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <utility>
#include <vector>

#include "arguments.h"
#include "async_call.h"
#include "odmoe/expert_maps.h"

namespace odmoe {
namespace {

constexpr int kMostEpochs = 100'000;
constexpr int kMostThreads = 1024;

// onEpoch. Used on the JavaScript thread; it exists as long as its call.
using EpochFunction = Napi::FunctionReference;

class EpochEnded : public Completion {
 public:
  EpochEnded(EpochFunction& listener, std::shared_ptr<std::atomic<bool>> cancelled, int epoch, double error)
      : listener_(listener), cancelled_(std::move(cancelled)), epoch_(epoch), error_(error) {}

  void settle(Napi::Env env) override {
    // native/index.ts gives no function that throws.
    try {
      listener_.Call({Napi::Number::New(env, epoch_), Napi::Number::New(env, error_)});
    } catch (...) {
      *cancelled_ = true;
    }
  }

 private:
  EpochFunction& listener_;  // the call owns it, and its completion comes after this one
  std::shared_ptr<std::atomic<bool>> cancelled_;
  int epoch_;
  double error_;
};

// The inputs of the training. JavaScript keeps the states.
struct Examples {
  MapTraining training;
  std::vector<std::vector<int32_t>> choices;
  Napi::Object states;
};

Examples to_examples(const Napi::Value& value) {
  const Napi::Object object = to_object(value, "request");
  const auto size = [&](const char* name, int highest) {
    return to_int(object.Get(name), std::string("request.") + name, 1, highest);
  };
  Examples examples;
  MapTraining& training = examples.training;
  training.hidden_size = size("hiddenSize", kLargestMapInputs);
  training.experts = size("experts", kLargestMapCount);
  training.experts_per_token = size("expertsPerToken", kLargestMapCount);
  training.units = size("units", kLargestMapCount);
  training.epochs = size("epochs", kMostEpochs);
  training.seed = static_cast<uint64_t>(to_integer(object.Get("seed"), "request.seed", 0, kLargestInteger));
  training.threads = to_int(object.Get("threads"), "request.threads", 0, kMostThreads);
  const Napi::Value choices = object.Get("choices");
  if (!choices.IsArray() || choices.As<Napi::Array>().Length() > kMostMapDistances) {
    refuse("request.choices", choices, "an array for at most 64 distances");
  }
  const auto array = choices.As<Napi::Array>();
  for (uint32_t i = 0; i < array.Length(); i++) examples.choices.push_back(integers_of(array.Get(i), "request.choices"));
  // Last, because JavaScript that an earlier field runs could detach the array.
  const Napi::Value states = object.Get("states");
  training.states = floats_of(states, "request.states");
  examples.states = states.As<Napi::Object>();
  return examples;
}

template <typename Array, typename Value>
Array from_values(Napi::Env env, const std::vector<Value>& values) {
  Array array = Array::New(env, values.size());
  std::copy(values.begin(), values.end(), array.Data());
  return array;
}

Napi::Value from_layer_maps(Napi::Env env, const LayerMaps& maps) {
  Napi::Object object = Napi::Object::New(env);
  object.Set("units", from_values<Napi::Int8Array>(env, maps.units));
  object.Set("unitScales", from_floats(env, maps.unit_scales));
  object.Set("heads", from_values<Napi::Int8Array>(env, maps.heads));
  object.Set("headScales", from_floats(env, maps.head_scales));
  object.Set("biases", from_floats(env, maps.biases));
  return object;
}

// The training has a thread of its own, as it takes minutes.
Napi::Value begin_training(Napi::Env env, Examples examples, std::unique_ptr<EpochFunction> listener,
                           const std::shared_ptr<std::atomic<bool>>& cancelled) {
  const auto thread = std::make_shared<JobQueue>();
  EpochFunction* const listening = listener.get();
  return call_async(
      env, *thread, thread, {examples.states},
      [training = std::move(examples.training), choices = std::move(examples.choices), cancelled, listening,
       completions = AddonData::of(env).completions]() mutable {
        for (const std::vector<int32_t>& chosen : choices) training.choices.emplace_back(chosen);
        return train_expert_maps(
            training,
            [&](int epoch, double error) {
              if (listening == nullptr) return;
              completions->deliver(std::make_unique<EpochEnded>(*listening, cancelled, epoch, error));
            },
            *cancelled);
      },
      [listener = std::move(listener)](Napi::Env current, const LayerMaps& maps) { return from_layer_maps(current, maps); });
}

}  // namespace

Napi::Value train_expert_maps_of(const Napi::CallbackInfo& info) {
  if (!info[1].IsFunction() && !info[1].IsNull()) refuse("onEpoch", info[1], "a function or null");
  Examples examples = to_examples(info[0]);
  std::unique_ptr<EpochFunction> listener;
  if (info[1].IsFunction()) {
    listener = std::make_unique<EpochFunction>(Napi::Persistent(info[1].As<Napi::Function>()));
  }
  const auto cancelled = std::make_shared<std::atomic<bool>>(false);
  Napi::Object training = Napi::Object::New(info.Env());
  training.Set("maps", begin_training(info.Env(), std::move(examples), std::move(listener), cancelled));
  training.Set("cancel", Napi::Function::New(info.Env(), [cancelled](const Napi::CallbackInfo&) { *cancelled = true; }));
  return training;
}

}  // namespace odmoe
