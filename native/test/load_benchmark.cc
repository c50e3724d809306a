// Speeds of loading experts: storage that is held back to a rate, and as fast as it is; not a test.
#include <algorithm>
#include <cstdio>

#include "native_tests.h"
#include "stored_expert.h"

namespace odmoe::test {
namespace {

constexpr ExpertShape kShape{.hidden_size = 2048, .intermediate_size = 5632, .format = WeightFormat::bf16};
constexpr int kShards = 4;
constexpr int kRounds = 7;

const std::pair<CodecKind, const char*> kCodecs[] = {{CodecKind::raw, "raw"},
                                                     {CodecKind::fixed4, "fixed4"},
                                                     {CodecKind::huffman, "huffman"},
                                                     {CodecKind::lz4hc, "lz4hc"},
                                                     {CodecKind::zstd, "zstd"}};

// The median load of a few, one after another.
LoadOutcome measure(const std::shared_ptr<Backend>& backend, const ExpertSource& source, int threads, double storage,
                    bool direct) {
  LoaderOptions options = options_for({source});
  options.decompression_threads = threads;
  options.storage_bytes_per_s = storage;
  options.direct_io = direct;
  ExpertLoader loader(backend, kShape, 1, options);
  ExpertMatrices matrices(backend, kShape);
  std::vector<LoadOutcome> outcomes;
  for (int i = 0; i < kRounds; i++) {
    AwaitedLoad load;
    loader.load(0, matrices, source, {}, load);
    outcomes.push_back(load.wait());
  }
  std::sort(outcomes.begin(), outcomes.end(), [](const LoadOutcome& a, const LoadOutcome& b) { return a.load_ms < b.load_ms; });
  return outcomes[kRounds / 2];
}

}  // namespace

void run_load_benchmark() {
  const TestDirectory directory;
  const std::shared_ptr<Backend> backend = open_backend("auto", 1);
  const ExpertValues values = gaussian_weights(kShape, 1);
  const double plain = 3.0 * static_cast<double>(kShape.hidden_size * kShape.intermediate_size) * 2;
  std::printf("%s; an expert of %.0f MB BF16 in %d shards\n%-8s %5s %8s %12s %9s %9s %9s %9s\n",
              backend->info().instruction_set.c_str(), plain * 1e-6, kShards, "codec", "size", "threads", "storage GB/s",
              "GB/s", "load ms", "read ms", "work ms");
  for (const auto& [codec, name] : kCodecs) {
    const ExpertSource source =
        store_expert(directory.path(name), values, {.codec = codec, .level = 3, .shards = kShards});
    for (const int threads : {1, 2}) {
      for (const double storage : {1e9, 2e9, 3.5e9, 0.0, -1.0}) {
        const LoadOutcome outcome = measure(backend, source, threads, std::max(storage, 0.0), storage < 0);
        char rate[16];
        std::snprintf(rate, sizeof rate, "%.1f", storage * 1e-9);
        std::printf("%-8s %4.0f%% %8d %12s %9.2f %9.1f %9.1f %9.1f\n", name,
                    100.0 * static_cast<double>(stored_bytes(source)) / plain, threads,
                    storage > 0 ? rate : storage == 0 ? "page cache" : "direct", plain * 1e-6 / outcome.load_ms,
                    outcome.load_ms, outcome.exponent_read_ms + outcome.sign_mantissa_read_ms, outcome.decompress_ms);
        std::fflush(stdout);
      }
    }
  }
}

}  // namespace odmoe::test
