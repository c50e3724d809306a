// The way back from the addon's threads to the JavaScript thread.
#pragma once
#include <napi.h>

#include <memory>
#include <mutex>

namespace odmoe {

// Something to be done on the JavaScript thread.
class Completion {
 public:
  virtual ~Completion() = default;
  virtual void settle(Napi::Env env) = 0;
};

// Completions arrive in the order delivered. The process stays alive while calls are pending, and only then.
class Completions {
 public:
  explicit Completions(Napi::Env env);
  // On the JavaScript thread.
  void call_began(Napi::Env env);
  void call_ended(Napi::Env env);
  int pending_calls() const { return pending_calls_; }
  // From any thread. Once JavaScript has shut down, completions are given up: nothing of theirs may be touched any more.
  void deliver(std::unique_ptr<Completion> completion);

 private:
  static void settle(Napi::Env env, Napi::Function unused, Completions* completions, Completion* completion);
  using Channel = Napi::TypedThreadSafeFunction<Completions, Completion, &Completions::settle>;

  Channel channel_;
  std::mutex mutex_;  // guards open_, and the channel's closing against deliveries
  bool open_ = true;
  int pending_calls_ = 0;
};

}  // namespace odmoe
