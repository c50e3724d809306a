// A device whose time and memory are those that a profiled device needs for a profiled model, while another backend does the
// arithmetic (DESIGN, section 5). DeviceEmulation of native/addon.d.ts.
#pragma once
#include <cstdint>
#include <memory>

#include "odmoe/backend.h"

namespace odmoe {

// Time of an operator on some rows: overhead_ms + max(weights_ms, rows * row_ms).
struct OperatorTime {
  double overhead_ms = 0;
  double weights_ms = 0;
  double row_ms = 0;
};

struct Emulation {
  OperatorTime dense_layer;
  OperatorTime expert;
  OperatorTime lm_head;
  double load_ms = 0;  // one expert over the link from storage
  uint64_t outer_bytes = 0;
  uint64_t dense_layer_bytes = 0;
  uint64_t expert_bytes = 0;
  uint64_t slot_bytes = 0;
  uint64_t slots_shared_bytes = 0;
  uint64_t key_value_row_bytes = 0;  // of one position in one layer
};

// `arithmetic` should have no budget of its own. budget_bytes: of the profiled device, for the profiled model; 0: no limit.
std::unique_ptr<Backend> make_emulated_backend(std::unique_ptr<Backend> arithmetic, const Emulation& emulation,
                                               uint64_t budget_bytes);

}  // namespace odmoe
