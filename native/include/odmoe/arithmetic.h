// The one arithmetic (docs/architecture.md, "Exactness"). Every backend computes exactly this:
//  - dot(x, w) over K: K is padded with zeros to a multiple of kLanes; lane = k mod kLanes;
//    partial[lane] = fma(x[k], w[k], partial[lane]) in increasing k, from +0; then partial sums are added by a binary tree:
//    p[i] + p[i + 16] for i < 16, then 8, 4, 2, 1 apart (left operand is always the lower lane).
//  - INT8: the integer, converted to FP32, is the weight; the finished dot is multiplied by the row's scale.
//    NF4: weight = code_value * block_scale, rounded to FP32, then as above.
//  - no contraction but the fma written down, denormals kept, IEEE division and square root;
//  - attention works in chunks of kAttentionChunk positions counted from position 0 of the sequence.
#pragma once
#include <cstdint>

namespace odmoe {

inline constexpr int kLanes = 32;
inline constexpr int kAttentionChunk = 256;
inline constexpr int kNf4Block = 64;

}  // namespace odmoe
