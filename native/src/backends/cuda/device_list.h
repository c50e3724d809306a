// Which devices the driver shows, and whether this library has code for them.
#pragma once
#include "odmoe/cuda.h"

namespace odmoe::cuda {

// Everything but `built` and `library`, which whoever opened the library knows.
CudaStatus device_status();
// Throws DEVICE_UNAVAILABLE, DEVICE_DRIVER_TOO_OLD or DEVICE_ARCHITECTURE_UNSUPPORTED for what device_status() says of it.
void require_usable_device(int device);

}  // namespace odmoe::cuda
