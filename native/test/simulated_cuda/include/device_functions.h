// Stand-in for the built-in variables and functions of NVIDIA's compiler for device code.
#pragma once

#include <math.h>

#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <type_traits>

#include "driver_types.h"

#pragma GCC visibility push(default)
extern uint3 threadIdx;
extern uint3 blockIdx;
extern dim3 blockDim;
extern dim3 gridDim;

void __syncthreads();
int __syncthreads_count(int predicate);
int __syncthreads_and(int predicate);
int __syncthreads_or(int predicate);
void __syncwarp(unsigned mask = 0xffffffffu);
unsigned __ballot_sync(unsigned mask, int predicate);
[[noreturn]] void __trap();

namespace odmoe_simulated {

// A lane's input and output of a shuffle. `source`: the lane whose value it takes.
struct ShuffleLane {
  uint64_t value;
  uint64_t result;
  int source;
};

// The lanes of `mask` wait here for one another; the last one to come calls `finish` with every lane's argument
// (indexed by lane, null outside the mask), then all go on. `operation` must be the same for all.
using FinishWarp = void (*)(void* const lanes[32], unsigned mask);
void meet_warp(unsigned mask, const char* operation, void* argument, FinishWarp finish);
unsigned lane_index();
// If `holds` is false, ends the process with a message that has the kernel, block and thread.
void require(bool holds, const char* what);
uint64_t shuffle(unsigned mask, const char* operation, uint64_t value, int source);

template <typename T>
T shuffle_typed(unsigned mask, const char* operation, T value, int source) {
  static_assert(std::is_trivially_copyable<T>::value && (sizeof(T) == 4 || sizeof(T) == 8), "4- and 8-byte types");
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  bits = shuffle(mask, operation, bits, source);
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}

}  // namespace odmoe_simulated
#pragma GCC visibility pop

constexpr int warpSize = 32;

// CUDA C++ programming guide, "Warp shuffle functions": a lane outside its segment keeps its own value.
template <typename T>
inline T __shfl_sync(unsigned mask, T value, int source, int width = 32) {
  const int lane = static_cast<int>(odmoe_simulated::lane_index());
  return odmoe_simulated::shuffle_typed(mask, "__shfl_sync", value, (lane & ~(width - 1)) + (source & (width - 1)));
}
template <typename T>
inline T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = 32) {
  const int lane = static_cast<int>(odmoe_simulated::lane_index());
  const int source = lane ^ lane_mask;
  const bool later_segment = source >= (lane & ~(width - 1)) + width;
  return odmoe_simulated::shuffle_typed(mask, "__shfl_xor_sync", value, later_segment ? lane : source);
}
template <typename T>
inline T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32) {
  const int lane = static_cast<int>(odmoe_simulated::lane_index());
  const int source = lane - static_cast<int>(delta);
  return odmoe_simulated::shuffle_typed(mask, "__shfl_up_sync", value, source < (lane & ~(width - 1)) ? lane : source);
}
template <typename T>
inline T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32) {
  const int lane = static_cast<int>(odmoe_simulated::lane_index());
  const int source = lane + static_cast<int>(delta);
  const bool outside = source >= (lane & ~(width - 1)) + width;
  return odmoe_simulated::shuffle_typed(mask, "__shfl_down_sync", value, outside ? lane : source);
}
inline int __any_sync(unsigned mask, int predicate) { return __ballot_sync(mask, predicate) != 0; }
inline int __all_sync(unsigned mask, int predicate) { return __ballot_sync(mask, predicate) == mask; }

inline void __threadfence() { std::atomic_thread_fence(std::memory_order_seq_cst); }
inline void __threadfence_block() { std::atomic_thread_fence(std::memory_order_seq_cst); }
inline void __threadfence_system() { std::atomic_thread_fence(std::memory_order_seq_cst); }

// Arithmetic. The device thread rounds to nearest and keeps denormals; the compiler is told not to contract.
inline float __fmaf_rn(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fsqrt_rn(float a) { return __builtin_sqrtf(a); }
inline float __frcp_rn(float a) { return 1.0f / a; }
inline double __fma_rn(double a, double b, double c) { return __builtin_fma(a, b, c); }
inline float rsqrtf(float a) { return static_cast<float>(1.0 / std::sqrt(static_cast<double>(a))); }
inline float __expf(float a) { return std::exp(a); }
inline float __logf(float a) { return std::log(a); }
inline float __fdividef(float a, float b) { return a / b; }

inline int __float2int_rn(float a) {
  if (std::isnan(a)) return 0;
  if (a >= 2147483648.0f) return 2147483647;
  if (a <= -2147483648.0f) return -2147483647 - 1;
  return static_cast<int>(std::nearbyint(a));
}
inline int __float2int_rz(float a) {
  if (std::isnan(a)) return 0;
  if (a >= 2147483648.0f) return 2147483647;
  if (a <= -2147483648.0f) return -2147483647 - 1;
  return static_cast<int>(a);
}
inline float __int2float_rn(int a) { return static_cast<float>(a); }
inline float __uint2float_rn(unsigned a) { return static_cast<float>(a); }

namespace odmoe_simulated {
template <typename To, typename From>
inline To same_bits(From from) {
  static_assert(sizeof(To) == sizeof(From), "bits are kept");
  To to;
  std::memcpy(&to, &from, sizeof(To));
  return to;
}
}  // namespace odmoe_simulated
inline unsigned __float_as_uint(float a) { return odmoe_simulated::same_bits<unsigned>(a); }
inline int __float_as_int(float a) { return odmoe_simulated::same_bits<int>(a); }
inline float __uint_as_float(unsigned a) { return odmoe_simulated::same_bits<float>(a); }
inline float __int_as_float(int a) { return odmoe_simulated::same_bits<float>(a); }
inline long long __double_as_longlong(double a) { return odmoe_simulated::same_bits<long long>(a); }
inline double __longlong_as_double(long long a) { return odmoe_simulated::same_bits<double>(a); }

inline int __popc(unsigned a) { return __builtin_popcount(a); }
inline int __popcll(unsigned long long a) { return __builtin_popcountll(a); }
inline int __clz(int a) { return a == 0 ? 32 : __builtin_clz(static_cast<unsigned>(a)); }
inline int __clzll(long long a) { return a == 0 ? 64 : __builtin_clzll(static_cast<unsigned long long>(a)); }
inline int __ffs(int a) { return __builtin_ffs(a); }
inline int __ffsll(long long a) { return __builtin_ffsll(a); }
inline unsigned __brev(unsigned a) {
  unsigned result = 0;
  for (int bit = 0; bit < 32; ++bit) result |= ((a >> bit) & 1u) << (31 - bit);
  return result;
}
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
  const uint64_t both = (static_cast<uint64_t>(high) << 32) | low;
  return static_cast<unsigned>((both << (shift & 31)) >> 32);
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
  const uint64_t both = (static_cast<uint64_t>(high) << 32) | low;
  return static_cast<unsigned>(both >> (shift & 31));
}
inline unsigned __umulhi(unsigned a, unsigned b) { return static_cast<unsigned>((static_cast<uint64_t>(a) * b) >> 32); }

// PTX prmt.b32, default mode: each nibble of the selector names a byte of {b, a}; its top bit replicates that byte's sign.
inline unsigned __byte_perm(unsigned a, unsigned b, unsigned selector) {
  const uint64_t bytes = (static_cast<uint64_t>(b) << 32) | a;
  unsigned result = 0;
  for (unsigned i = 0; i < 4; ++i) {
    const unsigned nibble = (selector >> (4 * i)) & 0xf;
    unsigned byte = static_cast<unsigned>(bytes >> (8 * (nibble & 7))) & 0xff;
    if (nibble & 8) byte = (byte & 0x80) ? 0xff : 0x00;
    result |= byte << (8 * i);
  }
  return result;
}

template <typename T>
inline T __ldg(const T* p) {
  return *p;
}
template <typename T>
inline T __ldcs(const T* p) {
  return *p;
}
template <typename T>
inline T __ldcg(const T* p) {
  return *p;
}
template <typename T>
inline T __ldca(const T* p) {
  return *p;
}
template <typename T>
inline T __ldlu(const T* p) {
  return *p;
}
template <typename T>
inline T __ldcv(const T* p) {
  return *p;
}
template <typename T>
inline void __stcs(T* p, T value) {
  *p = value;
}
template <typename T>
inline void __stcg(T* p, T value) {
  *p = value;
}
template <typename T>
inline void __stwb(T* p, T value) {
  *p = value;
}
template <typename T>
inline void __stwt(T* p, T value) {
  *p = value;
}

#define ODMOE_SIMULATED_INTEGER_ATOMICS(T)                                                                           \
  inline T atomicAdd(T* p, T value) { return __atomic_fetch_add(p, value, __ATOMIC_RELAXED); }                       \
  inline T atomicExch(T* p, T value) { return __atomic_exchange_n(p, value, __ATOMIC_RELAXED); }                     \
  inline T atomicOr(T* p, T value) { return __atomic_fetch_or(p, value, __ATOMIC_RELAXED); }                         \
  inline T atomicAnd(T* p, T value) { return __atomic_fetch_and(p, value, __ATOMIC_RELAXED); }                       \
  inline T atomicXor(T* p, T value) { return __atomic_fetch_xor(p, value, __ATOMIC_RELAXED); }                       \
  inline T atomicCAS(T* p, T expected, T value) {                                                                    \
    __atomic_compare_exchange_n(p, &expected, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);                     \
    return expected;                                                                                                 \
  }                                                                                                                  \
  inline T atomicMax(T* p, T value) {                                                                                \
    T old = __atomic_load_n(p, __ATOMIC_RELAXED);                                                                    \
    while (old < value && !__atomic_compare_exchange_n(p, &old, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) { \
    }                                                                                                                \
    return old;                                                                                                      \
  }                                                                                                                  \
  inline T atomicMin(T* p, T value) {                                                                                \
    T old = __atomic_load_n(p, __ATOMIC_RELAXED);                                                                    \
    while (value < old && !__atomic_compare_exchange_n(p, &old, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) { \
    }                                                                                                                \
    return old;                                                                                                      \
  }
ODMOE_SIMULATED_INTEGER_ATOMICS(int)
ODMOE_SIMULATED_INTEGER_ATOMICS(unsigned int)
ODMOE_SIMULATED_INTEGER_ATOMICS(unsigned long long)
#undef ODMOE_SIMULATED_INTEGER_ATOMICS

// The smaller and larger of two, which device code calls without a namespace.
#define ODMOE_SIMULATED_ORDER(T)                   \
  inline T min(T a, T b) { return b < a ? b : a; } \
  inline T max(T a, T b) { return a < b ? b : a; }
ODMOE_SIMULATED_ORDER(int)
ODMOE_SIMULATED_ORDER(unsigned int)
ODMOE_SIMULATED_ORDER(long)
ODMOE_SIMULATED_ORDER(unsigned long)
ODMOE_SIMULATED_ORDER(long long)
ODMOE_SIMULATED_ORDER(unsigned long long)
#undef ODMOE_SIMULATED_ORDER
inline float min(float a, float b) { return std::fmin(a, b); }
inline float max(float a, float b) { return std::fmax(a, b); }
