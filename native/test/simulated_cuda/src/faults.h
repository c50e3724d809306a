// Access rights to device memory, and messages about forbidden accesses.
#pragma once

#include <cstddef>

namespace odmoe_simulated {

// Sets a range's protection (PROT_...); where the processor has protection keys, the range is for the device thread only.
bool protect_device_memory(void* start, size_t size, int protection);

// Makes the calling thread the device thread: it may access device memory.
void open_device_memory();

// From now on a fault names the kernel, block and thread it happened in, or says that host code touched device memory.
// The process then ends as it would have. Called on the device thread: its signals get a stack of their own.
void report_faults_of_this_thread();

}  // namespace odmoe_simulated
