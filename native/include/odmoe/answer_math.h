// What turns logits into an answer, on the processor, whatever device has computed them: the same bits everywhere (arithmetic.h).
#pragma once
#include <span>
#include <string>

namespace odmoe {

// out[i] = exp((logits[i] - highest) / temperature): 1 for the highest logit, 0 for minus infinity. The two are of one size. Throws
// DEVICE_UNAVAILABLE for an instruction set that cannot be used.
void token_weights(std::span<float> out, std::span<const float> logits, float highest, float temperature,
                   const std::string& instruction_set = "auto");

// log(sum(exp(logits))). `highest`: the highest of them, finite.
float log_sum_exp(std::span<const float> logits, float highest, const std::string& instruction_set = "auto");

// Of a positive normal number.
float logarithm(float x);

}  // namespace odmoe
