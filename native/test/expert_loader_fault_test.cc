// The loader with faults and cancels: damaged files, missing files, cancelled loads, its own end.
#include <filesystem>
#include <fstream>
#include <thread>

#include "native_tests.h"
#include "odmoe/error.h"
#include "stored_expert.h"

namespace odmoe::test {
namespace {

constexpr ExpertShape kShape{.hidden_size = 160, .glu = {.intermediate_size = 224}, .format = WeightFormat::bf16};
constexpr double kSlow = 3e5;  // bytes a second: a load lasts about 0.5 s

uint64_t file_bytes(const std::string& path) { return std::filesystem::file_size(path); }

void change_byte(const std::string& path, uint64_t offset, uint8_t mask) {
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  file.seekg(static_cast<std::streamoff>(offset));
  const char byte = static_cast<char>(file.get() ^ mask);
  file.seekp(static_cast<std::streamoff>(offset));
  file.put(byte);
}

// Two experts on the disk, and two slots.
struct Setting {
  explicit Setting(const StoredForm& form, double bytes_per_s = 0, int exponent_entries = 0)
      : values(gaussian_weights(kShape, 6)),
        first(store_expert(directory.path("first"), values, form)),
        second(store_expert(directory.path("second"), values, form)),
        expected(expected_matrices(backend, values, form.split)) {
    LoaderOptions options = options_for({first, second});
    options.storage_bytes_per_s = bytes_per_s;
    options.exponent_entries = exponent_entries;
    loader = std::make_unique<ExpertLoader>(backend, kShape, 2, options);
    for (int i = 0; i < 2; i++) matrices.emplace_back(backend, kShape);
  }

  void begin(size_t slot, const ExpertSource& source, const LoadRequest& request = {}) {
    loads[slot].reuse();
    loader->load(static_cast<int>(slot), matrices[slot], source, request, loads[slot]);
  }

  void check_loads(size_t slot, const ExpertSource& source) {
    begin(slot, source);
    check(loads[slot].wait().loaded, "loaded");
    check_same_matrices(matrices[slot], expected, "a load");
  }

  std::shared_ptr<Backend> backend = open_backend("auto");
  TestDirectory directory;
  ExpertValues values;
  ExpertSource first;
  ExpertSource second;
  ExpertMatrices expected;
  std::vector<ExpertMatrices> matrices;
  AwaitedLoad loads[2];
  std::unique_ptr<ExpertLoader> loader;  // destroyed before the memory to which it writes
};

// If any byte of any chunk is damaged, the load fails with PACK_CORRUPT, and no other load fails.
void finds_every_damage(CodecKind codec) {
  Setting setting({.codec = codec, .shards = 3}, 0, 1);
  std::mt19937 random(8);
  const std::string path = setting.directory.path("first");
  for (int i = 0; i < 60; i++) {
    const TensorSource* const tensors[] = {&setting.first.gate, &setting.first.up, &setting.first.down};
    const std::vector<ChunkLocation>& chunks = tensors[random() % 3]->chunks;
    const ChunkLocation& chunk = chunks[random() % chunks.size()];
    // The place is often in the header and tables of a coded chunk.
    const uint64_t offset = chunk.offset_bytes + random() % (i % 2 == 0 ? 40 : chunk.stored_bytes);
    const auto mask = static_cast<uint8_t>(1 + random() % 255);
    change_byte(path, offset, mask);
    LoadRequest keeping;
    keeping.exponents.entry = 0;
    setting.begin(0, setting.first, keeping);
    setting.begin(1, setting.second);
    check_refused(ErrorCode::pack_corrupt, [&] { setting.loads[0].wait(); });
    check(setting.loads[1].wait().loaded, "the other load");
    check_refused(ErrorCode::internal, [&] {
      LoadRequest taking;
      taking.exponents = {PartOrigin::entry, 0};
      setting.begin(0, setting.first, taking);
    });
    change_byte(path, offset, mask);
  }
  setting.check_loads(0, setting.first);
}

void tells_what_is_wrong_with_files() {
  Setting setting({.codec = CodecKind::zstd, .shards = 2});
  const std::string path = setting.directory.path("first");
  setting.check_loads(0, setting.first);
  const std::string whole = setting.directory.path("whole");
  std::filesystem::copy_file(path, whole);
  std::filesystem::resize_file(path, file_bytes(path) / 2);
  setting.begin(0, setting.first);
  check_refused(ErrorCode::pack_corrupt, [&] { setting.loads[0].wait(); });
  std::filesystem::remove(path);
  setting.begin(0, setting.first);
  check_refused(ErrorCode::storage_failed, [&] { setting.loads[0].wait(); });
  // The loader finds a new file at the same path, although the old one is still open.
  std::filesystem::rename(whole, path);
  setting.check_loads(0, setting.first);
  ExpertSource wrong = setting.first;
  wrong.down.chunks.back().plain_bytes--;
  check_refused(ErrorCode::pack_corrupt, [&] { setting.begin(0, wrong); });
  setting.check_loads(0, setting.first);
}

void cancels_at_once_what_has_not_begun() {
  Setting setting({.codec = CodecKind::huffman, .shards = 4}, kSlow);
  LoadRequest urgent;
  urgent.urgent = true;
  setting.begin(0, setting.first, urgent);
  setting.begin(1, setting.second);
  setting.loader->cancel(1);
  check(setting.loads[1].is_settled(), "a queued load settles within cancel");
  const LoadOutcome outcome = setting.loads[1].wait();
  check(!outcome.loaded && outcome.read_bytes == 0, "and has read nothing");
  check(setting.loads[0].wait().loaded, "the other goes on");
  setting.loader->cancel(0);  // over: nothing happens
  check_refused(ErrorCode::internal, [&] { setting.loader->cancel(2); });
  check_refused(ErrorCode::internal, [&] { setting.loader->cancel(-1); });
}

void cancels_what_runs() {
  for (const CodecKind codec : {CodecKind::raw, CodecKind::huffman}) {
    Setting setting({.codec = codec, .shards = 4}, kSlow);
    setting.begin(0, setting.first);
    setting.begin(1, setting.second);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    setting.loader->cancel(0);
    check(!setting.loads[0].wait().loaded, "cancelled");
    check(setting.loads[1].wait().loaded, "the other goes on");
    check_same_matrices(setting.matrices[1], setting.expected, "beside a cancelled load");
  }
}

// Loads that begin, change rank and are cancelled in any order leave every buffer and entry free.
void survives_any_mixture() {
  Setting setting({.codec = CodecKind::fixed4, .shards = 5}, 30e6, 1);
  std::mt19937 random(12);
  for (int i = 0; i < 300; i++) {
    const size_t slot = random() % 2;
    const int number = static_cast<int>(slot);
    LoadRequest request;
    request.urgent = random() % 4 == 0;
    if (slot == 0) request.exponents.entry = 0;
    setting.begin(slot, setting.first, request);
    if (random() % 2 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 2000));
    if (random() % 3 == 0) setting.loader->prioritize(number);
    if (random() % 3 == 0) setting.loader->reorder(number, ExpertOrder{});
    const bool cancelled = random() % 2 == 0;
    if (cancelled) setting.loader->cancel(number);
    const bool loaded = setting.loads[slot].wait().loaded;
    check(loaded || cancelled, "loaded unless cancelled");
    if (loaded) check_same_matrices(setting.matrices[slot], setting.expected, "a load among cancelled ones");
  }
  setting.check_loads(0, setting.first);
}

void ends_while_loading() {
  for (int i = 0; i < 20; i++) {
    Setting setting({.codec = CodecKind::lz4hc, .shards = 4}, kSlow);
    setting.begin(0, setting.first);
    setting.begin(1, setting.second);
    if (i % 2 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    setting.loader.reset();
    for (AwaitedLoad& load : setting.loads) {
      check(load.is_settled(), "settled when the loader has gone");
      check(!load.wait().loaded, "as cancelled");
    }
  }
}

// Bytes with correct checksums that are not valid weights; views, which no pack has.
void refuses_what_no_expert_has() {
  const TestDirectory directory;
  const std::shared_ptr<Backend> backend = open_backend("auto");
  for (const Split split : {Split::mxfp4, Split::fp8}) {
    const WeightFormat format = split == Split::mxfp4 ? WeightFormat::mxfp4 : WeightFormat::fp8;
    const ExpertShape shape{.hidden_size = 96, .glu = {.intermediate_size = 320}, .format = format};
    ExpertValues values = quantized_weights(shape, split, 1);
    const auto load = [&](bool viewed) {
      ExpertSource source = store_expert(directory.path("expert"), values, {.split = split});
      if (viewed) source.down.view = TensorView{};
      ExpertLoader loader(backend, shape, 1, options_for({source}));
      ExpertMatrices matrices(backend, shape);
      AwaitedLoad awaited;
      loader.load(0, matrices, source, {}, awaited);
      check(awaited.wait().loaded, "loaded");
    };
    load(false);
    check_refused(ErrorCode::internal, [&] { load(true); });
    // The last byte belongs to a scale of down's last row: NaN for MXFP4, negative for FP8.
    values.bytes[2].back() = 0xff;
    check_refused(ErrorCode::pack_corrupt, [&] { load(false); });
  }
}

}  // namespace

void add_expert_loader_fault_cases(std::vector<Case>& cases) {
  const std::string name = "expert loader faults: ";
  const std::pair<CodecKind, const char*> codecs[] = {{CodecKind::raw, "raw"},
                                                      {CodecKind::zstd, "zstd"},
                                                      {CodecKind::lz4hc, "lz4hc"},
                                                      {CodecKind::fixed4, "fixed4"},
                                                      {CodecKind::huffman, "huffman"}};
  for (const auto& [codec, codec_name] : codecs) {
    cases.push_back({name + "finds every damage, " + codec_name, [codec = codec] { finds_every_damage(codec); }});
  }
  cases.push_back({name + "tells what is wrong with files", tells_what_is_wrong_with_files});
  cases.push_back({name + "cancels at once what has not begun", cancels_at_once_what_has_not_begun});
  cases.push_back({name + "cancels what runs", cancels_what_runs});
  cases.push_back({name + "refuses what no expert has", refuses_what_no_expert_has});
  cases.push_back({name + "survives any mixture", survives_any_mixture});
  cases.push_back({name + "ends while loading", ends_while_loading});
}

}  // namespace odmoe::test
