#include "completions.h"

namespace odmoe {
namespace {

constexpr size_t kUnlimitedQueue = 0;  // bounded by the devices' job queues

}  // namespace

Completions::Completions(Napi::Env env) : channel_(Channel::New(env, "odmoe", kUnlimitedQueue, /*initialThreadCount=*/1, this)) {
  channel_.Unref(env);
  // This hook is registered after the channel's own hook, so that it runs first.
  env.AddCleanupHook(
      [](Completions* completions) {
        const std::lock_guard lock(completions->mutex_);
        completions->open_ = false;
      },
      this);
}

void Completions::call_began(Napi::Env env) {
  if (pending_calls_++ == 0) channel_.Ref(env);
}

void Completions::call_ended(Napi::Env env) {
  if (--pending_calls_ == 0) channel_.Unref(env);
}

void Completions::deliver(std::unique_ptr<Completion> completion) {
  const std::lock_guard lock(mutex_);
  Completion* const given = completion.release();
  if (open_) channel_.NonBlockingCall(given);
}

void Completions::settle(Napi::Env env, Napi::Function, Completions*, Completion* completion) {
  if (static_cast<napi_env>(env) == nullptr) return;  // JavaScript has shut down: the completion is given up
  const std::unique_ptr<Completion> owned(completion);
  completion->settle(env);
}

}  // namespace odmoe
