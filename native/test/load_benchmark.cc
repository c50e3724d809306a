// Measures loads of experts, from storage with a limited rate and at full speed; not a test.
#include <algorithm>
#include <chrono>
#include <cstdio>

#include "native_tests.h"
#include "stored_expert.h"

namespace odmoe::test {
namespace {

constexpr ExpertShape kShape{.hidden_size = 2048, .glu = {.intermediate_size = 5632}, .format = WeightFormat::bf16};
constexpr int kShards = 4;
constexpr int kRounds = 15;

const std::pair<CodecKind, const char*> kCodecs[] = {{CodecKind::raw, "raw"},
                                                     {CodecKind::fixed4, "fixed4"},
                                                     {CodecKind::huffman, "huffman"},
                                                     {CodecKind::lz4hc, "lz4hc"},
                                                     {CodecKind::zstd, "zstd"}};

// The fastest of a few loads, one after another, because other work of the machine only makes loads slower.
LoadOutcome measure(const std::shared_ptr<Backend>& backend, const ExpertSource& source, int threads, double storage, bool direct) {
  LoaderOptions options = options_for({source});
  options.decompression_threads = threads;
  options.storage_bytes_per_s = storage;
  options.direct_io = direct;
  ExpertLoader loader(backend, kShape, 1, options);
  ExpertMatrices matrices(backend, kShape);
  LoadOutcome best;
  for (int i = 0; i < kRounds; i++) {
    AwaitedLoad load;
    loader.load(0, matrices, source, {}, load);
    const LoadOutcome outcome = load.wait();
    if (i == 0 || outcome.load_ms < best.load_ms) best = outcome;
  }
  return best;
}

void load_serially(Backend& backend, const TensorSource& source, Matrix& matrix, int64_t first_row, std::vector<uint8_t>& staging) {
  constexpr int64_t kRows = 128;
  staging.resize(staging_bytes(source.split, kRows, source.columns));
  TensorReader reader(source);
  for (int64_t row = 0; row < source.rows; row += kRows) {
    const int64_t rows = std::min(kRows, reader.rows_left());
    const uint8_t* planes[kMaxPlanes] = {};
    reader.read_rows(rows, staging.data(), planes);
    check(backend.write_rows(matrix, first_row + row, rows, source.split, planes), "rows are written");
  }
}

// Reads, decodes and writes in turns on one thread, as for a resident model.
double serial_ms(const std::shared_ptr<Backend>& backend, const ExpertSource& source) {
  ExpertMatrices matrices(backend, kShape);
  std::vector<uint8_t> staging;
  double best = 1e9;
  for (int i = 0; i < kRounds; i++) {
    const auto start = std::chrono::steady_clock::now();
    load_serially(*backend, source.gate, matrices.gate_up.matrix, 0, staging);
    load_serially(*backend, source.up, matrices.gate_up.matrix, source.gate.rows, staging);
    load_serially(*backend, source.down, matrices.down.matrix, 0, staging);
    const std::chrono::duration<double, std::milli> taken = std::chrono::steady_clock::now() - start;
    best = std::min(best, taken.count());
  }
  return best;
}

}  // namespace

void run_load_benchmark() {
  const TestDirectory directory;
  const std::shared_ptr<Backend> backend = open_backend("auto", 1);
  const ExpertValues values = gaussian_weights(kShape, 1);
  const double plain = 3.0 * static_cast<double>(kShape.hidden_size * kShape.glu.intermediate_size) * 2;
  std::printf("%s; an expert of %.0f MB BF16 in %d shards\n%-8s %5s %8s %12s %9s %9s %9s %9s\n",
              backend->info().instruction_set.c_str(), plain * 1e-6, kShards, "codec", "size", "threads", "storage GB/s", "GB/s",
              "load ms", "read ms", "work ms");
  for (const auto& [codec, name] : kCodecs) {
    const ExpertSource source = store_expert(directory.path(name), values, {.codec = codec, .level = 3, .shards = kShards});
    const double serial = serial_ms(backend, source);
    std::printf("%-8s %4.0f%% %8s %12s %9.2f %9.1f\n", name, 100.0 * static_cast<double>(stored_bytes(source)) / plain, "serial",
                "page cache", plain * 1e-6 / serial, serial);
    for (const int threads : {1, 2}) {
      for (const double storage : {1e9, 2e9, 3.5e9, 0.0, -1.0}) {
        const LoadOutcome outcome = measure(backend, source, threads, std::max(storage, 0.0), storage < 0);
        char rate[16];
        std::snprintf(rate, sizeof rate, "%.1f", storage * 1e-9);
        std::printf("%-8s %4.0f%% %8d %12s %9.2f %9.1f %9.1f %9.1f\n", name,
                    100.0 * static_cast<double>(stored_bytes(source)) / plain, threads,
                    storage > 0    ? rate
                    : storage == 0 ? "page cache"
                                   : "direct",
                    plain * 1e-6 / outcome.load_ms, outcome.load_ms, outcome.exponent_read_ms + outcome.sign_mantissa_read_ms,
                    outcome.decompress_ms);
        std::fflush(stdout);
      }
    }
  }
}

}  // namespace odmoe::test
