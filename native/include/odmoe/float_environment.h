// The floating-point state that the one arithmetic asks for.
#pragma once
#include <cfenv>

namespace odmoe {

// Round to nearest, denormals kept. A thread inherits the state of the one that starts it, and any library in the process may have
// changed that one's (what is linked with -ffast-math does so when it is loaded): each thread that computes sets its own.
inline void use_exact_float_environment() { std::fesetenv(FE_DFL_ENV); }

}  // namespace odmoe
