// Functions that turn logits into an answer. They run on the processor, whichever device computed the logits, and give the same
// bits everywhere (arithmetic.h).
#pragma once
#include <span>
#include <string>

namespace odmoe {

// out[i] = exp((logits[i] - highest) / temperature): 1 for the highest logit, 0 for minus infinity. `out` and `logits` have one
// size. Throws DEVICE_UNAVAILABLE for an instruction set that cannot be used.
void token_weights(std::span<float> out, std::span<const float> logits, float highest, float temperature,
                   const std::string& instruction_set = "auto");

// log(sum(exp(logits))). `highest`: the highest logit, finite.
float log_sum_exp(std::span<const float> logits, float highest, const std::string& instruction_set = "auto");

// The natural logarithm of a positive normal number.
float logarithm(float x);

}  // namespace odmoe
