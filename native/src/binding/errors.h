// C++ errors as JavaScript errors that carry a `code` of shared/base/errors.
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
  } catch (const Napi::Error&) {
    throw;
  } catch (...) {
    throw to_javascript_error(env, std::current_exception());
  }
}

}  // namespace odmoe
