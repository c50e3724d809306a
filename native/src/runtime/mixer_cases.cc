// Cases of matrix products, attention and recurrences.
#include <algorithm>

#include "operator_cases.h"
#include "random_block_rows.h"

namespace odmoe {
namespace {

constexpr double kExp = 15;
// Additions that fold a dot product's partial sums.
constexpr double kFold = kLanes - 1;
constexpr int64_t kBlockRows = 64;
constexpr uint32_t kBlockSeed = 1;

int64_t turns_of(int64_t bytes) { return std::max<int64_t>(1, kTurnBytes / bytes); }

// Matrices of one shape that a call multiplies: `products` of them, each with its own rows.
struct ProductSizes {
  const char* operation;
  const char* model;
  WeightFormat format;
  Split split;
  int products;
  int64_t rows;
  int64_t columns;
  int n;
};

struct Weights {
  std::vector<DeviceMemory> memory;
  std::vector<Matrix> matrices;
};

// Writes a few rows over and over.
void write_blocks(Backend& backend, Matrix& matrix, const BlockRows& blocks) {
  const uint8_t* const planes[] = {blocks.at(0, 0), plane_count(blocks.split) == 2 ? blocks.at(1, 0) : nullptr};
  for (int64_t row = 0; row < matrix.rows; row += blocks.rows) {
    backend.write_rows(matrix, row, std::min(blocks.rows, matrix.rows - row), blocks.split, planes);
  }
}

// Makes as many matrices as fill kTurnBytes, all with the same values.
std::shared_ptr<Weights> weights_of(const std::shared_ptr<Backend>& backend, const ProductSizes& sizes) {
  auto weights = std::make_shared<Weights>();
  const uint64_t bytes = backend->matrix_bytes(sizes.format, sizes.rows, sizes.columns);
  const int64_t count = turns_of(static_cast<int64_t>(bytes) * sizes.products) * sizes.products;
  // BF16 values from about 0.03 to 2, or arbitrary codes; scales are small powers of two, or small numbers.
  std::vector<uint16_t> values(static_cast<size_t>(sizes.columns));
  for (size_t i = 0; i < values.size(); i++) values[i] = static_cast<uint16_t>(0x3d00 + i * 7 % 256 + (i % 3 == 0 ? 0x8000 : 0));
  const std::vector<uint8_t> scales(static_cast<size_t>(sizes.columns), 0x3c);
  const BlockRows blocks =
      is_blocks(sizes.split) ? random_block_rows(sizes.split, kBlockRows, sizes.columns, kBlockSeed) : BlockRows{};
  const uint8_t* const planes[kMaxPlanes] = {reinterpret_cast<const uint8_t*>(values.data()), scales.data(), nullptr};
  for (int64_t i = 0; i < count; i++) {
    DeviceMemory& memory = weights->memory.emplace_back(backend, bytes);
    Matrix& matrix = weights->matrices.emplace_back(Matrix{sizes.format, sizes.rows, sizes.columns, memory.buffer()});
    if (is_blocks(sizes.split)) {
      write_blocks(*backend, matrix, blocks);
      continue;
    }
    for (int64_t row = 0; row < sizes.rows; row++) backend->write_rows(matrix, row, 1, sizes.split, planes);
  }
  return weights;
}

OperatorCaseMaker product_case(const ProductSizes& sizes) {
  return [=](const OperatorPools& pools) {
    const auto weights = weights_of(pools.backend, sizes);
    const double bytes = static_cast<double>(weights->memory.front().buffer().bytes) * sizes.products;
    const double dots = static_cast<double>(sizes.rows) * sizes.products * sizes.n;
    const std::string many = sizes.products == 1 ? "" : std::to_string(sizes.products) + " of ";
    Backend* const backend = pools.backend.get();
    float* const in = pools.inputs.floats();
    float* const out = pools.outputs.floats();
    return OperatorCase{sizes.operation,
                        std::string(sizes.model) + ", " + many + std::to_string(sizes.rows) + " x " + std::to_string(sizes.columns),
                        sizes.n,
                        bytes,
                        dots * (static_cast<double>(sizes.columns) + kFold),
                        static_cast<int64_t>(weights->matrices.size()) / sizes.products,
                        [=](int64_t turn) {
                          std::vector<Product> products;
                          for (int64_t i = 0; i < sizes.products; i++) {
                            products.push_back({out + i * sizes.n * sizes.rows, sizes.rows,
                                                &weights->matrices[static_cast<size_t>(turn * sizes.products + i)],
                                                in + i * sizes.n * sizes.columns, sizes.columns, sizes.n});
                          }
                          backend->multiply(products.data(), sizes.products);
                        }};
  };
}

constexpr auto kKimiCodes = static_cast<Split>(grouped_bits({4, ScaleType::bf16, false, 32, 0}));

OperatorCaseMaker block_case(const char* operation, const char* model, Split split, int products, int64_t rows, int64_t columns,
                             int n) {
  return product_case({operation, model, static_cast<WeightFormat>(split), split, products, rows, columns, n});
}

struct AttentionSizes {
  const char* operation;
  const char* model;
  AttentionShape shape;
  int positions;
  int rows;
};

// Block pointers of each turn, cut from the inputs.
struct Caches {
  std::vector<float*> keys;
  std::vector<float*> values;
};

// `count` blocks one behind another, each with floats for keys and then for values.
std::shared_ptr<Caches> cut_caches(const OperatorPools& pools, int64_t count, int64_t key_floats, int64_t value_floats) {
  auto caches = std::make_shared<Caches>();
  for (int64_t i = 0; i < count; i++) {
    float* const block = pools.inputs.floats() + i * (key_floats + value_floats);
    caches->keys.push_back(block);
    caches->values.push_back(block + key_floats);
  }
  return caches;
}

OperatorCaseMaker attention_case(const AttentionSizes& sizes) {
  return [=](const OperatorPools& pools) {
    const AttentionShape& shape = sizes.shape;
    const int64_t key_floats = int64_t{shape.kv_heads} * kAttentionChunk * shape.head_dim;
    const int64_t value_floats = shape.values_in_keys ? 0 : int64_t{shape.kv_heads} * kAttentionChunk * shape.value_dim;
    const int64_t blocks = (sizes.positions + kAttentionChunk - 1) / kAttentionChunk;
    const int64_t turns = turns_of(blocks * (key_floats + value_floats) * 4);
    const auto caches = cut_caches(pools, turns * blocks, key_floats, value_floats);
    const int visible = shape.sliding_window > 0 ? std::min(shape.sliding_window, sizes.positions) : sizes.positions;
    const double pairs = static_cast<double>(visible) * shape.heads * sizes.rows;
    // Keys are read for the scores, and values once the greatest score is known, even where the values are in the keys.
    const double position_bytes = 4.0 * shape.kv_heads * (shape.head_dim + shape.value_dim);
    float* const in = pools.inputs.floats();
    float* const out = pools.outputs.floats();
    Backend* const backend = pools.backend.get();
    return OperatorCase{sizes.operation,
                        std::string(sizes.model) + ", " + std::to_string(shape.heads) + "/" + std::to_string(shape.kv_heads) +
                            " x " + std::to_string(shape.head_dim) + ", " + std::to_string(visible) + " positions",
                        sizes.rows,
                        position_bytes * visible,
                        pairs * (shape.head_dim + kFold + shape.value_dim + kExp + 4),
                        turns,
                        [=](int64_t turn) {
                          std::vector<AttentionRow> rows;
                          const KeyValueLayer cache{caches->keys.data() + turn * blocks, caches->values.data() + turn * blocks};
                          for (int i = 0; i < sizes.rows; i++) rows.push_back({cache, sizes.positions - sizes.rows + i});
                          AttentionShape with_sinks = sizes.shape;
                          if (shape.sliding_window > 0) with_sinks.sinks = in;
                          backend->attention(out, rows.data(), in, int64_t{shape.heads} * shape.head_dim, sizes.rows, with_sinks);
                        }};
  };
}

OperatorCaseMaker convolution_case(const char* model, int64_t channels, int taps, bool silu, int rows) {
  return [=](const OperatorPools& pools) {
    // Each turn has an input, and a tail behind its output.
    const int64_t in_floats = channels * (rows + taps);
    const int64_t out_floats = channels * (rows + taps - 1);
    float* const in = pools.inputs.floats();
    float* const out = pools.outputs.floats();
    Backend* const backend = pools.backend.get();
    return OperatorCase{"convolve",
                        std::string(model) + ", " + std::to_string(taps) + " taps of " + std::to_string(channels),
                        rows,
                        4.0 * static_cast<double>(channels) * (2 * rows + taps + 2 * (taps - 1)),
                        static_cast<double>(channels) * rows * (taps + (silu ? kExp + 3 : 0)),
                        turns_of(4 * in_floats),
                        [=](int64_t turn) {
                          float* const to = out + turn * out_floats;
                          const float* const from = in + turn * in_floats;
                          const ConvolutionWork work{
                              to,   channels, from,     channels, to + rows * channels, from + rows * channels,
                              rows, taps,     channels, silu};
                          backend->convolve(&work, 1);
                        }};
  };
}

// The delta rule of Qwen3-Next, or that of Kimi-Linear, whose decay is of each channel.
OperatorCaseMaker delta_case(int rows, bool by_channel) {
  return [=](const OperatorPools& pools) {
    constexpr int kValueHeads = 32;
    constexpr int kDim = 128;
    const int key_heads = by_channel ? kValueHeads : 16;
    const int64_t state_floats = int64_t{kValueHeads} * kDim * kDim;
    const int64_t row_floats = int64_t{2 * key_heads + kValueHeads} * kDim;
    const int64_t decays = int64_t{kValueHeads} * (by_channel ? kDim : 1);
    float* const in = pools.inputs.floats();
    float* const states = pools.outputs.floats();
    const auto out = std::make_shared<DeviceMemory>(pools.backend, float_bytes(int64_t{rows} * kValueHeads * kDim));
    Backend* const backend = pools.backend.get();
    return OperatorCase{
        by_channel ? "delta_rule, by channel" : "delta_rule",
        std::string(by_channel ? "Kimi-Linear" : "Qwen3-Next") + ", 32 heads of 128 x 128",
        rows,
        4.0 * (2.0 * static_cast<double>(state_floats) + rows * static_cast<double>(row_floats + decays + kValueHeads * kDim)),
        4.0 * static_cast<double>(state_floats) * rows,
        turns_of(4 * state_floats),
        [=](int64_t turn) {
          const float* const keys = in + int64_t{key_heads} * kDim;
          const float* const values = keys + int64_t{key_heads} * kDim;
          const DeltaWork work{out->floats(),
                               int64_t{kValueHeads} * kDim,
                               in,
                               keys,
                               values,
                               row_floats,
                               in,
                               in,
                               decays,
                               in,
                               in,
                               states + turn * state_floats,
                               rows,
                               key_heads,
                               kValueHeads,
                               kDim,
                               kDim,
                               false,
                               false,
                               by_channel};
          backend->delta_rule(&work, 1);
        }};
  };
}

OperatorCaseMaker decay_case(int rows) {
  return [=](const OperatorPools& pools) {
    constexpr int kHeads = 32;
    constexpr int kDim = 128;
    const int64_t values = int64_t{kHeads} * kDim;
    const auto turns = turns_of(4 * rows * values);
    float* const out = pools.outputs.floats();
    const float* const in = pools.inputs.floats();
    Backend* const backend = pools.backend.get();
    return OperatorCase{
        "channel_decay",
        "Kimi-Linear, 32 heads of 128",
        rows,
        8.0 * static_cast<double>(rows * values),
        (3 * kExp + 3) * static_cast<double>(rows * values),
        turns,
        [=](int64_t turn) {
          backend->channel_decay(
              {.decays = {out + turn * rows * values, values, kDim, rows, kHeads, kDim}, .decay_log = in, .decay_bias = in});
        }};
  };
}

OperatorCaseMaker state_space_case(int rows) {
  return [=](const OperatorPools& pools) {
    constexpr int kGroups = 8;
    constexpr int kHeads = 64;
    constexpr int kState = 128;
    constexpr int kDim = 64;
    const int64_t inner = int64_t{kHeads} * kDim;
    const int64_t state_floats = inner * kState;
    const int64_t row_floats = inner + 2 * kGroups * kState;
    const float* const in = pools.inputs.floats();
    float* const states = pools.outputs.floats();
    const auto out = std::make_shared<DeviceMemory>(pools.backend, float_bytes(rows * inner));
    Backend* const backend = pools.backend.get();
    return OperatorCase{"state_space",
                        "Nemotron-3-Nano, 64 heads of 64 x 128",
                        rows,
                        4.0 * (2.0 * static_cast<double>(state_floats) + rows * static_cast<double>(row_floats + inner)),
                        3.0 * static_cast<double>(state_floats) * rows,
                        turns_of(4 * state_floats),
                        [=](int64_t turn) {
                          const StateSpaceWork work{
                              out->floats(), inner,  in,  in + inner, in + inner + kGroups * kState, row_floats, in,
                              kHeads,        in,     in,  in,         states + turn * state_floats,  rows,       kGroups,
                              kHeads,        kState, kDim};
                          backend->state_space(&work, 1);
                        }};
  };
}

// The choice of positions, and copies of the latents there.
OperatorCaseMaker choice_case(int positions, int rows) {
  return [=](const OperatorPools& pools) {
    constexpr int kHeads = 64;
    constexpr int kDim = 128;
    constexpr int kLatent = 576;
    constexpr int kCount = 2048;
    const int64_t blocks = (positions + kAttentionChunk - 1) / kAttentionChunk;
    const int64_t key_floats = int64_t{kAttentionChunk} * kDim;
    const int64_t latent_floats = int64_t{kAttentionChunk} * kLatent;
    const int64_t turns = turns_of(blocks * (key_floats + latent_floats) * 4);
    const auto caches = cut_caches(pools, turns * blocks, key_floats, latent_floats);
    const auto chosen = std::make_shared<DeviceMemory>(pools.backend, float_bytes(int64_t{rows} * kCount));
    const auto gathered = std::make_shared<DeviceMemory>(pools.backend, float_bytes(rows * gathered_floats(kCount, kLatent)));
    const double pairs = static_cast<double>(positions) * kHeads * rows;
    const float* const in = pools.inputs.floats();
    Backend* const backend = pools.backend.get();
    return OperatorCase{"choose positions",
                        "DeepSeek-V3.2, 64 x 128, 2048 of " + std::to_string(positions) + " positions",
                        rows,
                        4.0 * positions * kDim + 8.0 * rows * kCount * kLatent,
                        pairs * (kDim + kFold + 1),
                        turns,
                        [=](int64_t turn) {
                          std::vector<AttentionRow> index_rows;
                          std::vector<AttentionRow> latent_rows;
                          for (int i = 0; i < rows; i++) {
                            index_rows.push_back({{caches->keys.data() + turn * blocks, nullptr}, positions - rows + i});
                            latent_rows.push_back({{caches->values.data() + turn * blocks, nullptr}, positions - rows + i});
                          }
                          auto* const places = reinterpret_cast<int32_t*>(chosen->bytes());
                          backend->choose_positions({places, index_rows.data(), in, in, rows, kHeads, kDim, kCount});
                          backend->gather_keys(gathered->floats(), latent_rows.data(), places, rows, kCount, kLatent);
                        }};
  };
}

// The choice of blocks by each key-value head, and copies of its keys and values there.
OperatorCaseMaker block_choice_case(int positions, int rows) {
  return [=](const OperatorPools& pools) {
    constexpr int kHeads = 4;
    constexpr int kDim = 128;
    constexpr int kBlockSize = 128;
    constexpr int kBlocks = 16;
    constexpr int kCount = kBlocks * kBlockSize;
    const int64_t blocks = (positions + kAttentionChunk - 1) / kAttentionChunk;
    const int64_t block_floats = int64_t{kAttentionChunk} * kDim;
    // The index keys, then the keys of each head; values are copied as keys are.
    const int64_t turns = turns_of(blocks * block_floats * (1 + kHeads) * 4);
    auto caches = std::make_shared<Caches>();
    for (int64_t i = 0; i < turns * blocks * (1 + kHeads); i++) caches->keys.push_back(pools.inputs.floats() + i * block_floats);
    const auto chosen = std::make_shared<DeviceMemory>(pools.backend, float_bytes(int64_t{rows} * kHeads * kCount));
    const auto gathered = std::make_shared<DeviceMemory>(pools.backend, float_bytes(rows * kHeads * gathered_floats(kCount, kDim)));
    const double pairs = static_cast<double>(positions) * kHeads * rows;
    const float* const in = pools.inputs.floats();
    Backend* const backend = pools.backend.get();
    return OperatorCase{"choose blocks",
                        "MiniMax-M3, 4 x 128, 16 blocks of 128 of " + std::to_string(positions) + " positions",
                        rows,
                        4.0 * positions * kDim + 2 * 8.0 * rows * kHeads * kCount * kDim,
                        pairs * (kDim + kFold + 1),
                        turns,
                        [=](int64_t turn) {
                          float* const* const first = caches->keys.data() + turn * blocks * (1 + kHeads);
                          std::vector<AttentionRow> index_rows;
                          std::vector<AttentionRow> head_rows;
                          for (int i = 0; i < rows; i++) {
                            const int position = positions - rows + i;
                            index_rows.push_back({{first, nullptr}, position});
                            for (int head = 0; head < kHeads; head++) {
                              head_rows.push_back({{first + (1 + head) * blocks, nullptr}, position});
                            }
                          }
                          auto* const places = reinterpret_cast<int32_t*>(chosen->bytes());
                          backend->choose_blocks({places, index_rows.data(), in, rows, kHeads, kDim, kBlockSize, kBlocks, 1});
                          for (int copy = 0; copy < 2; copy++) {
                            backend->gather_keys(gathered->floats(), head_rows.data(), places, rows * kHeads, kCount, kDim);
                          }
                        }};
  };
}

// Entries of the pools that `rows` rows end, and what as many rows see of `positions` positions.
OperatorCaseMaker pool_case(int pool, bool overlaps, int positions, int rows) {
  return [=](const OperatorPools& pools) {
    constexpr int kDim = 512;
    constexpr int kWindow = 128;
    constexpr int kEntries = 512;
    const int parts = overlaps ? 2 : 1;
    const int64_t blocks = (positions + kAttentionChunk - 1) / kAttentionChunk;
    const int64_t key_floats = int64_t{kAttentionChunk} * kDim;
    const int64_t entry_floats = 2 * parts * key_floats;
    const int64_t turns = turns_of(blocks * (key_floats + entry_floats) * 4);
    const auto caches = cut_caches(pools, turns * blocks, key_floats, entry_floats);
    const int entries = std::min(kEntries, positions / pool);
    const int64_t stride = gathered_floats(entries + kWindow, kDim);
    const auto seen = std::make_shared<DeviceMemory>(pools.backend, float_bytes(rows * stride));
    const auto chosen = std::make_shared<DeviceMemory>(pools.backend, float_bytes(int64_t{rows} * entries));
    const float* const in = pools.inputs.floats();
    float* const out = pools.outputs.floats();
    Backend* const backend = pools.backend.get();
    const double terms = static_cast<double>(rows) * parts * pool * kDim;
    return OperatorCase{"pools",
                        "DeepSeek-V4, of " + std::to_string(pool) + " of " + std::to_string(positions) + " positions",
                        rows,
                        8.0 * terms + 8.0 * rows * (entries + kWindow) * kDim,
                        terms * (kExp + 3),
                        turns,
                        [=](int64_t turn) {
                          float* const* const keys = caches->keys.data() + turn * blocks;
                          float* const* const values = caches->values.data() + turn * blocks;
                          std::vector<AttentionRow> ending;
                          std::vector<AttentionRow> seeing;
                          for (int i = 0; i < rows; i++) {
                            ending.push_back({{values, nullptr}, positions - i % (positions / pool) * pool - 1});
                            seeing.push_back({{keys, values}, positions - rows + i});
                          }
                          backend->pool({out, ending.data(), in, rows, kDim, pool, overlaps});
                          SeenWork work{seen->floats(), stride, seeing.data()};
                          work.chosen = reinterpret_cast<const int32_t*>(chosen->bytes());
                          work.n = rows;
                          work.size = kDim;
                          work.positions = pool;
                          work.entries = entries;
                          work.window = kWindow;
                          backend->gather_seen(work);
                        }};
  };
}

// The choice of whole pools of positions, and copies of the latents of their positions and of the row's own pool. The sizes are those that
// transformers' config has by default.
OperatorCaseMaker pool_choice_case(int pool, int positions, int rows) {
  return [=](const OperatorPools& pools) {
    constexpr int kHeads = 32;
    constexpr int kDim = 128;
    constexpr int kLatent = 512;
    constexpr int kCount = 2048;
    const int choices = kCount / pool;
    const int complete = positions / pool;
    const int64_t blocks = (positions + kAttentionChunk - 1) / kAttentionChunk;
    const int64_t key_floats = int64_t{kAttentionChunk} * kDim;
    const int64_t latent_floats = int64_t{kAttentionChunk} * kLatent;
    const int64_t turns = turns_of(blocks * (key_floats + latent_floats) * 4);
    const auto caches = cut_caches(pools, turns * blocks, key_floats, latent_floats);
    const auto entries = std::make_shared<DeviceMemory>(pools.backend, float_bytes(gathered_floats(complete, kDim)));
    const int64_t stride = gathered_floats(kCount + pool - 1, kLatent);
    const auto chosen = std::make_shared<DeviceMemory>(pools.backend, float_bytes(int64_t{rows} * choices));
    const auto seen = std::make_shared<DeviceMemory>(pools.backend, float_bytes(rows * stride));
    const double pairs = static_cast<double>(complete) * kHeads * rows;
    const float* const in = pools.inputs.floats();
    Backend* const backend = pools.backend.get();
    return OperatorCase{
        "choose pools",
        "GLM-5-Next, 32 x 128, 2048 of " + std::to_string(positions) + " positions in pools of " + std::to_string(pool),
        rows,
        4.0 * complete * kDim * 3 + 8.0 * rows * kCount * kLatent,
        pairs * (kDim + kFold + 1),
        turns,
        [=](int64_t turn) {
          float* const* const index_keys = caches->keys.data() + turn * blocks;
          const AttentionRow last{{index_keys, index_keys}, positions - 1};
          SeenWork all{entries->floats(), 0, &last};
          all.n = 1;
          all.size = kDim;
          all.positions = pool;
          all.entries = complete;
          backend->gather_seen(all);
          std::vector<float*> keys;
          for (int entry = 0; entry < complete; entry += kAttentionChunk) keys.push_back(all.out + int64_t{entry} * kDim);
          std::vector<AttentionRow> choosing;
          std::vector<AttentionRow> seeing;
          for (int i = 0; i < rows; i++) {
            const int position = positions - rows + i;
            choosing.push_back({{keys.data(), nullptr}, (position + 1) / pool - 1});
            seeing.push_back({{caches->values.data() + turn * blocks, nullptr}, position});
          }
          auto* const places = reinterpret_cast<int32_t*>(chosen->bytes());
          backend->choose_positions({places, choosing.data(), in, in, rows, kHeads, kDim, choices});
          SeenWork work{seen->floats(), stride, seeing.data(), places};
          work.n = rows;
          work.size = kLatent;
          work.positions = pool;
          work.entries = choices;
          work.whole_pools = true;
          backend->gather_seen(work);
        }};
  };
}

AttentionShape attention_shape(int heads, int kv_heads, int head_dim, int window) {
  return {heads, kv_heads, head_dim, head_dim, false, window, 0.125f, nullptr};
}

}  // namespace

std::vector<OperatorCaseMaker> mixer_cases() {
  const AttentionShape qwen3 = attention_shape(32, 4, 128, 0);
  const AttentionShape gpt_oss = attention_shape(64, 8, 64, 128);
  const AttentionShape latent{16, 1, 576, 512, true, 0, 0.125f, nullptr};
  const AttentionShape large_latent{128, 1, 576, 512, true, 0, 0.125f, nullptr};
  return {
      attention_case({"attention", "Qwen3-30B", qwen3, 4096, 1}),
      attention_case({"attention", "Qwen3-30B", qwen3, 4096, 16}),
      attention_case({"attention, sinks", "gpt-oss-20b", gpt_oss, 4096, 1}),
      attention_case({"attention, latent", "DeepSeek-V2-Lite", latent, 4096, 1}),
      attention_case({"attention, latent", "DeepSeek-V2-Lite", latent, 4096, 16}),
      attention_case({"attention, latent", "DeepSeek-V3", large_latent, 1024, 1}),
      choice_case(8192, 1),
      choice_case(8192, 4),
      pool_case(4, true, 8192, 1),
      pool_case(128, false, 8192, 1),
      pool_choice_case(16, 8192, 1),
      pool_choice_case(16, 8192, 4),
      block_choice_case(8192, 1),
      block_choice_case(8192, 4),
      delta_case(1, false),
      delta_case(64, false),
      delta_case(1, true),
      delta_case(64, true),
      decay_case(1),
      decay_case(64),
      state_space_case(1),
      state_space_case(64),
      convolution_case("Qwen3-Next", 8192, 4, true, 1),
      convolution_case("Qwen3-Next", 8192, 4, true, 256),
      convolution_case("LFM2-8B", 2048, 3, false, 256),
  };
}

std::vector<OperatorCaseMaker> product_cases() {
  const auto bf16 = [](const char* operation, const char* model, int products, int64_t rows, int64_t columns, int n) {
    return product_case({operation, model, WeightFormat::bf16, Split::none_bf16, products, rows, columns, n});
  };
  const auto fixed4 = [](int n) {
    return product_case({"multiply, fixed4", "Qwen3-30B, queries", WeightFormat::fixed4, Split::none_bf16, 1, 4096, 2048, n});
  };
  return {
      bf16("multiply", "Qwen3-30B, queries", 1, 4096, 2048, 1),
      bf16("multiply", "Qwen3-30B, queries", 1, 4096, 2048, 2),
      bf16("multiply", "Qwen3-30B, queries", 1, 4096, 2048, 4),
      bf16("multiply", "Qwen3-30B, queries", 1, 4096, 2048, 8),
      bf16("multiply", "Qwen3-30B, queries", 1, 4096, 2048, 16),
      fixed4(1),
      fixed4(2),
      fixed4(4),
      fixed4(8),
      fixed4(16),
      bf16("multiply", "Qwen3-30B, queries", 1, 4096, 2048, 64),
      bf16("multiply", "Qwen3-30B, router", 1, 128, 2048, 1),
      bf16("multiply", "Qwen3-30B, gate and up of experts", 8, 1536, 2048, 1),
      bf16("multiply", "Qwen3-30B, down of experts", 8, 2048, 768, 1),
      product_case({"multiply, mxfp4", "gpt-oss-20b, gate and up of experts", WeightFormat::mxfp4, Split::mxfp4, 4, 5760, 2880, 1}),
      product_case(
          {"multiply, mxfp4", "gpt-oss-20b, gate and up of an expert", WeightFormat::mxfp4, Split::mxfp4, 1, 5760, 2880, 16}),
      product_case({"multiply, fp8", "DeepSeek-V3, gate and up of an expert", WeightFormat::fp8, Split::fp8, 1, 4096, 7168, 1}),
      product_case({"multiply, fp8", "DeepSeek-V3, gate and up of an expert", WeightFormat::fp8, Split::fp8, 1, 4096, 7168, 16}),
      block_case("multiply, q4_k", "Qwen3-30B, gate and up of experts", Split::q4_k, 8, 1536, 2048, 1),
      block_case("multiply, q4_k", "Qwen3-30B, gate and up of an expert", Split::q4_k, 1, 1536, 2048, 16),
      block_case("multiply, q6_k", "Qwen3-30B, gate and up of experts", Split::q6_k, 8, 1536, 2048, 1),
      block_case("multiply, q8_0", "Qwen3-30B, gate and up of experts", Split::q8_0, 8, 1536, 2048, 1),
      block_case("multiply, grouped4", "Kimi-K2, gate and up of an expert", kKimiCodes, 1, 4096, 7168, 1),
      block_case("multiply, grouped4", "Kimi-K2, gate and up of an expert", kKimiCodes, 1, 4096, 7168, 16),
      block_case("multiply, nvfp4", "DeepSeek-R1, gate and up of an expert", Split::nvfp4_multiplied, 1, 4096, 7168, 1),
      block_case("multiply, fp8_row", "GLM-4.5, gate and up of an expert", Split::fp8_row, 1, 2816, 4096, 1),
      bf16("multiply", "DeepSeek-V2-Lite, key expansion", 16, 512, 128, 1),
      bf16("multiply", "DeepSeek-V2-Lite, key expansion", 16, 512, 128, 64),
      bf16("multiply", "DeepSeek-V2-Lite, value expansion", 16, 128, 512, 1),
  };
}

}  // namespace odmoe
