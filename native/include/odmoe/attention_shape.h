#pragma once

namespace odmoe {

struct AttentionShape {
  int heads = 0;
  int kv_heads = 0;
  int head_dim = 0;   // of queries and keys
  int value_dim = 0;  // of values and outputs
  // Values are the first value_dim dimensions of the keys, and no values are stored.
  bool values_in_keys = false;
  int sliding_window = 0;  // 0: none; else position p sees (p - sliding_window, p]
  float score_scale = 0;
  const float* sinks = nullptr;  // device memory, one logit per head; null: none
};

}  // namespace odmoe
