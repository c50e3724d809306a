// Lists the devices that the driver shows, and whether this library has code for them.
#pragma once
#include "odmoe/cuda.h"

namespace odmoe::cuda {

// The status without `built` and `library`; the code that opened the library fills these in.
CudaStatus device_status();
// Throws DEVICE_UNAVAILABLE, DEVICE_DRIVER_TOO_OLD or DEVICE_ARCHITECTURE_UNSUPPORTED according to device_status().
void require_usable_device(int device);

}  // namespace odmoe::cuda
