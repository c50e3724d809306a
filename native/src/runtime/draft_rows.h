// The rows with which a pass of a draft head begins.
#pragma once
#include <span>

#include "pass_state.h"

namespace odmoe {

// The residual stream holds the tokens' embeddings; afterwards it holds draft_input x [token_norm(embedding) ; state_norm(state)].
// states: rows x hidden_size. The order of the two halves is that of DeepSeek-V3's, GLM-4.5's and Qwen3-Next's checkpoints (vLLM,
// deepseek_mtp.py, glm4_moe_mtp.py, qwen3_next_mtp.py).
void make_draft_rows(PassState& pass, std::span<const float> states);

}  // namespace odmoe
