// The one arithmetic (docs/architecture.md, "Exactness"). Every backend computes exactly this:
//  - dot(x, w) over K: K is padded with zeros to a multiple of kLanes; lane = k mod kLanes;
//    partial[lane] = fma(x[k], w[k], partial[lane]) in increasing k, from +0; then partial sums are added by a binary tree:
//    p[i] + p[i + 16] for i < 16, then 8, 4, 2, 1 apart (left operand is always the lower lane).
//    sum(x) is the same with additions in place of the fma.
//  - INT8: the integer, converted to FP32, is the weight; the finished dot is multiplied by the row's scale.
//    scale = absmax / 127, integer = round to nearest even of w / scale, within +-127; scale 0: all integers 0.
//    NF4: weight = code_value * block_scale, rounded to FP32, then as above. block_scale = absmax of the block, code = number of
//    kNf4Midpoints below w / block_scale; block_scale 0 and columns beyond the matrix: kNf4Zero. NaN is left out of absmax and
//    becomes the integer 0 or kNf4Zero.
//  - no contraction except the fma that is written here; denormals are not flushed; IEEE division and square root; the bits of a
//    NaN are not specified;
//  - exp(x): x limited to [kExpLowest, kExpHighest]; t = fma(x, kLog2E, kRoundMagic); n = t - kRoundMagic;
//    r = fma(n, -kLn2High, x); r = fma(n, -kLn2Low, r); q by Horner's rule with fma from kExpCoefficients (highest last);
//    y = 1 + fma(q * r, r, r); then y * 2^(n >> 1) * 2^(n - (n >> 1)), each product rounded;
//  - log(x), x positive and normal: n = (bits of x - bits of kSqrtHalf) >> 23, arithmetically; f = x * 2^-n - 1, so that f is within
//    [sqrt(1/2) - 1, sqrt(2) - 1]; q by Horner's rule with fma from kLogCoefficients (highest last); s = f * f;
//    y = fma(n, kLn2Low, fma(s * f, q, -0.5 * s)); log = fma(n, kLn2High, f + y);
//  - an answer: weight of a token = exp((logit - highest logit) / temperature), the temperature at least the least normal FP32;
//    log of the sum of exp(logits) = highest + log(sum(exp(logit - highest)));
//  - sigmoid(x) = 1 / (1 + exp(-x)); silu(x) = x / (1 + exp(-x)); tanh(x): t = exp(-2 |x|), (1 - t) / (1 + t) with the sign of x;
//    softplus(x) = x where x > kSoftplusLinear; else e = exp(x), u = 1 + e, log(u) + (e - (u - 1)) / u;
//  - limit(x, l): y = x > l ? l : x, then y < -l ? -l : y, so that NaN stays; clip uses it, too;
//  - glu(gate, up), biases added before: with a limit g = gate > limit ? limit : gate and u = limit(up); sigmoid:
//    (g / (1 + exp(-(alpha * g)))) * (u + up_offset), an offset of 0 is not added; tanh: t = fma(kGeluCubic * g * g, g, g) *
//    kGeluScale (products from the left), ((0.5 * g) * (1 + tanh(t))) * u; if the limit is of the activation, g is not limited, and
//    the factor a of the last product becomes a > limit ? limit : a;
//  - relu-squared in place of a GLU, for each value of the up rows: r = x < 0 ? +0 : x, so that NaN stays; r * r;
//  - gates: x * act(gate), act being sigmoid, silu or softplus;
//  - norms: r = sqrt(dot(x, x) / divisor + epsilon), x / r, times weight, times scale, in this order, each rounded; an absent
//    weight or scale is left out. LayerNorm: mean = sum(x) / size; d = x - mean; (d / sqrt(dot(d, d) / size + epsilon)) * weight +
//    bias, rounded twice; an absent bias is left out;
//  - rotation of a pair (a, b): a' = fma(-b, sin, a * cos), b' = fma(a, sin, b * cos). cos and sin of position * frequency (rounded to
//    FP32), times the rope's scale (rounded);
//  - router: with a logit cap, logit = cap * tanh(logit / cap) first. score: softmax e = exp(logit - max), p = e / sum(e), NaN is
//    never the max, and -inf is the max where no other value
//    is; sigmoid: p = sigmoid(logit); sqrt-softplus: p = sqrt(softplus(logit)). Experts that are given by the row's token have their ranks in
//    the order given; otherwise the choice score is the score, plus the choice bias where there is one; NaN then counts as
//    -inf. The value of a group is the greatest of its choice scores, or that plus the second (only the greatest where the group
//    has one expert; NaN counts as -inf). Experts outside the best groups_kept groups cannot be chosen; a tie goes to the lower
//    group. Ranks go by falling choice score, ties to the lower expert. weight = score, without the bias.
//    sparsemixer: rank r goes by falling logit, NaN counting as -inf, ties to the lower expert. Its weight = 1 / sum over the experts e
//    of term(e), where m is the greatest logit (NaN never) without the expert of the rank before, and term(e) = 0 for that expert and
//    where (m - s) / (|s| > m ? |s| : m) > 2 * jitter, s being e's logit, else exp(s - m). Two ranks.
//    Both kinds: normalized: t = sum of the k weights, added by rank; t = t + sum_epsilon; t = sum_floor > t ? sum_floor : t;
//    weight / t. Then weight * scale (1 is left out), then * the expert's scale, where there is one;
//  - sum of experts: arithmetic of CombineWork (odmoe/backend.h), each operation rounded. Experts with rows of a size of their own take
//    expert_input times the row that they would take; their sum, added by rank without the always part, has their size, and
//    expert_output times it is then the branch to which the always part is added;
//  - logits: x / divisor; with a cap, cap * tanh((x / divisor) / cap);
//  - latent attention's query at position p, after its rotation, times 1 + beta * log(1 + p / length), the division rounded down and
//    every other operation rounded, where the model scales its queries;
//  - attention works in chunks of kAttentionChunk positions counted from position 0 of the sequence. For one row and head:
//    s = dot(q, k) * score_scale; m = max of all visible s (and of the sink, where there is one), NaN is never the max;
//    p = exp(s - m). Each chunk that has visible positions gives a denominator, sum(p) with lane = index in the chunk mod kLanes,
//    and per dimension a value sum, fma(p, v, sum) in increasing position from +0. Both are added chunk by chunk, from +0;
//    then exp(sink - m) is added to the denominator; the result is value sum / denominator, times the value
//    scale (1 is left out);
//  - an indexer's score of a position, for a row: sum over heads h of fma(w[h], r, sum) in rising h from +0, where r is dot(q[h], k) where
//    that is greater than 0, else +0. NaN counts as -inf, and -0 as +0. A row whose position has more than `positions` positions up to
//    itself sees the `positions` ones of the greatest scores, ties to the lower position; it attends as if they, in rising order, were
//    the positions from 0 on. Other rows see all;
//  - a block indexer's score of a block of `block_size` positions, for a row and a key-value head g: the greatest dot(q[g], k) of the
//    block's positions up to the row's own, NaN counting as -inf, and -0 as +0. A row whose position is at least blocks * block_size
//    sees for g the last `local_blocks` blocks, that of its own position counted, and of the others those of the greatest scores, ties
//    to the lower block, `blocks` in all, and in them the positions up to its own. The heads of g attend as if these positions, in
//    rising order, were those from 0 on. Other rows see all;
//  - entry of a pool, for each channel by itself: l = gate + its bias, of each position of the pool in rising order; where pools overlap, first
//    of the positions of the pool before, if there is one, by the gates and values that these have for the pool behind them. m = max of l,
//    NaN is never the max; w = exp(l - m); the result is value sum / sum(w), both in rising order from +0, the value sum by fma(w, v, sum).
//    Attention to pools: a row attends as if the entries that it sees, in rising order, and then its window's keys were the positions
//    from 0 on; its values are its keys;
//  - convolution: fma(weight[t], x[position - taps + 1 + t], sum) in rising t from +0; then sum + bias where there is one; then silu
//    where the work asks for it;
//  - gated delta rule, a row at a time: beta = sigmoid(b), decay = exp(-(exp(A_log) * softplus(a + dt_bias))); per key dimension i and
//    value dimension j: S[i][j] = S[i][j] * decay; m[j] = fma(S[i][j], k[i], m[j]) in rising i from +0; d[j] = (v[j] - m[j]) * beta;
//    S[i][j] = fma(k[i], d[j], S[i][j]); out[j] = fma(S[i][j], q[i], out[j]) in rising i from +0;
//  - a delta net whose decay is of each channel (Kimi delta attention): the same rule with S[i][j] = S[i][j] * decay[i], where decay[i] =
//    exp(-(exp(A_log) * softplus(a[i] + dt_bias[i]))), or with a floor exp(floor * sigmoid(exp(A_log) * (a[i] + dt_bias[i])));
//  - state space rule (Mamba-2), a row at a time: step = softplus(a + dt_bias), decay = exp(-(exp(A_log) * step)); per state value i and
//    dimension j of a head: d[j] = x[j] * step; S[i][j] = fma(B[i], d[j], S[i][j] * decay); out[j] = fma(S[i][j], C[i], out[j]) in
//    rising i from +0; then out[j] = fma(D, x[j], out[j]);
//  - residual streams: of the values f of a part's map, t = fma(f, scale, base); before = sigmoid(t) + epsilon; behind = 2 * sigmoid(t); mix,
//    row by row: e = exp(t - max), NaN is never the max, s = sum of the row's e, from the left, from +0; e / s + epsilon. Then each value is
//    divided by (the sum of its column, from the top, from +0) + epsilon; and rounds - 1 times by its row's sum + epsilon (from the left), then by
//    its column's. A part's input: s = before[0] * h[0], s = fma(before[i], h[i], s) in rising i. A stream behind the part:
//    s = behind[k] * output; s = fma(mix[j][k], h[j], s) in rising j. Streams that are not mixed: behind = magnitude * sigmoid(t), rounded,
//    + epsilon; h[k] = fma(behind[k], output, h[k]);
//  - slices of h bits (8, 6, 4), of which each slice has d = h / 2: a group of kSliceGroup columns of a row has a scale s (FP16, not
//    negative) and a zero z (0 to 2^h - 1). Packing, in FP32: s = (max - min) / (2^h - 1), rounded to FP16, min and max taken with 0;
//    z = rint(-min / s) and code q = rint(w / s) + z, both within 0 and 2^h - 1; s = 0: z and all codes 0. rint rounds to nearest even.
//    The upper slice has q >> d with s and z, the lower one the low d bits of q. weight = s * (q - z). From the upper slice u alone:
//    centred: s * (u * 2^d + (2^d - 1) / 2 - z); amat: s * 2^d * (u - (z >> d)). Each weight is exact in FP32. A row's last group is
//    filled up with the code 0;
//  - MXFP4: weight = kMxfp4Values[code] * 2^(e - 127), a BF16; FP8: weight = fp32(E4M3 value) * scale, rounded to FP32.
#pragma once
#include <cstdint>

namespace odmoe {

inline constexpr int kLanes = 32;
inline constexpr int kAttentionChunk = 256;
inline constexpr int kNf4Block = 64;
inline constexpr int kMxfp4Block = 32;
inline constexpr int kFp8Block = 128;
inline constexpr int kSliceGroup = 32;
inline constexpr int kSliceScaleBytes = 3;  // of a group: an FP16 scale and a byte for its zero

inline constexpr float kGeluCubic = 0.044715f;
inline constexpr float kGeluScale = 0.7978845608028654f;  // sqrt(2 / pi)
inline constexpr float kSoftplusLinear = 20.0f;
inline constexpr float kMxfp4Values[16] = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                                           -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};

inline constexpr float kExpLowest = -104.0f;
inline constexpr float kExpHighest = 89.0f;
inline constexpr float kLog2E = 0x1.715476p+0f;
inline constexpr float kRoundMagic = 0x1.8p+23f;
inline constexpr float kLn2High = 0x1.62e4p-1f;  // 15 bits, so that n * kLn2High is exact
inline constexpr float kLn2Low = 0x1.7f7d1cp-20f;
// exp(r) = 1 + r + r^2 * polynomial(r), minimax in relative error on |r| <= ln(2) / 2 (3.1e-9 before rounding).
inline constexpr float kExpCoefficients[5] = {0x1.fffffcp-2f, 0x1.555492p-3f, 0x1.5558f2p-5f, 0x1.123a2p-7f, 0x1.6a23ccp-10f};

// log(1 + f) = f - f^2 / 2 + f^3 * polynomial(f), minimax in relative error on [sqrt(1/2) - 1, sqrt(2) - 1] (7.5e-10 before rounding).
inline constexpr float kSqrtHalf = 0x1.6a09e6p-1f;
inline constexpr float kLogCoefficients[9] = {0x1.555548p-2f,  -0x1.000006p-2f, 0x1.99a4b6p-3f,  -0x1.555c4ep-3f, 0x1.233768p-3f,
                                              -0x1.fc220ap-4f, 0x1.e6f076p-4f,  -0x1.de3c0ap-4f, 0x1.145782p-4f};

// The 16 values of NormalFloat4 (QLoRA, appendix E).
inline constexpr float kNf4Values[16] = {-1.0f,
                                         -0.6961928009986877f,
                                         -0.5250730514526367f,
                                         -0.39491748809814453f,
                                         -0.28444138169288635f,
                                         -0.18477343022823334f,
                                         -0.09105003625154495f,
                                         0.0f,
                                         0.07958029955625534f,
                                         0.16093020141124725f,
                                         0.24611230194568634f,
                                         0.33791524171829224f,
                                         0.44070982933044434f,
                                         0.5626170039176941f,
                                         0.7229568362236023f,
                                         1.0f};
inline constexpr int kNf4Zero = 7;
// The midpoint between two neighbours; a value on a midpoint takes the lower code.
constexpr float nf4_midpoint(int i) {
  return static_cast<float>((static_cast<double>(kNf4Values[i]) + static_cast<double>(kNf4Values[i + 1])) * 0.5);
}
inline constexpr float kNf4Midpoints[15] = {nf4_midpoint(0),  nf4_midpoint(1),  nf4_midpoint(2),  nf4_midpoint(3),
                                            nf4_midpoint(4),  nf4_midpoint(5),  nf4_midpoint(6),  nf4_midpoint(7),
                                            nf4_midpoint(8),  nf4_midpoint(9),  nf4_midpoint(10), nf4_midpoint(11),
                                            nf4_midpoint(12), nf4_midpoint(13), nf4_midpoint(14)};

}  // namespace odmoe
