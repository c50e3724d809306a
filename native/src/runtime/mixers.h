// The mixers of layers, from the normed rows to the input of the output projection.
#pragma once
#include <cstdint>
#include <vector>

#include "pass_state.h"

namespace odmoe {

// h += scale * mixer(mixerNorm(h)) of one layer.
void run_mixer(PassState& pass, int layer, const DenseWeights& weights);
// Floats of scratch that a mixer needs for `rows` rows.
int64_t mixer_scratch_floats(const LayerShape& layer, const ModelShape& shape, int rows);
// Applies the model's norm of hidden states. out may be in.
void normalize_hidden(PassState& pass, float* out, float* in, int rows, const float* weight, const float* bias);
// An RMS norm of rows of hidden states.
void rms_normalize(PassState& pass, float* out, float* in, const float* weight);

// Points the pass's attention rows to the caches of a layer.
void set_attention_rows(PassState& pass, int layer);
// Multiplies each head's vectors of `in` by the head's own matrix.
void multiply_heads(PassState& pass, const std::vector<StoredMatrix>& matrices, float* out, int64_t out_stride, int64_t out_step,
                    const float* in, int64_t in_stride, int64_t in_step);

// Each returns the input rows of its output projection, one behind another.
const float* mix_attention(PassState& pass, const AttentionMixer& mixer, const DenseWeights& weights, int layer);
const float* mix_latent(PassState& pass, const LatentMixer& mixer, const DenseWeights& weights, int layer);
const float* mix_delta(PassState& pass, const DeltaMixer& mixer, const DenseWeights& weights, int layer);
const float* mix_state_space(PassState& pass, const StateSpaceMixer& mixer, const DenseWeights& weights, int layer);
const float* mix_pooled(PassState& pass, const PooledMixer& mixer, const DenseWeights& weights, int layer);
const float* mix_convolution(PassState& pass, const ConvolutionMixer& mixer, const DenseWeights& weights, int layer);

}  // namespace odmoe
