// Errors of the native core.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>

namespace odmoe {

// The errors of shared/base/errors/registry.ts that the native core throws. A test compares the two lists.
enum class ErrorCode : uint8_t {
  cancelled,
  device_architecture_unsupported,
  device_driver_too_old,
  device_lost,
  device_out_of_memory,
  device_unavailable,
  internal,
  model_corrupt,
  model_unsupported,
  pack_corrupt,
  queue_full,
  request_invalid,
  storage_failed,
};

inline constexpr std::array<const char*, 13> kErrorCodeNames = {"CANCELLED",
                                                                "DEVICE_ARCHITECTURE_UNSUPPORTED",
                                                                "DEVICE_DRIVER_TOO_OLD",
                                                                "DEVICE_LOST",
                                                                "DEVICE_OUT_OF_MEMORY",
                                                                "DEVICE_UNAVAILABLE",
                                                                "INTERNAL",
                                                                "MODEL_CORRUPT",
                                                                "MODEL_UNSUPPORTED",
                                                                "PACK_CORRUPT",
                                                                "QUEUE_FULL",
                                                                "REQUEST_INVALID",
                                                                "STORAGE_FAILED"};
static_assert(static_cast<size_t>(ErrorCode::storage_failed) + 1 == kErrorCodeNames.size());

inline const char* name_of(ErrorCode code) { return kErrorCodeNames[static_cast<size_t>(code)]; }

// Visible, so that code outside our shared library can catch errors that the library throws.
class __attribute__((visibility("default"))) Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ErrorCode code() const noexcept { return code_; }

 private:
  ErrorCode code_;
};

}  // namespace odmoe
