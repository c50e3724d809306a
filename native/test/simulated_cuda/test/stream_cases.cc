// Streams and events: ordered work, unordered work, and that tests detect the difference.
#include <cstring>
#include <vector>

#include "cases.h"
#include "kernels.h"

namespace {

constexpr int kCount = 64;
constexpr size_t kBytes = kCount * sizeof(float);

float* pinned() {
  float* pointer = nullptr;
  cudaHostAlloc(&pointer, kBytes, cudaHostAllocDefault);
  return pointer;
}

float* on_device() {
  float* pointer = nullptr;
  cudaMalloc(&pointer, kBytes);
  return pointer;
}

void fill(float* values, float value) {
  for (int i = 0; i < kCount; ++i) values[i] = value;
}

bool all_are(const float* values, float value) {
  for (int i = 0; i < kCount; ++i) {
    if (!(values[i] == value)) return false;
  }
  return true;
}

// A copy stream brings 16 inputs, a compute stream adds one to each; events between them, or none.
int copy_and_compute(bool with_event) {
  const cudaStream_t copies = new_stream(), compute = new_stream();
  cudaEvent_t loaded;
  cudaEventCreateWithFlags(&loaded, cudaEventDisableTiming);
  Checks check;
  float* results[16];
  for (int i = 0; i < 16; ++i) {
    float *host = pinned(), *device = on_device();
    results[i] = pinned();
    fill(host, static_cast<float>(i));
    check(cudaMemcpyAsync(device, host, kBytes, cudaMemcpyHostToDevice, copies) == cudaSuccess, "copied");
    check(cudaEventRecord(loaded, copies) == cudaSuccess, "recorded");
    if (with_event) check(cudaStreamWaitEvent(compute, loaded, 0) == cudaSuccess, "waits");
    check(launch_add_one(device, device, kCount, compute) == cudaSuccess, "launched");
    check(cudaMemcpyAsync(results[i], device, kBytes, cudaMemcpyDeviceToHost, compute) == cudaSuccess, "copied back");
  }
  check(cudaStreamSynchronize(compute) == cudaSuccess, "done");
  for (int i = 0; i < 16; ++i) check(all_are(results[i], static_cast<float>(i + 1)), "the right numbers");
  return check.failures();
}

// Copies in one piece, or as rows.
int reuse_pinned(bool after_event, bool as_rows) {
  const cudaStream_t stream = new_stream();
  cudaEvent_t read;
  cudaEventCreateWithFlags(&read, cudaEventDisableTiming | cudaEventBlockingSync);
  float* host = pinned();
  Checks check;
  float* devices[16];
  for (int i = 0; i < 16; ++i) {
    devices[i] = on_device();
    fill(host, static_cast<float>(i));
    if (as_rows) {
      cudaMemcpy2DAsync(devices[i], kBytes / 4, host, kBytes / 4, kBytes / 4, 4, cudaMemcpyHostToDevice, stream);
    } else {
      cudaMemcpyAsync(devices[i], host, kBytes, cudaMemcpyHostToDevice, stream);
    }
    cudaEventRecord(read, stream);
    if (after_event) check(cudaEventSynchronize(read) == cudaSuccess, "event waited for");
  }
  for (int i = 0; i < 16; ++i) {
    std::vector<float> got(kCount);
    cudaMemcpyAsync(got.data(), devices[i], kBytes, cudaMemcpyDeviceToHost, stream);
    check(all_are(got.data(), static_cast<float>(i)), "the numbers that were there at the call");
  }
  return check.failures();
}

}  // namespace

int ordered_streams() { return copy_and_compute(true); }
int missing_event() { return copy_and_compute(false); }
int pinned_reused_early() { return reuse_pinned(false, false); }
int pinned_reused_after_event() { return reuse_pinned(true, false); }
int pinned_rows_reused_early() { return reuse_pinned(false, true); }
int pinned_rows_reused_after_event() { return reuse_pinned(true, true); }

int pageable_reused_early() {
  const cudaStream_t stream = new_stream();
  Checks check;
  for (const size_t count : {size_t{1000}, size_t{100000}}) {  // staged at the call; synchronous
    std::vector<float> host(count, 1.0f), got(count);
    float* device = nullptr;
    cudaMalloc(&device, count * sizeof(float));
    cudaMemcpyAsync(device, host.data(), count * sizeof(float), cudaMemcpyHostToDevice, stream);
    std::memset(host.data(), 0, count * sizeof(float));
    cudaMemcpyAsync(got.data(), device, count * sizeof(float), cudaMemcpyDeviceToHost, stream);
    for (const float value : got) check(value == 1.0f, "the number that was there at the call");
  }
  return check.failures();
}

// cudaMemset is asynchronous, on a stream that others do not wait for.
int memset_beside_stream() {
  const cudaStream_t stream = new_stream();
  Checks check;
  for (int i = 0; i < 8; ++i) {
    float *device = on_device(), *result = pinned();
    cudaMemset(device, 0, kBytes);
    launch_add_one(device, device, kCount, stream);
    cudaMemcpyAsync(result, device, kBytes, cudaMemcpyDeviceToHost, stream);
    cudaStreamSynchronize(stream);
    check(all_are(result, 1.0f), "one more than zero");
  }
  return check.failures();
}

int default_stream() {
  launch_add_one(on_device(), on_device(), kCount, nullptr);
  return 0;
}

int events() {
  Checks check;
  const cudaStream_t stream = new_stream();
  cudaEvent_t start, end, untimed;
  cudaEventCreateWithFlags(&start, cudaEventDefault);
  cudaEventCreateWithFlags(&end, cudaEventDefault);
  cudaEventCreateWithFlags(&untimed, cudaEventDisableTiming);
  check(cudaEventQuery(start) == cudaSuccess, "an event never recorded is done");
  cudaEventRecord(start, stream);
  float* device = on_device();
  launch_add_one(device, device, kCount, stream);
  cudaEventRecord(end, stream);
  cudaEventRecord(untimed, stream);
  check(cudaEventSynchronize(untimed) == cudaSuccess, "waited for");
  check(cudaEventQuery(end) == cudaSuccess && cudaStreamQuery(stream) == cudaSuccess, "nothing is left");
  float milliseconds = -1.0f;
  check(cudaEventElapsedTime(&milliseconds, start, end) == cudaSuccess && milliseconds > 0.0f, "time between two events");
  check(cudaEventElapsedTime(&milliseconds, start, untimed) == cudaErrorInvalidResourceHandle, "no time without timing");
  check(cudaGetLastError() == cudaErrorInvalidResourceHandle && cudaGetLastError() == cudaSuccess, "the last error, once");
  check(cudaEventDestroy(start) == cudaSuccess && cudaEventRecord(start, stream) == cudaErrorInvalidResourceHandle,
        "a destroyed event");
  check(cudaStreamDestroy(stream) == cudaSuccess && cudaStreamSynchronize(stream) == cudaErrorInvalidResourceHandle,
        "a destroyed stream");
  check(launch_add_one(device, device, kCount, stream) == cudaErrorInvalidResourceHandle, "a launch on it");
  return check.failures();
}
