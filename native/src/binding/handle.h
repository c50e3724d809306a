// Base class of the addon's handles: a JavaScript object that shares ownership of a runtime object until dispose() or garbage
// collection. Running calls also share it.
#pragma once
#include <napi.h>

#include <memory>
#include <utility>

#include "errors.h"
#include "odmoe/error.h"

namespace odmoe {

template <typename Self, typename Runtime>
class Handle : public Napi::ObjectWrap<Self> {
 public:
  // Only create() calls this; it passes the runtime object in an External.
  explicit Handle(const Napi::CallbackInfo& info) : Napi::ObjectWrap<Self>(info) {
    if (info.Length() != 1 || !info[0].IsExternal()) throw Napi::TypeError::New(info.Env(), "not to be constructed");
    const napi_type_tag tag = type_tag();
    if (napi_type_tag_object(info.Env(), info.This(), &tag) != napi_ok) throw Error(ErrorCode::internal, "a handle without a tag");
    runtime_ = std::move(*info[0].As<Napi::External<std::shared_ptr<Runtime>>>().Data());
  }

  static Napi::Value create(Napi::Env env, const Napi::FunctionReference& constructor, std::shared_ptr<Runtime> runtime) {
    return constructor.New({Napi::External<std::shared_ptr<Runtime>>::New(env, &runtime)});
  }

  // Throws INTERNAL after dispose(), and for anything but a handle of this class.
  static const std::shared_ptr<Runtime>& of(const Napi::Value& value) {
    const napi_type_tag tag = type_tag();
    bool is_own = false;
    if (value.IsObject()) napi_check_object_type_tag(value.Env(), value, &tag, &is_own);
    if (!is_own) throw Error(ErrorCode::internal, "native call: an object that is no handle of the wanted kind");
    return Napi::ObjectWrap<Self>::Unwrap(value.As<Napi::Object>())->runtime();
  }

 protected:
  using Method = Napi::Value (Self::*)(const Napi::CallbackInfo&);

  const std::shared_ptr<Runtime>& runtime() const {
    if (runtime_ == nullptr) throw Error(ErrorCode::internal, "the handle has been disposed of");
    return runtime_;
  }

  template <Method method>
  static Napi::ClassPropertyDescriptor<Self> method_named(const char* name) {
    return Self::InstanceMethod(name, static_cast<Method>(&Handle::template translated<method>));
  }

  // A method that returns a promise: its errors are rejections.
  template <Method method>
  static Napi::ClassPropertyDescriptor<Self> promise_named(const char* name) {
    return Self::InstanceMethod(name, static_cast<Method>(&Handle::template rejected<method>));
  }

  template <Method method>
  static Napi::ClassPropertyDescriptor<Self> property_named(const char* name) {
    return Self::InstanceAccessor(name, static_cast<Method>(&Handle::template translated<method>), nullptr);
  }

  static Napi::ClassPropertyDescriptor<Self> dispose_method() {
    return Self::InstanceMethod("dispose", static_cast<Method>(&Handle::dispose));
  }

 private:
  static napi_type_tag type_tag() { return {0x6f646d6f65, Self::kTag}; }

  Napi::Value dispose(const Napi::CallbackInfo& info) {
    runtime_.reset();
    return info.Env().Undefined();
  }

  template <Method method>
  Napi::Value translated(const Napi::CallbackInfo& info) {
    return translating_errors(info.Env(), [&] { return (static_cast<Self*>(this)->*method)(info); });
  }

  template <Method method>
  Napi::Value rejected(const Napi::CallbackInfo& info) {
    return rejecting_errors(info.Env(), [&] { return (static_cast<Self*>(this)->*method)(info); });
  }

  std::shared_ptr<Runtime> runtime_;
};

}  // namespace odmoe
