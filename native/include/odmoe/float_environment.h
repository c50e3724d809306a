// The floating-point state that the one arithmetic asks for.
#pragma once
#include <cfenv>

namespace odmoe {

// Round to nearest, denormals kept. A thread inherits the state of the one that starts it, and any library in the process may have
// changed that one's (what is linked with -ffast-math does so when it is loaded): each thread that computes sets its own.
inline void use_exact_float_environment() { std::fesetenv(FE_DFL_ENV); }

// The state while it lives, on a thread that is somebody else's.
class ExactFloatEnvironment {
 public:
  ExactFloatEnvironment() {
    std::fegetenv(&before_);
    use_exact_float_environment();
  }
  ~ExactFloatEnvironment() { std::fesetenv(&before_); }
  ExactFloatEnvironment(const ExactFloatEnvironment&) = delete;
  ExactFloatEnvironment& operator=(const ExactFloatEnvironment&) = delete;

 private:
  std::fenv_t before_;
};

}  // namespace odmoe
