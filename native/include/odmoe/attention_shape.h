#pragma once

namespace odmoe {

struct AttentionShape {
  int heads = 0;
  int kv_heads = 0;
  int head_dim = 0;
  int sliding_window = 0;  // 0: none; else position p sees (p - sliding_window, p]
};

}  // namespace odmoe
