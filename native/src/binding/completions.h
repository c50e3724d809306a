// Passes results from the addon's threads to the JavaScript thread.
#pragma once
#include <napi.h>

#include <memory>
#include <mutex>

namespace odmoe {

// Work to be done on the JavaScript thread.
class Completion {
 public:
  virtual ~Completion() = default;
  virtual void settle(Napi::Env env) = 0;
};

// Completions arrive in the order of delivery. They keep the process alive only while calls are pending.
class Completions {
 public:
  explicit Completions(Napi::Env env);
  // To be called on the JavaScript thread.
  void call_began(Napi::Env env);
  void call_ended(Napi::Env env);
  int pending_calls() const { return pending_calls_; }
  // May be called from any thread. Once JavaScript has shut down, completions are given up: their data must not be touched any
  // more.
  void deliver(std::unique_ptr<Completion> completion);

 private:
  static void settle(Napi::Env env, Napi::Function unused, Completions* completions, Completion* completion);
  using Channel = Napi::TypedThreadSafeFunction<Completions, Completion, &Completions::settle>;

  Channel channel_;
  std::mutex mutex_;  // guards open_; the channel does not close during a delivery
  bool open_ = true;
  int pending_calls_ = 0;
};

}  // namespace odmoe
