// C++ errors as JavaScript errors that carry a `code` of shared/base/errors: OdmoeErrors, once native/addon-loader.ts has set the function
// that makes them.
#pragma once
#include <napi.h>

#include <exception>

namespace odmoe {

Napi::Error to_javascript_error(Napi::Env env, const std::exception_ptr& thrown);

// Calls a function without arguments; an error that it throws becomes a JavaScript error.
template <typename Function>
auto translating_errors(Napi::Env env, Function function) {
  try {
    return function();
  } catch (...) {
    throw to_javascript_error(env, std::current_exception());
  }
}

// Calls a function that returns a promise; an error that it throws becomes a rejection.
template <typename Function>
Napi::Value rejecting_errors(Napi::Env env, Function function) {
  try {
    return function();
  } catch (...) {
    const auto deferred = Napi::Promise::Deferred::New(env);
    deferred.Reject(to_javascript_error(env, std::current_exception()).Value());
    return deferred.Promise();
  }
}

}  // namespace odmoe
