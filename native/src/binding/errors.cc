#include "errors.h"

#include <new>
#include <string>

#include "addon_data.h"
#include "odmoe/error.h"

namespace odmoe {
namespace {

Napi::Error with_code(Napi::Env env, ErrorCode code, const std::string& message) {
  Napi::Error error = Napi::Error::New(env, message);
  error.Value().Set("code", name_of(code));
  return error;
}

Napi::Error with_code_of(Napi::Env env, const std::exception_ptr& thrown) {
  try {
    std::rethrow_exception(thrown);
  } catch (const Napi::Error& error) {
    return error;
  } catch (const Error& error) {
    return with_code(env, error.code(), error.what());
  } catch (const std::bad_alloc&) {
    return with_code(env, ErrorCode::device_out_of_memory,
                     "this machine has no memory left; stop something, or use a smaller model");
  } catch (const std::exception& error) {
    return with_code(env, ErrorCode::internal, error.what());
  }
}

}  // namespace

Napi::Error to_javascript_error(Napi::Env env, const std::exception_ptr& thrown) {
  const Napi::Error error = with_code_of(env, thrown);
  const Napi::FunctionReference& to_odmoe_error = AddonData::of(env).to_odmoe_error;
  return to_odmoe_error.IsEmpty() ? error : Napi::Error(env, to_odmoe_error.Call({error.Value()}));
}

}  // namespace odmoe
