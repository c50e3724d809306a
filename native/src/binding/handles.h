// The handles of native/addon.d.ts.
#pragma once
#include <napi.h>

#include <vector>

#include "handle.h"
#include "odmoe/device.h"
#include "odmoe/expert_maps.h"
#include "odmoe/expert_slots.h"
#include "odmoe/model.h"
#include "odmoe/pass.h"
#include "odmoe/sequence.h"

namespace odmoe {

class DeviceHandle : public Handle<DeviceHandle, Device> {
 public:
  static constexpr uint64_t kTag = 1;
  using Handle::Handle;
  static Napi::Function define(Napi::Env env);

 private:
  Napi::Value info(const Napi::CallbackInfo& info);
};

class ModelHandle : public Handle<ModelHandle, Model> {
 public:
  static constexpr uint64_t kTag = 2;
  using Handle::Handle;
  static Napi::Function define(Napi::Env env);

 private:
  Napi::Value load_dense(const Napi::CallbackInfo& info);
  Napi::Value load_resident_expert(const Napi::CallbackInfo& info);
  Napi::Value resident_weights(const Napi::CallbackInfo& info);
  Napi::Value create_sequence(const Napi::CallbackInfo& info);
  Napi::Value sequence_bytes(const Napi::CallbackInfo& info);
  Napi::Value create_pass(const Napi::CallbackInfo& info);
};

class SequenceHandle : public Handle<SequenceHandle, Sequence> {
 public:
  static constexpr uint64_t kTag = 3;
  using Handle::Handle;
  static Napi::Function define(Napi::Env env);

 private:
  Napi::Value read_rows(const Napi::CallbackInfo& info);
  Napi::Value write_rows(const Napi::CallbackInfo& info);
  Napi::Value truncate(const Napi::CallbackInfo& info);
  Napi::Value fork(const Napi::CallbackInfo& info);
  Napi::Value bytes_to_write(const Napi::CallbackInfo& info);
  Napi::Value length(const Napi::CallbackInfo& info);
  Napi::Value oldest_position(const Napi::CallbackInfo& info);
};

class PassHandle : public Handle<PassHandle, Pass> {
 public:
  static constexpr uint64_t kTag = 4;
  using Handle::Handle;
  static Napi::Function define(Napi::Env env);

 private:
  Napi::Value begin(const Napi::CallbackInfo& info);
  Napi::Value attend(const Napi::CallbackInfo& info);
  Napi::Value attend_here(const Napi::CallbackInfo& info);
  Napi::Value choose_ahead(const Napi::CallbackInfo& info);
  Napi::Value states(const Napi::CallbackInfo& info);
  Napi::Value combine(const Napi::CallbackInfo& info);
  Napi::Value combine_here(const Napi::CallbackInfo& info);
  Napi::Value residual(const Napi::CallbackInfo& info);
  Napi::Value residual_here(const Napi::CallbackInfo& info);
  Napi::Value forward(const Napi::CallbackInfo& info);
  Napi::Value logits(const Napi::CallbackInfo& info);
  Napi::Value cancel(const Napi::CallbackInfo& info);

  void run_always(Napi::Env env, int layer);

  // The sequences of the last begin: they must not be collected while the pass may use them.
  Napi::ObjectReference sequences_;
};

class ExpertSlotsHandle : public Handle<ExpertSlotsHandle, ExpertSlots> {
 public:
  static constexpr uint64_t kTag = 5;
  explicit ExpertSlotsHandle(const Napi::CallbackInfo& info)
      : Handle(info), count_(runtime()->count()), slot_bytes_(runtime()->slot_bytes()) {}
  static Napi::Function define(Napi::Env env);

 private:
  Napi::Value count(const Napi::CallbackInfo& info);
  Napi::Value slot_bytes(const Napi::CallbackInfo& info);
  Napi::Value storage_reads(const Napi::CallbackInfo& info);
  Napi::Value register_expert(const Napi::CallbackInfo& info);
  Napi::Value load(const Napi::CallbackInfo& info);
  Napi::Value cancel(const Napi::CallbackInfo& info);
  Napi::Value prioritize(const Napi::CallbackInfo& info);
  Napi::Value reorder(const Napi::CallbackInfo& info);
  Napi::Value execute(const Napi::CallbackInfo& info);
  Napi::Value execute_here(const Napi::CallbackInfo& info);
  Napi::Value let_go(const Napi::CallbackInfo& info);
  Napi::Value take(const Napi::CallbackInfo& info);
  Napi::Value let_go_lower(const Napi::CallbackInfo& info);
  Napi::Value take_lower(const Napi::CallbackInfo& info);

  Napi::Value hold(const Napi::CallbackInfo& info);
  Napi::Value cancel_hold(const Napi::CallbackInfo& info);
  Napi::Value drop_held(const Napi::CallbackInfo& info);
  Napi::Value pack(const Napi::CallbackInfo& info);
  Napi::Value cancel_pack(const Napi::CallbackInfo& info);

  // Throws INTERNAL for a number that was not registered.
  size_t to_registered(const Napi::Value& value) const;

  std::vector<ExpertSource> registered_;  // by number
  // They can be read after dispose().
  int count_;
  uint64_t slot_bytes_;
};

struct TensorRows;

class TensorRowsHandle : public Handle<TensorRowsHandle, TensorRows> {
 public:
  static constexpr uint64_t kTag = 6;
  using Handle::Handle;
  static Napi::Function define(Napi::Env env);

 private:
  Napi::Value read(const Napi::CallbackInfo& info);
};

class ExpertMapsHandle : public Handle<ExpertMapsHandle, ExpertMaps> {
 public:
  static constexpr uint64_t kTag = 7;
  using Handle::Handle;
  static Napi::Function define(Napi::Env env);

 private:
  Napi::Value predict(const Napi::CallbackInfo& info);
  Napi::Value predict_here(const Napi::CallbackInfo& info);
};

Napi::Value create_expert_maps(const Napi::CallbackInfo& info);
Napi::Value open_tensor(const Napi::CallbackInfo& info);

}  // namespace odmoe
