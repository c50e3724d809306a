// Arguments of a backend's operators (odmoe/backend.h) besides their buffers. odmoe/arithmetic.h has the formulas. C++17, so that
// device code can include it.
#pragma once
#include <cstdint>

namespace odmoe {

// `rows` rows, each with `vectors` vectors of `size` floats; rows are row_stride floats apart, the vectors of a row are
// vector_stride floats apart.
struct Vectors {
  float* first = nullptr;
  int64_t row_stride = 0;
  int64_t vector_stride = 0;
  int rows = 0;
  int vectors = 1;
  int size = 0;
};

// out = in / sqrt(dot(in, in) / divisor + epsilon) * weight * scale, vector by vector: an RMS norm (divisor: the vector's size), or
// a division by the L2 norm (divisor: 1). weight: `size` floats for every vector, or null; scale 1 is left out. out may be in. The
// weights of a row's vectors are weight_stride floats apart, so that 0 means the same for all.
struct NormWork {
  Vectors out;
  Vectors in;
  const float* weight = nullptr;
  float divisor = 1;
  float epsilon = 0;
  float scale = 1;
  int64_t weight_stride = 0;
};

enum class RotaryPairing : uint8_t { halves, neighbours };

// Rotates 2 x pairs dimensions of each vector, in place. cos and sin: rows x pairs.
struct RotaryWork {
  Vectors heads;  // from the first rotated dimension on; size: 2 x pairs
  const float* cos = nullptr;
  const float* sin = nullptr;
  RotaryPairing pairing = RotaryPairing::halves;
};

// The function of a gate by which an activation is multiplied.
enum class Gate : uint8_t { sigmoid, silu, softplus };

// sigmoid: g * sigmoid(alpha g) * (u + up_offset); tanh: GELU of g in its tanh form, times u. Where limit > 0,
// u = clamp(up, -limit, limit), and g = min(gate, limit), or with limits_activation the activated g is limited in its place.
// relu_squared: there is no gate; each value x becomes max(0, x)^2. The up rows then stand where gate and up rows stand otherwise.
enum class Activation : uint8_t { sigmoid, tanh, relu_squared };
struct GluShape {
  int64_t intermediate_size = 0;
  Activation activation = Activation::sigmoid;
  float alpha = 1;
  float limit = 0;
  float up_offset = 0;
  bool bias = false;
  bool limits_activation = false;

  bool has_gate() const { return activation != Activation::relu_squared; }
  // Rows of the gate matrix, and of the up matrix. Without a gate each has half of the up rows.
  int64_t gate_rows() const { return has_gate() ? intermediate_size : intermediate_size / 2; }
};

enum class RouterScore : uint8_t { softmax, sigmoid, sparsemixer, sqrt_softplus };
enum class GroupScore : uint8_t { best, best_two };
struct RouterShape {
  RouterScore score = RouterScore::softmax;
  bool bias = false;         // the router's linear map has a bias
  bool choice_bias = false;  // added to the scores for the choice only
  int groups = 1;
  int groups_kept = 1;
  GroupScore group_score = GroupScore::best;
  bool normalize = false;
  float sum_epsilon = 0;
  float sum_floor = 0;
  float scale = 1;
  bool expert_scale = false;
  float jitter = 0;
  bool by_token = false;  // a table names each row's experts, and the scores only weigh them
  float logit_cap = 0;    // logits become cap * tanh(logit / cap) before anything else; 0: no cap
};

// A causal convolution of each channel over positions: out[i][c] = act(sum over taps t of weight[t][c] * x[i - taps + 1 + t][c]), by fma
// in rising t from +0, plus a bias where there is one. Rows of `in` follow one another in position; `tail` holds the taps - 1 rows before the first (zeros before
// position 0), and afterwards the last taps - 1 rows, for the next call.
struct ConvolutionWork {
  float* out = nullptr;
  int64_t out_stride = 0;
  const float* in = nullptr;
  int64_t in_stride = 0;
  float* tail = nullptr;          // (taps - 1) x channels
  const float* weight = nullptr;  // taps x channels
  int rows = 0;
  int taps = 0;
  int64_t channels = 0;
  bool silu = false;
  const float* bias = nullptr;  // channels, added before act; null: none
};

// The gated delta rule for rows with consecutive positions (arithmetic.h). Value head h uses key head h / (value_heads /
// key_heads), or h mod key_heads if the value heads are tiled. Queries and keys have been divided by their norms, and queries scaled.
struct DeltaWork {
  float* out = nullptr;  // rows x value_heads x value_dim
  int64_t out_stride = 0;
  const float* queries = nullptr;  // rows x key_heads x key_dim; queries, keys and values have one stride
  const float* keys = nullptr;
  const float* values = nullptr;
  int64_t stride = 0;
  const float* beta = nullptr;  // rows x value_heads, before the sigmoid; beta and decay have one stride
  // rows x value_heads: a; if the decay is of each channel, rows x value_heads x key_dim: the factors (DecayWork)
  const float* decay = nullptr;
  int64_t gate_stride = 0;
  const float* decay_log = nullptr;   // value_heads: A_log, or its exponential if decay_is_rate
  const float* decay_bias = nullptr;  // value_heads: dt_bias
  float* state = nullptr;             // value_heads x key_dim x value_dim, goes on from row to row
  int rows = 0;
  int key_heads = 0;
  int value_heads = 0;
  int key_dim = 0;
  int value_dim = 0;
  bool tiled_value_heads = false;
  bool decay_is_rate = false;
  bool decay_by_channel = false;  // decay_log, decay_bias and decay_is_rate are not used then
};

// Factors of a delta net's states, where the decay is of each channel (arithmetic.h).
struct DecayWork {
  Vectors decays;                     // a vector for each head: a, and afterwards the factors
  const float* decay_log = nullptr;   // a value for each head: A_log, or its exponential if decay_is_rate
  const float* decay_bias = nullptr;  // a value for each of a row's values
  bool decay_is_rate = false;
  float floor = 0;  // least logarithm of a factor, below 0; 0: there is none
};

// The state space rule for rows with consecutive positions (arithmetic.h). Head h uses B and C of group h / (heads / groups).
struct StateSpaceWork {
  float* out = nullptr;  // rows x heads x head_dim
  int64_t out_stride = 0;
  const float* values = nullptr;  // x: rows x heads x head_dim; values, inputs and reads have one stride
  const float* inputs = nullptr;  // B: rows x groups x state_size
  const float* reads = nullptr;   // C: rows x groups x state_size
  int64_t stride = 0;
  const float* steps = nullptr;  // a: rows x heads, before the softplus
  int64_t step_stride = 0;
  const float* decay_log = nullptr;  // heads: A_log
  const float* step_bias = nullptr;  // heads: dt_bias
  const float* skip = nullptr;       // heads: D
  float* state = nullptr;            // heads x state_size x head_dim, goes on from row to row
  int rows = 0;
  int groups = 0;
  int heads = 0;
  int state_size = 0;
  int head_dim = 0;
};

// Most residual streams (shared/model/model-shape.ts, streams).
inline constexpr int kMostStreams = 8;

// The weights of a part for the residual streams of each row, in the place of the values of its map: `streams` weights before the part, then as
// many behind it, then of mixed streams the mix, row by row. At the end of the model there are only those before it.
struct StreamWeightsWork {
  float* values = nullptr;        // rows x columns()
  const float* scales = nullptr;  // one for each kind of weights
  const float* base = nullptr;    // columns()
  int rows = 0;
  int streams = 0;
  bool ending = false;
  float epsilon = 0;
  int rounds = 1;  // of mixed streams
  bool mixes = true;
  float magnitude = 2;  // of streams that are not mixed

  int columns() const { return ending ? streams : mixes ? (2 + streams) * streams : 2 * streams; }
};

// out = the sum of a row's streams by the weights before a part.
struct StreamSumWork {
  float* out = nullptr;            // rows x size
  const float* streams = nullptr;  // rows x count x size
  const float* weights = nullptr;  // rows x weight_stride; only the first `count` of a row are read
  int64_t weight_stride = 0;
  int rows = 0;
  int count = 0;
  int size = 0;
};

// A row's streams behind a part: its output by the weights behind it, and the streams before it by the mix, or as they are.
struct StreamMixWork {
  float* streams = nullptr;        // rows x count x size
  const float* output = nullptr;   // rows x size
  const float* weights = nullptr;  // rows x columns()
  int rows = 0;
  int count = 0;
  int size = 0;
  bool mixes = true;

  int columns() const { return mixes ? (2 + count) * count : 2 * count; }
};

}  // namespace odmoe
