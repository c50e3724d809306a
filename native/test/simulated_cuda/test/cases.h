// The cases of the tests: each runs in a separate process, because the environment and faults belong to a process.
#pragma once

#include <cuda_runtime.h>

// Returns the number of failed checks; each is printed on the standard output.
using Case = int (*)();

// Prints each failed check once, and counts it for the case's result.
class Checks {
 public:
  void operator()(bool holds, const char* what);
  int failures() const { return failures_; }

 private:
  int failures_ = 0;
};

cudaStream_t new_stream();

// Kernels (kernel_cases.cc).
int warp_operations();
int indices_of_threads();
int block_sums();
int racing_block_sums();
int tile_product();
int tickets();
int integer_functions();
int bfloat16_rounding();
int unset_shared();
int missing_thread();
int missing_lane();
int mixed_operations();
int misaligned();
int deep_stack();
int too_deep_stack();

// Streams and memory (stream_cases.cc, memory_cases.cc).
int ordered_streams();
int missing_event();
int pinned_reused_early();
int pinned_reused_after_event();
int pinned_rows_reused_early();
int pinned_rows_reused_after_event();
int pageable_reused_early();
int memset_beside_stream();
int default_stream();
int past_the_end();
int host_touches_device();
int use_after_free();
int freed_in_flight();
int pinned_freed_in_flight();
int host_pointer();
int registered();
int accounting();
int copies();
int copies_of_rows();
int events();

// Mapped memory (mapping_cases.cc).
int mapping();
int mapping_refusals();
int mapping_fails();
int calls_are_counted();
int unmapped_touched();
int unmapped_between();

// Device kinds and faults (fault_cases.cc).
int no_device();
int old_driver();
int device_kind();
int lost_device();
int gone_device();
int no_image();
int out_of_memory();
int management_library();
