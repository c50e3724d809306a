// All methods that run on an addon thread and settle a promise use these classes.
#pragma once
#include <napi.h>

#include <exception>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "addon_data.h"
#include "completions.h"
#include "errors.h"
#include "odmoe/device.h"

namespace odmoe {

// A promise that an addon thread settles. Convert(env, value) runs on the JavaScript thread. Retained values stay until then.
template <typename Value, typename Convert>
class PromisedCall : public Completion {
 public:
  PromisedCall(Napi::Env env, Convert convert, std::vector<Napi::Object> retained)
      : completions_(AddonData::of(env).completions), deferred_(Napi::Promise::Deferred::New(env)), convert_(std::move(convert)) {
    for (const Napi::Object& object : retained) retained_.push_back(Napi::Persistent(object));
  }

  Napi::Promise promise() const { return deferred_.Promise(); }

  void settle(Napi::Env env) override {
    let_go();
    completions_->call_ended(env);
    try {
      if (error_) std::rethrow_exception(error_);
      deferred_.Resolve(convert_(env, *value_));
    } catch (...) {
      deferred_.Reject(to_javascript_error(env, std::current_exception()).Value());
    }
  }

 protected:
  // Runs on the JavaScript thread, just before the promise settles: releases everything that the call used.
  virtual void let_go() = 0;

  // To be called once, from any thread, with the value or the error set: passes the call, which owns itself, to the JavaScript
  // thread.
  void deliver() noexcept {
    const std::shared_ptr<Completions> completions = completions_;
    completions->deliver(std::unique_ptr<Completion>(this));
  }

  std::optional<Value> value_;
  std::exception_ptr error_;

 private:
  std::shared_ptr<Completions> completions_;
  Napi::Promise::Deferred deferred_;
  Convert convert_;
  std::vector<Napi::ObjectReference> retained_;
};

// Work runs on the addon's thread, without JavaScript, and returns a value. Work's captures are released on the JavaScript thread;
// the owner of its queue also stays until then.
template <typename Work, typename Convert>
class AsyncCall : public Job, public PromisedCall<decltype(std::declval<Work&>()()), Convert> {
 public:
  AsyncCall(Napi::Env env, std::shared_ptr<void> owner, Work work, Convert convert, std::vector<Napi::Object> retained)
      : PromisedCall<decltype(std::declval<Work&>()()), Convert>(env, std::move(convert), std::move(retained)),
        owner_(std::move(owner)),
        work_(std::move(work)) {}

  void run(std::unique_ptr<Job> self) noexcept override {
    try {
      this->value_.emplace((*work_)());
    } catch (...) {
      this->error_ = std::current_exception();
    }
    self.release();
    this->deliver();
  }

 private:
  void let_go() override { work_.reset(); }

  std::shared_ptr<void> owner_;
  std::optional<Work> work_;
};

// `owner` keeps `queue` alive. `retained`: buffers and typed arrays that the work reads or writes.
template <typename Work, typename Convert>
Napi::Value call_async(Napi::Env env, JobQueue& queue, std::shared_ptr<void> owner, std::vector<Napi::Object> retained, Work work,
                       Convert convert) {
  auto call =
      std::make_unique<AsyncCall<Work, Convert>>(env, std::move(owner), std::move(work), std::move(convert), std::move(retained));
  const Napi::Promise promise = call->promise();
  queue.post(std::move(call));
  AddonData::of(env).completions->call_began(env);
  return promise;
}

enum class Thread : uint8_t { executor, storage };

template <typename Work, typename Convert>
Napi::Value call_async(Napi::Env env, const std::shared_ptr<Device>& device, Thread thread, std::vector<Napi::Object> retained,
                       Work work, Convert convert) {
  JobQueue& queue = thread == Thread::executor ? device->executor() : device->storage();
  return call_async(env, queue, device, std::move(retained), std::move(work), std::move(convert));
}

// The result of a call without a result.
struct Nothing {};
inline Napi::Value to_undefined(Napi::Env env, Nothing&) { return env.Undefined(); }

}  // namespace odmoe
