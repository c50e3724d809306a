// Stand-in for NVIDIA's header of the same name: the language of kernels and the runtime's functions, on the CPU.
#pragma once

#include "cuda_runtime_api.h"
#include "device_functions.h"

#include <new>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace odmoe_simulated {

// A kernel's arguments, which the launch copies as in CUDA, and the call for one thread.
class KernelCall {
 public:
  virtual ~KernelCall() = default;
  virtual void run_thread() const = 0;
  virtual const void* function() const = 0;
  // The arguments that are pointers.
  virtual std::vector<const void*> pointers() const = 0;
};

template <typename... P>
class TypedKernelCall final : public KernelCall {
 public:
  explicit TypedKernelCall(void (*kernel)(P...), P... arguments) : kernel_(kernel), arguments_(arguments...) {}
  void run_thread() const override { std::apply(kernel_, arguments_); }
  const void* function() const override { return reinterpret_cast<const void*>(kernel_); }
  std::vector<const void*> pointers() const override {
    std::vector<const void*> found;
    std::apply([&](const auto&... argument) { (collect(argument, found), ...); }, arguments_);
    return found;
  }

 private:
  template <typename T>
  static void collect(const T& argument, std::vector<const void*>& to) {
    if constexpr (std::is_pointer_v<T>) to.push_back(argument);
  }

  void (*kernel_)(P...);
  std::tuple<P...> arguments_;
};

#pragma GCC visibility push(default)
cudaError_t launch(const cudaLaunchConfig_t* configuration, KernelCall* call);  // takes ownership of the call
#pragma GCC visibility pop

}  // namespace odmoe_simulated

template <typename... P, typename... A>
inline cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* configuration, void (*kernel)(P...), A&&... arguments) {
  static_assert(sizeof...(P) == sizeof...(A), "a kernel is launched with as many arguments as it takes");
  static_assert((std::is_trivially_copyable_v<P> && ...), "a kernel's arguments are copied byte by byte");
  static_assert((sizeof(P) + ... + 0) <= 4096, "a kernel takes 4 KiB of arguments at most");
  return [&](P... coerced) {
    return odmoe_simulated::launch(configuration, new odmoe_simulated::TypedKernelCall<P...>(kernel, coerced...));
  }(std::forward<A>(arguments)...);
}

template <typename T>
inline cudaError_t cudaMalloc(T** pointer, size_t size) {
  return ::cudaMalloc(reinterpret_cast<void**>(pointer), size);
}
template <typename T>
inline cudaError_t cudaHostAlloc(T** pointer, size_t size, unsigned int flags) {
  return ::cudaHostAlloc(reinterpret_cast<void**>(pointer), size, flags);
}
template <typename T>
inline cudaError_t cudaMallocHost(T** pointer, size_t size, unsigned int flags = cudaHostAllocDefault) {
  return ::cudaHostAlloc(reinterpret_cast<void**>(pointer), size, flags);
}
template <typename T>
inline cudaError_t cudaHostGetDevicePointer(T** device, void* host, unsigned int flags) {
  return ::cudaHostGetDevicePointer(reinterpret_cast<void**>(device), host, flags);
}
template <typename T>
inline cudaError_t cudaFuncSetAttribute(T* kernel, cudaFuncAttribute attribute, int value) {
  return ::cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), attribute, value);
}
template <typename T>
inline cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, T* kernel) {
  return ::cudaFuncGetAttributes(attributes, reinterpret_cast<const void*>(kernel));
}
template <typename T>
inline cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, T kernel, int block_size, size_t shared) {
  return ::cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, reinterpret_cast<const void*>(kernel), block_size, shared);
}
inline cudaError_t cudaEventCreate(cudaEvent_t* event, unsigned int flags) { return ::cudaEventCreateWithFlags(event, flags); }
