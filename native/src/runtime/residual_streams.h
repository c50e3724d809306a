// Residual streams of models that have them (shared/model/model-shape.ts, streams). The pass's `residual` then is what the next part takes of
// them: a mixer, a feed-forward part, or the end of the model.
#pragma once
#include "pass_state.h"

namespace odmoe {

enum class StreamPart : uint8_t { mixer, feed_forward };

// The streams become copies of the residual.
void begin_streams(PassState& pass);
// The residual becomes the input of a part of `layer`, or for a layer behind the last one the hidden state behind the layers. The weights with which
// the part's output will be given back are kept. Models without streams keep their residual.
void take_streams(PassState& pass, int layer, StreamPart part);
// Adds the output of a part, times the factor, to the residual, or gives it to the streams, of which this part took last. `output` may be changed.
void add_output(PassState& pass, float* output, float factor);
// out = what the feed-forward part of a later layer would take of the streams as they are now.
void take_streams_ahead(PassState& pass, const DenseWeights& weights, float* out);

}  // namespace odmoe
