// The floating-point state that the one arithmetic needs.
#pragma once
#include <cfenv>

namespace odmoe {

// Rounds to nearest and does not flush denormals. A thread inherits the state of the thread that starts it, and any library in the
// process may have changed that state (a library linked with -ffast-math does so when it is loaded). So each thread that computes
// sets its own state.
inline void use_exact_float_environment() { std::fesetenv(FE_DFL_ENV); }

// Sets this state during its lifetime, on a thread that belongs to other code.
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
