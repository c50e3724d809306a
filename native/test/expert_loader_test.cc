// The loader with its threads and real files: the same bits from every form, entries, order, memory.
#include "allocation_count.h"
#include "native_tests.h"
#include "odmoe/error.h"
#include "odmoe/expert_slots.h"
#include "stored_expert.h"

namespace odmoe::test {
namespace {

constexpr ExpertShape kShape{.hidden_size = 200, .glu = {.intermediate_size = 331}, .format = WeightFormat::bf16};

std::shared_ptr<Backend> shared_backend(uint64_t budget_bytes = 0) { return open_backend("auto", 1, budget_bytes); }

std::string describe(const StoredForm& form) {
  return "split " + std::to_string(static_cast<int>(form.split)) + ", codec " + std::to_string(static_cast<int>(form.codec)) +
         ", " + std::to_string(form.shards) + " shards" + (form.aligned ? "" : ", unaligned");
}

std::vector<CodecKind> codecs_for(Split split) {
  if (plane_count(split) == 1 || is_quantized(split)) return {CodecKind::raw};
  return {CodecKind::raw, CodecKind::zstd, CodecKind::lz4hc, CodecKind::fixed4, CodecKind::huffman};
}

WeightFormat format_of(Split split) {
  if (split == Split::none_bf16 || split == Split::bf16_e8_sm8) return WeightFormat::bf16;
  if (split == Split::mxfp4) return WeightFormat::mxfp4;
  if (split == Split::sliced84) return WeightFormat::sliced84;
  if (split == Split::sliced63) return WeightFormat::sliced63;
  if (split == Split::sliced42) return WeightFormat::sliced42;
  if (split == Split::fp8) return WeightFormat::fp8;
  if (split == Split::none_fp32 || split == Split::fp32_e8_sm8_r16) return WeightFormat::fp32;
  return WeightFormat::fp16;
}

// Every source of the two parts, one after the other: storage, storage into entries, from entries.
void check_all_states(ExpertLoader& loader, const std::shared_ptr<Backend>& backend, const ExpertValues& values,
                      const ExpertSource& source, const std::string& what) {
  const ExpertMatrices expected = expected_matrices(backend, values, source.gate.split);
  const PartPlan read{PartOrigin::storage, -1};
  const PartPlan keep{PartOrigin::storage, 0};
  const PartPlan take{PartOrigin::entry, 0};
  const std::pair<PartPlan, PartPlan> states[] = {{read, read}, {keep, read}, {take, keep}, {take, take}, {read, take},
                                                  {keep, take}, {take, read}, {keep, keep}, {take, take}};
  for (const auto& [exponents, sign_mantissa] : states) {
    ExpertMatrices matrices(backend, values.shape);
    AwaitedLoad load;
    loader.load(0, matrices, source, {.exponents = exponents, .sign_mantissa = sign_mantissa, .order = {}, .urgent = false}, load);
    const LoadOutcome outcome = load.wait();
    check(outcome.loaded, what + ": not loaded");
    check(outcome.exponents_kept == (exponents.entry >= 0) && outcome.sign_mantissa_kept == (sign_mantissa.entry >= 0),
          what + ": what is kept");
    check_same_matrices(matrices, expected, what);
    if (exponents.from == PartOrigin::storage && sign_mantissa.from == PartOrigin::storage) {
      check(outcome.read_bytes == stored_bytes(source), what + ": bytes read");
    } else if (exponents.from == PartOrigin::entry && sign_mantissa.from == PartOrigin::entry) {
      check(outcome.read_bytes == 0, what + ": reads what entries hold");
    }
  }
}

void loads_every_form(Split split) {
  const TestDirectory directory;
  const auto backend = shared_backend();
  ExpertShape shape = kShape;
  shape.format = format_of(split);
  if (split == Split::mxfp4) {
    shape.hidden_size = 192;
    shape.glu.intermediate_size = 352;
  }
  const ExpertValues values = slice_bits(split) != 0 ? sliced_weights(shape, split, 3)
                              : is_quantized(split)  ? quantized_weights(shape, split, 3)
                                                     : random_bits(shape, 3);
  for (const CodecKind codec : codecs_for(split)) {
    for (const int shards : {1, 3, 64}) {
      for (const bool aligned : {true, false}) {
        for (const bool direct : {true, false}) {
          const StoredForm form{.split = split, .codec = codec, .level = 1, .shards = shards, .aligned = aligned};
          const ExpertSource source = store_expert(directory.path("expert"), values, form);
          LoaderOptions options = options_for({source});
          options.direct_io = direct;
          options.exponent_entries = 1;
          options.sign_mantissa_entries = 1;
          ExpertLoader loader(backend, shape, 1, options);
          check_all_states(loader, backend, values, source, describe(form) + (direct ? ", direct" : ""));
        }
      }
    }
  }
}

// Pieces of many rows, which the shards cut.
void loads_large_quantized_matrices() {
  const TestDirectory directory;
  const auto backend = shared_backend();
  for (const Split split : {Split::mxfp4, Split::fp8}) {
    const ExpertShape shape{.hidden_size = 1440, .glu = {.intermediate_size = 2912}, .format = format_of(split)};
    const ExpertValues values = quantized_weights(shape, split, 9);
    for (const int shards : {1, 3}) {
      const StoredForm form{.split = split, .shards = shards};
      const ExpertSource source = store_expert(directory.path("expert"), values, form);
      LoaderOptions options = options_for({source});
      options.exponent_entries = 1;
      options.sign_mantissa_entries = 1;
      ExpertLoader loader(backend, shape, 1, options);
      check_all_states(loader, backend, values, source, describe(form));
    }
  }
}

// Shards of many pieces, and blocks of another size than the plan expects.
void loads_large_matrices() {
  const TestDirectory directory;
  const auto backend = shared_backend();
  const ExpertShape shape{.hidden_size = 900, .glu = {.intermediate_size = 2500}, .format = WeightFormat::bf16};
  const ExpertValues values = gaussian_weights(shape, 9);
  for (const CodecKind codec : {CodecKind::raw, CodecKind::fixed4}) {
    for (const int block_rows : {0, 7}) {
      const StoredForm form{.codec = codec, .shards = 2, .block_rows = block_rows};
      const ExpertSource source = store_expert(directory.path("expert"), values, form);
      LoaderOptions options = options_for({source});
      options.exponent_entries = 1;
      options.sign_mantissa_entries = 1;
      ExpertLoader loader(backend, shape, 1, options);
      check_all_states(loader, backend, values, source, describe(form));
    }
  }
}

void keeps_entries_apart() {
  const TestDirectory directory;
  const auto backend = shared_backend();
  const StoredForm form{.codec = CodecKind::huffman, .shards = 2};
  const ExpertSource first = store_expert(directory.path("first"), random_bits(kShape, 1), form);
  const ExpertSource second = store_expert(directory.path("second"), random_bits(kShape, 2), form);
  LoaderOptions options = options_for({first, second});
  options.exponent_entries = 2;
  options.sign_mantissa_entries = 1;
  options.storage_bytes_per_s = 5e5;  // so that a load lasts while another is asked for
  ExpertLoader loader(backend, kShape, 2, options);
  std::vector<ExpertMatrices> matrices;
  for (int i = 0; i < 2; i++) matrices.emplace_back(backend, kShape);
  AwaitedLoad loads[2];
  const auto load = [&](size_t slot, const ExpertSource& source, PartPlan exponents, PartPlan rest) {
    loads[slot].reuse();
    loader.load(static_cast<int>(slot), matrices[slot], source, {exponents, rest, std::nullopt, false}, loads[slot]);
  };
  const PartPlan read{};
  const PartPlan take{PartOrigin::entry, 1};
  const PartPlan keep{PartOrigin::storage, 1};
  check_refused(ErrorCode::internal, [&] { load(0, first, take, read); });
  check_refused(ErrorCode::internal, [&] { load(0, first, {PartOrigin::storage, 2}, read); });
  check_refused(ErrorCode::internal, [&] { load(0, first, {PartOrigin::entry, -1}, read); });
  load(0, first, keep, read);
  check_refused(ErrorCode::internal, [&] { load(0, first, read, read); });  // the slot is being loaded
  check_refused(ErrorCode::internal, [&] { load(1, first, take, read); });  // the entry is being written
  check_refused(ErrorCode::internal, [&] { load(1, second, keep, read); });
  check(loads[0].wait().exponents_kept, "the exponents are kept");
  check_refused(ErrorCode::internal, [&] { load(1, second, take, read); });  // they are another expert's
  load(0, first, take, read);
  load(1, first, take, {PartOrigin::storage, 0});
  check(!loads[0].is_settled() && !loads[1].is_settled(), "two loads read the entry");
  loader.cancel(1);
  check(!loads[1].wait().sign_mantissa_kept, "a cancelled load keeps no half part");
  check_refused(ErrorCode::internal, [&] { load(1, second, keep, read); });  // read by the first
  check_refused(ErrorCode::internal, [&] { load(1, first, read, {PartOrigin::entry, 0}); });
  check(loads[0].wait().loaded, "the other load goes on");
  load(1, second, keep, read);
  check(loads[1].wait().exponents_kept, "and is over");
}

void loads_what_main_waits_for_first() {
  const TestDirectory directory;
  const auto backend = shared_backend();
  const StoredForm form{.codec = CodecKind::zstd, .shards = 8};
  const ExpertValues values = gaussian_weights({600, {.intermediate_size = 1000}, WeightFormat::bf16}, 4);
  const ExpertSource source = store_expert(directory.path("expert"), values, form);
  LoaderOptions options = options_for({source});
  options.storage_bytes_per_s = 20e6;
  ExpertLoader loader(backend, values.shape, 4, options);
  std::vector<ExpertMatrices> matrices;
  std::vector<AwaitedLoad> loads(4);
  for (int i = 0; i < 4; i++) {
    matrices.emplace_back(backend, values.shape);
  }
  for (int i = 0; i < 4; i++) {
    loader.load(i, matrices[static_cast<size_t>(i)], source, {}, loads[static_cast<size_t>(i)]);
  }
  loader.prioritize(3);
  loader.reorder(2, ExpertOrder{});
  for (AwaitedLoad& load : loads) check(load.wait().loaded, "all are loaded");
  check(loads[3].turn() < loads[2].turn(), "the urgent load first");
  check(loads[2].turn() < loads[0].turn(), "then the one with a place in the order");
  check(loads[0].turn() < loads[1].turn(), "then in the order asked for");
  const ExpertMatrices expected = expected_matrices(backend, values, form.split);
  for (const ExpertMatrices& loaded : matrices) check_same_matrices(loaded, expected, "a load among others");
}

void takes_no_memory_once_warm() {
  const TestDirectory directory;
  const auto backend = shared_backend();
  std::vector<ExpertSource> sources;
  const ExpertShape shape{300, {.intermediate_size = 500}, WeightFormat::bf16};
  for (const CodecKind codec : {CodecKind::raw, CodecKind::zstd, CodecKind::lz4hc, CodecKind::fixed4, CodecKind::huffman}) {
    const std::string path = directory.path("expert" + std::to_string(sources.size()));
    sources.push_back(store_expert(path, gaussian_weights(shape, 1), {.codec = codec, .shards = 5}));
  }
  LoaderOptions options = options_for(sources);
  options.exponent_entries = 1;
  ExpertLoader loader(backend, shape, 2, options);
  ExpertMatrices left(backend, shape);
  ExpertMatrices right(backend, shape);
  AwaitedLoad loads[2];
  const uint64_t used = backend->info().used_bytes;
  const auto load_all = [&] {
    for (const ExpertSource& source : sources) {
      for (const PartPlan exponents : {PartPlan{PartOrigin::storage, 0}, PartPlan{PartOrigin::entry, 0}}) {
        for (AwaitedLoad& load : loads) load.reuse();
        loader.load(0, left, source, {exponents, {}, std::nullopt, false}, loads[0]);
        loader.load(1, right, source, {}, loads[1]);
        for (AwaitedLoad& load : loads) check(load.wait().loaded, "loaded");
      }
    }
  };
  load_all();
  load_all();
  const AllocationCount allocations;
  load_all();
  const int count = allocations.count();
  check(count == 0, std::to_string(count) + " allocations while loading");
  check(backend->info().used_bytes == used, "device memory while loading");
}

void keeps_to_its_budget() {
  const ExpertShape shape{64, {.intermediate_size = 96}, WeightFormat::bf16};
  LoaderOptions options;
  options.decompression_threads = 3;
  options.exponent_entries = 2;
  options.sign_mantissa_entries = 5;
  options.expert_exponent_bytes = 40'960;
  options.expert_sign_mantissa_bytes = 49'152;
  options.shard_exponent_bytes = 8192;
  const ExpertSlotBytes bytes = expert_slot_bytes(*open_backend("auto"), shape, 16, options);
  check(bytes.exponent_entry_bytes == 40'960 && bytes.sign_mantissa_entry_bytes == 49'152, "entries");
  const uint64_t total =
      2 * bytes.slot_bytes + bytes.shared_bytes + 2 * bytes.exponent_entry_bytes + 5 * bytes.sign_mantissa_entry_bytes;
  const auto device = std::make_shared<Device>(open_backend("auto", 1, total));
  {
    const ExpertSlots slots(device, shape, 2, 16, options);
    check(device->backend()->info().used_bytes == total, "all that was said is taken");
  }
  check(device->backend()->info().used_bytes == 0, "and given back");
  check_refused(ErrorCode::device_out_of_memory, [&] { const ExpertSlots slots(device, shape, 3, 16, options); });
  check(device->backend()->info().used_bytes == 0, "a refusal takes nothing");
}

void gives_memory_of_slots_back() {
  using Kind = ExpertSlots::Call::Kind;
  const TestDirectory directory;
  const ExpertSource source = store_expert(directory.path("expert"), gaussian_weights(kShape, 5), {.codec = CodecKind::huffman});
  const LoaderOptions options = options_for({source});
  const ExpertSlotBytes bytes = expert_slot_bytes(*open_backend("auto"), kShape, 1, options);
  const uint64_t all = 2 * bytes.slot_bytes + bytes.shared_bytes;
  const auto device = std::make_shared<Device>(open_backend("auto", 1, all));
  Backend& backend = *device->backend();
  const auto slots = std::make_shared<ExpertSlots>(device, kShape, 2, 1, options);
  const auto load = [&](int slot) {
    AwaitedLoad settled;
    const ExpertSlots::Call call(slots, slot, Kind::load);
    slots->load(call, source, {}, settled);
    check(settled.wait().loaded, "loaded");
  };
  const std::vector<float> input = random_values(static_cast<size_t>(kShape.hidden_size), 6);
  const auto execute = [&](int slot) {
    std::vector<float> output(input.size());
    const ExpertSlots::Call call(slots, slot, Kind::execute);
    const auto as_bytes = [&](const std::vector<float>& values) {
      return std::span(reinterpret_cast<const uint8_t*>(values.data()), values.size() * sizeof(float));
    };
    const std::span<uint8_t> written(reinterpret_cast<uint8_t*>(output.data()), output.size() * sizeof(float));
    slots->execute(call, 1, as_bytes(input), written);
    return output;
  };
  load(0);
  load(1);
  const std::vector<float> expected = execute(0);
  slots->let_go(ExpertSlots::Call(slots, 0, Kind::load));
  check(backend.info().used_bytes == all - bytes.slot_bytes, "the slot's memory has gone back");
  check_refused(ErrorCode::internal, [&] { execute(0); });
  check_refused(ErrorCode::internal, [&] { load(0); });
  check_same(execute(1), expected, "the other slot's expert");
  DeviceBuffer taken = backend.allocate(bytes.slot_bytes);
  check_refused(ErrorCode::device_out_of_memory, [&] { slots->take(ExpertSlots::Call(slots, 0, Kind::load)); });
  check(backend.info().used_bytes == all, "a refusal takes nothing");
  check_refused(ErrorCode::internal, [&] { load(0); });
  backend.release(taken);
  slots->take(ExpertSlots::Call(slots, 0, Kind::load));
  slots->take(ExpertSlots::Call(slots, 0, Kind::load));
  check(backend.info().used_bytes == all, "the slot has its memory again, once");
  check_refused(ErrorCode::internal, [&] { execute(0); });
  load(0);
  check_same(execute(0), expected, "loaded anew");
}

}  // namespace

void add_expert_loader_cases(std::vector<Case>& cases) {
  const std::string name = "expert loader: ";
  const std::pair<Split, const char*> splits[] = {
      {Split::none_bf16, "plain bf16"},
      {Split::none_fp16, "plain fp16"},
      {Split::none_fp32, "plain fp32"},
      {Split::bf16_e8_sm8, "bf16 planes"},
      {Split::fp16_hi8_lo8, "fp16 halves"},
      {Split::fp32_e8_sm8_r16, "fp32 planes"},
      {Split::fp16_e5_lo8_s1m2, "fp16 planes"},
      {Split::mxfp4, "mxfp4"},
      {Split::fp8, "fp8"},
      {Split::sliced84, "sliced (8,4)"},
      {Split::sliced63, "sliced (6,3)"},
      {Split::sliced42, "sliced (4,2)"},
  };
  for (const auto& [split, split_name] : splits) {
    cases.push_back({name + "loads every form of " + split_name, [split = split] { loads_every_form(split); }});
  }
  cases.push_back({name + "loads large matrices", loads_large_matrices});
  cases.push_back({name + "loads large quantized matrices", loads_large_quantized_matrices});
  cases.push_back({name + "keeps entries apart", keeps_entries_apart});
  cases.push_back({name + "loads what main waits for first", loads_what_main_waits_for_first});
  cases.push_back({name + "takes no memory once warm", takes_no_memory_once_warm});
  cases.push_back({name + "keeps to its budget", keeps_to_its_budget});
  cases.push_back({name + "gives memory of slots back", gives_memory_of_slots_back});
}

}  // namespace odmoe::test
