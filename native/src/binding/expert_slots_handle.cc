#include "arguments.h"
#include "async_call.h"
#include "handles.h"

namespace odmoe {
namespace {

Napi::Value from_load_outcome(Napi::Env env, const LoadOutcome& outcome) {
  Napi::Object object = Napi::Object::New(env);
  object.Set("loaded", outcome.loaded);
  object.Set("readBytes", static_cast<double>(outcome.read_bytes));
  object.Set("hostBytes", static_cast<double>(outcome.host_bytes));
  object.Set("loadMs", outcome.load_ms);
  object.Set("exponentReadMs", outcome.exponent_read_ms);
  object.Set("signMantissaReadMs", outcome.sign_mantissa_read_ms);
  object.Set("decompressMs", outcome.decompress_ms);
  object.Set("exponentsKept", outcome.exponents_kept);
  object.Set("signMantissaKept", outcome.sign_mantissa_kept);
  return object;
}

// A running load: it holds the slots and its slot until its promise settles.
class LoadCall : public PromisedCall<LoadOutcome, decltype(&from_load_outcome)>, public LoadListener {
 public:
  LoadCall(Napi::Env env, std::shared_ptr<ExpertSlots> slots, int slot, ExpertSlots::Call::Kind kind)
      : PromisedCall(env, &from_load_outcome, {}), call_(ExpertSlots::Call(std::move(slots), slot, kind)) {}

  const ExpertSlots::Call& call() const { return *call_; }

  void settled(const LoadOutcome& outcome, std::exception_ptr error) noexcept override {
    value_ = outcome;
    error_ = std::move(error);
    deliver();
  }

 private:
  void let_go() override { call_.reset(); }

  std::optional<ExpertSlots::Call> call_;
};

}  // namespace

Napi::Function ExpertSlotsHandle::define(Napi::Env env) {
  return DefineClass(env, "ExpertSlots",
                     {property_named<&ExpertSlotsHandle::count>("count"),
                      property_named<&ExpertSlotsHandle::slot_bytes>("slotBytes"),
                      property_named<&ExpertSlotsHandle::storage_reads>("storageReads"),
                      method_named<&ExpertSlotsHandle::register_expert>("register"),
                      promise_named<&ExpertSlotsHandle::load>("load"),
                      method_named<&ExpertSlotsHandle::cancel>("cancel"),
                      method_named<&ExpertSlotsHandle::prioritize>("prioritize"),
                      method_named<&ExpertSlotsHandle::reorder>("reorder"),
                      promise_named<&ExpertSlotsHandle::execute>("execute"),
                      method_named<&ExpertSlotsHandle::execute_here>("executeHere"),
                      method_named<&ExpertSlotsHandle::let_go>("letGo"),
                      method_named<&ExpertSlotsHandle::take>("take"),
                      method_named<&ExpertSlotsHandle::let_go_lower>("letGoLower"),
                      method_named<&ExpertSlotsHandle::take_lower>("takeLower"),
                      promise_named<&ExpertSlotsHandle::hold>("hold"),
                      method_named<&ExpertSlotsHandle::cancel_hold>("cancelHold"),
                      method_named<&ExpertSlotsHandle::drop_held>("dropHeld"),
                      promise_named<&ExpertSlotsHandle::pack>("pack"),
                      method_named<&ExpertSlotsHandle::cancel_pack>("cancelPack"),
                      dispose_method()});
}

Napi::Value ExpertSlotsHandle::let_go(const Napi::CallbackInfo& info) {
  const int slot = to_int(info[0], "slot");
  runtime()->let_go(ExpertSlots::Call(runtime(), slot, ExpertSlots::Call::Kind::load));
  return info.Env().Undefined();
}

Napi::Value ExpertSlotsHandle::take(const Napi::CallbackInfo& info) {
  const int slot = to_int(info[0], "slot");
  // A load call makes the slot forget its contents, so it is made only where the slot has no memory.
  if (!runtime()->has_memory(slot)) runtime()->take(ExpertSlots::Call(runtime(), slot, ExpertSlots::Call::Kind::load));
  return info.Env().Undefined();
}

Napi::Value ExpertSlotsHandle::let_go_lower(const Napi::CallbackInfo& info) {
  const int slot = to_int(info[0], "slot");
  runtime()->let_go_lower(ExpertSlots::Call(runtime(), slot, ExpertSlots::Call::Kind::move_lower));
  return info.Env().Undefined();
}

Napi::Value ExpertSlotsHandle::take_lower(const Napi::CallbackInfo& info) {
  const int slot = to_int(info[0], "slot");
  runtime()->take_lower(ExpertSlots::Call(runtime(), slot, ExpertSlots::Call::Kind::move_lower));
  return info.Env().Undefined();
}

Napi::Value ExpertSlotsHandle::count(const Napi::CallbackInfo& info) { return Napi::Number::New(info.Env(), count_); }

Napi::Value ExpertSlotsHandle::slot_bytes(const Napi::CallbackInfo& info) {
  return Napi::Number::New(info.Env(), static_cast<double>(slot_bytes_));
}

Napi::Value ExpertSlotsHandle::storage_reads(const Napi::CallbackInfo& info) {
  const StorageReads reads = runtime()->storage_reads();
  Napi::Object object = Napi::Object::New(info.Env());
  object.Set("way", reads.way == StorageWay::io_uring ? "io_uring" : "threads");
  object.Set("depth", reads.depth);
  object.Set("direct", reads.direct && !reads.direct_refused);
  object.Set("directRefused", reads.direct_refused);
  object.Set("ringRefusal", reads.ring_refusal);
  return object;
}

Napi::Value ExpertSlotsHandle::register_expert(const Napi::CallbackInfo& info) {
  ExpertSource source = to_expert_source(info[0]);
  static_cast<void>(runtime());  // throws if the handle is disposed of
  registered_.push_back(std::move(source));
  return Napi::Number::New(info.Env(), static_cast<double>(registered_.size() - 1));
}

size_t ExpertSlotsHandle::to_registered(const Napi::Value& value) const {
  const auto expert = static_cast<size_t>(to_int(value, "expert"));
  if (expert < registered_.size()) return expert;
  throw Error(ErrorCode::internal, "expert " + std::to_string(expert) + " has not been registered with the slots");
}

Napi::Value ExpertSlotsHandle::load(const Napi::CallbackInfo& info) {
  const int slot = to_int(info[0], "slot");
  LoadRequest request = to_load_request(info[2]);
  const size_t expert = to_registered(info[1]);
  auto call = std::make_unique<LoadCall>(info.Env(), runtime(), slot, ExpertSlots::load_kind(request));
  const ExpertSource& source = registered_[expert];
  request.expert = static_cast<int64_t>(expert) < runtime()->experts() ? static_cast<int64_t>(expert) : -1;
  const Napi::Promise promise = call->promise();
  AddonData::of(info.Env()).completions->call_began(info.Env());
  LoadCall& listener = *call.release();  // owns itself until the listener is called
  try {
    runtime()->load(listener.call(), source, request, listener);
  } catch (...) {
    listener.settled({}, std::current_exception());
  }
  return promise;
}

Napi::Value ExpertSlotsHandle::cancel(const Napi::CallbackInfo& info) {
  runtime()->cancel(to_int(info[0], "slot"));
  return info.Env().Undefined();
}

Napi::Value ExpertSlotsHandle::prioritize(const Napi::CallbackInfo& info) {
  runtime()->prioritize(to_int(info[0], "slot"));
  return info.Env().Undefined();
}

Napi::Value ExpertSlotsHandle::reorder(const Napi::CallbackInfo& info) {
  const int slot = to_int(info[0], "slot");
  const std::optional<ExpertOrder> order = to_expert_order(info[1]);
  runtime()->reorder(slot, order);
  return info.Env().Undefined();
}

// Runs on the storage thread, which a worker uses for nothing else: the call lasts as long as the hold.
Napi::Value ExpertSlotsHandle::hold(const Napi::CallbackInfo& info) {
  const size_t expert = to_registered(info[0]);
  return call_async(
      info.Env(), runtime()->device(), Thread::storage, {},
      [slots = runtime(), ticket = runtime()->new_hold(), number = static_cast<int64_t>(expert), source = registered_[expert]] {
        return slots->hold(ticket, number, source);
      },
      [](Napi::Env env, const HoldOutcome& outcome) -> Napi::Value {
        Napi::Object object = Napi::Object::New(env);
        object.Set("held", outcome.held);
        object.Set("bytes", static_cast<double>(outcome.bytes));
        object.Set("readBytes", static_cast<double>(outcome.read_bytes));
        return object;
      });
}

Napi::Value ExpertSlotsHandle::cancel_hold(const Napi::CallbackInfo& info) {
  runtime()->cancel_hold();
  return info.Env().Undefined();
}

Napi::Value ExpertSlotsHandle::drop_held(const Napi::CallbackInfo& info) {
  runtime()->drop_held(to_int(info[0], "expert"));
  return info.Env().Undefined();
}

// Runs on the storage thread, behind a running hold: neither is urgent.
Napi::Value ExpertSlotsHandle::pack(const Napi::CallbackInfo& info) {
  const int slot = to_int(info[0], "slot");
  return call_async(
      info.Env(), runtime()->device(), Thread::storage, {},
      [slots = runtime(), ticket = runtime()->new_pack(), slot] { return slots->pack(ticket, slot); },
      [](Napi::Env env, PackResult result) -> Napi::Value {
        static constexpr const char* kNames[] = {"packed", "givenUp", "unfit"};
        return Napi::String::New(env, kNames[static_cast<size_t>(result)]);
      });
}

Napi::Value ExpertSlotsHandle::cancel_pack(const Napi::CallbackInfo& info) {
  runtime()->cancel_pack();
  return info.Env().Undefined();
}

Napi::Value ExpertSlotsHandle::execute(const Napi::CallbackInfo& info) {
  const int slot = to_int(info[0], "slot");
  const int rows = to_int(info[1], "rows", 1);
  std::vector<SliceReading> readings = to_slice_readings(info[4]);
  const std::span<const uint8_t> hidden = bytes_of(info[2], "hidden");
  const std::span<uint8_t> output = bytes_of(info[3], "output");
  const ExpertSlots::Call::Kind kind = ExpertSlots::execute_kind(readings);
  return call_async(
      info.Env(), runtime()->device(), Thread::executor, {info[2].As<Napi::Object>(), info[3].As<Napi::Object>()},
      [slots = runtime(), call = ExpertSlots::Call(runtime(), slot, kind), rows, hidden, output, readings = std::move(readings)] {
        return slots->execute(call, rows, hidden, output, readings);
      },
      [](Napi::Env env, double execute_ms) -> Napi::Value {
        Napi::Object object = Napi::Object::New(env);
        object.Set("executeMs", execute_ms);
        return object;
      });
}

Napi::Value ExpertSlotsHandle::execute_here(const Napi::CallbackInfo& info) {
  const int slot = to_int(info[0], "slot");
  const int rows = to_int(info[1], "rows", 1);
  const std::vector<SliceReading> readings = to_slice_readings(info[4]);
  const std::span<const uint8_t> hidden = bytes_of(info[2], "hidden");
  const std::span<uint8_t> output = bytes_of(info[3], "output");
  const std::shared_ptr<ExpertSlots> slots = runtime();
  std::optional<double> execute_ms;
  if (slots->device()->works_here()) {
    slots->device()->executor().run_here([&] {
      const ExpertSlots::Call call(slots, slot, ExpertSlots::execute_kind(readings));
      execute_ms = slots->execute(call, rows, hidden, output, readings);
    });
  }
  return execute_ms ? Napi::Number::New(info.Env(), *execute_ms) : info.Env().Null();
}

}  // namespace odmoe
