// Errors of the native core. `code` is one of the codes in shared/errors/registry.ts.
#pragma once
#include <stdexcept>
#include <string>
#include <utility>

namespace odmoe {

// Visible, so that what a shared library of ours throws is caught outside it.
class __attribute__((visibility("default"))) Error : public std::runtime_error {
 public:
  Error(std::string code, const std::string& message) : std::runtime_error(message), code_(std::move(code)) {}
  const std::string& code() const noexcept { return code_; }

 private:
  std::string code_;
};

}  // namespace odmoe
