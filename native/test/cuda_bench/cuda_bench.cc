// odmoe_cuda_bench [--device N] [--smoke] [--json]: measures the CUDA backend on the device that its library opens, and prints a
// table or JSON. --smoke: tiny sizes, to see that it works.
#include "cuda_bench.h"

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>

namespace odmoe::cuda_bench {
namespace {

struct Arguments {
  int device = 0;
  Extent extent = Extent::whole;
  bool json = false;
  bool understood = true;
};

Arguments parse(int count, char** values) {
  Arguments arguments;
  for (int i = 1; i < count; ++i) {
    const std::string word = values[i];
    if (word == "--device" && i + 1 < count) {
      arguments.device = std::atoi(values[++i]);
    } else if (word == "--smoke") {
      arguments.extent = Extent::smoke;
    } else if (word == "--json") {
      arguments.json = true;
    } else {
      arguments.understood = false;
    }
  }
  return arguments;
}

int run(const Arguments& arguments) {
  Bench bench(arguments.device, arguments.extent);
  measure_copies(bench);
  measure_experts(bench);
  measure_recovery(bench);
  measure_paging(bench);
  measure_dense_layer(bench);
  measure_mixers(bench);
  measure_prefill(bench);
  if (arguments.json) {
    print_json(bench);
  } else {
    print_table(bench);
  }
  return 0;
}

}  // namespace
}  // namespace odmoe::cuda_bench

int main(int count, char** values) {
  const auto arguments = odmoe::cuda_bench::parse(count, values);
  if (!arguments.understood) {
    std::fprintf(stderr, "odmoe_cuda_bench [--device N] [--smoke] [--json]\n");
    return 2;
  }
  try {
    return odmoe::cuda_bench::run(arguments);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "odmoe_cuda_bench: %s\n", error.what());
    return 1;
  }
}
