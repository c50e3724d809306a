// The loader's decisions without its threads: the pieces of reads, and the next operation.
#include <algorithm>
#include <set>
#include <tuple>

#include "../src/runtime/load_schedule.h"
#include "../src/runtime/storage_pacer.h"
#include "native_tests.h"
#include "stored_expert.h"

namespace odmoe::test {
namespace {

constexpr int kBuffers = 4;
constexpr uint64_t kShardBytes = uint64_t{1} << 22;

// A matrix in chunks without a file.
TensorSource tensor(int64_t rows, int64_t columns, CodecKind codec, int64_t shards, bool aligned = true) {
  TensorSource source{rows, columns, Split::bf16_e8_sm8, {}, std::nullopt};
  uint64_t offset = aligned ? 0 : 77;
  const auto add = [&](int plane, CodecKind kind, uint64_t plain, uint64_t stored) {
    ChunkLocation chunk;
    chunk.plane = plane;
    chunk.path = "nowhere";
    chunk.offset_bytes = offset;
    chunk.stored_bytes = stored;
    chunk.plain_bytes = plain;
    chunk.codec = kind;
    chunk.crc32c = 0;
    source.chunks.push_back(chunk);
    offset += aligned ? (stored + kReadAlignment - 1) / kReadAlignment * kReadAlignment : stored;
  };
  add(1, CodecKind::raw, static_cast<uint64_t>(rows * columns), static_cast<uint64_t>(rows * columns));
  shards = std::min(shards, rows);
  for (int64_t i = 0; i < shards; i++) {
    const auto bytes = static_cast<uint64_t>((rows * (i + 1) / shards - rows * i / shards) * columns);
    add(0, codec, bytes, codec == CodecKind::raw ? bytes : bytes / 3 + 1);
  }
  return source;
}

struct Planned {
  std::vector<TensorSource> sources;
  LoadTask task;

  Planned(std::vector<TensorSource> three, const LoadRequest& request, uint64_t arrival) : sources(std::move(three)) {
    task.request = request;
    std::array<uint64_t, kParts> used = {};
    PlanLimits limits{kShardBytes, 0, {uint64_t{1} << 30, uint64_t{1} << 30}};
    for (size_t i = 0; i < kExpertTensors; i++) {
      limits.piece_buffer_bytes = std::max(limits.piece_buffer_bytes, piece_buffer_bytes(sources[i].rows, sources[i].columns));
    }
    for (size_t i = 0; i < kExpertTensors; i++) plan_tensor(sources[i], request, limits, used, task.plans[i]);
    task.begin(arrival);
  }
};

std::unique_ptr<Planned> planned(CodecKind codec, int64_t shards, const LoadRequest& request, uint64_t arrival, int64_t rows = 96,
                                 int64_t columns = 64) {
  return std::make_unique<Planned>(
      std::vector{tensor(rows, columns, codec, shards), tensor(rows, columns, codec, shards), tensor(columns, rows, codec, shards)},
      request, arrival);
}

LoadRequest ordered(int64_t block, int64_t position) {
  LoadRequest request;
  request.order = ExpertOrder{TaskOrder{block, position}, TaskOrder{block, position + 1}, TaskOrder{block, position + 2}};
  return request;
}

struct Rings {
  std::vector<uint8_t> memory = std::vector<uint8_t>(1);
  BufferRing shards{memory.data(), kBuffers, 0};
  BufferRing pieces{memory.data(), kBuffers, 0};
};

std::string name_of(const std::vector<LoadTask*>& tasks, const ReadOperation& read) {
  const auto at = std::find(tasks.begin(), tasks.end(), read.task) - tasks.begin();
  return std::to_string(at) + (read.part == Part::exponents ? "E" : "S") + std::to_string(read.tensor);
}

// All reads in their order, when each piece is recovered as soon as possible.
std::string read_order(const std::vector<LoadTask*>& tasks) {
  Rings rings;
  std::string order;
  while (true) {
    while (const auto piece = next_piece(tasks)) finish_piece(*piece, rings.shards, rings.pieces);
    const auto read = next_read(tasks, rings.shards, rings.pieces);
    if (!read.has_value()) break;
    take_buffers(*read, rings.shards, rings.pieces);
    order += name_of(tasks, *read) + " ";
    read->task->progress[read->tensor].read_done(read->task->plans[read->tensor], read->part);
  }
  for (const LoadTask* task : tasks) check(task->stopping || task->all_done(), "a load is not over: " + order);
  check(rings.shards.free_count() == kBuffers && rings.pieces.free_count() == kBuffers, "a buffer is held");
  return order;
}

void check_order(const std::vector<LoadTask*>& tasks, const std::string& expected) {
  const std::string order = read_order(tasks);
  check(order == expected, "read " + order + "in place of " + expected);
}

void reads_exponents_of_a_block_first() {
  const auto first = planned(CodecKind::zstd, 1, ordered(2, 0), 0);
  const auto second = planned(CodecKind::zstd, 1, ordered(1, 0), 1);
  check_order({&first->task, &second->task}, "1E0 1E1 1E2 1S0 1S1 1S2 0E0 0E1 0E2 0S0 0S1 0S2 ");
}

void interleaves_experts_of_a_block() {
  LoadRequest here;
  here.order = ExpertOrder{TaskOrder{0, 0}, TaskOrder{0, 2}, TaskOrder{0, 4}};
  LoadRequest there;
  there.order = ExpertOrder{TaskOrder{0, 1}, TaskOrder{0, 3}, TaskOrder{0, 5}};
  const auto left = planned(CodecKind::zstd, 1, here, 0);
  const auto right = planned(CodecKind::zstd, 1, there, 1);
  // Three of the four buffers hold exponents; the next are read as signs and mantissas make room.
  check_order({&left->task, &right->task}, "0E0 1E0 0E1 0S0 1E1 1S0 0E2 0S1 1E2 1S1 0S2 1S2 ");
}

void takes_unordered_loads_in_turn_and_after_ordered_ones() {
  const auto first = planned(CodecKind::zstd, 1, LoadRequest{}, 0);
  const auto second = planned(CodecKind::zstd, 1, LoadRequest{}, 1);
  const auto last = planned(CodecKind::zstd, 1, ordered(7, 0), 2);
  check_order({&second->task, &first->task, &last->task},
              "2E0 2E1 2E2 2S0 2S1 2S2 1E0 1E1 1E2 1S0 1S1 1S2 0E0 0E1 0E2 0S0 0S1 0S2 ");
}

void does_what_is_urgent_first() {
  const auto first = planned(CodecKind::zstd, 1, ordered(0, 0), 0);
  const auto second = planned(CodecKind::zstd, 1, LoadRequest{}, 1);
  const std::vector<LoadTask*> tasks = {&first->task, &second->task};
  Rings rings;
  const auto read = next_read(tasks, rings.shards, rings.pieces);
  check(read.has_value() && read->task == &first->task, "the ordered load comes first");
  second->task.request.urgent = true;
  check_order(tasks, "1E0 1E1 1E2 1S0 1S1 1S2 0E0 0E1 0E2 0S0 0S1 0S2 ");
}

// An urgent load can begin at once, with any number of loads of lower priority running.
void keeps_staging_for_urgent_loads() {
  const auto relaxed = planned(CodecKind::zstd, 8, ordered(0, 0), 0);
  const auto urgent = planned(CodecKind::zstd, 8, ordered(9, 0), 1);
  const std::vector<LoadTask*> tasks = {&relaxed->task, &urgent->task};
  Rings rings;
  for (int i = 0; i < kBuffers - 1; i++) {
    const auto read = next_read(tasks, rings.shards, rings.pieces);
    check(read.has_value() && read->part == Part::exponents && read->task == &relaxed->task, "exponents are read ahead");
    take_buffers(*read, rings.shards, rings.pieces);
    read->task->progress[read->tensor].read_done(read->task->plans[read->tensor], read->part);
  }
  const auto next = next_read(tasks, rings.shards, rings.pieces);
  check(next.has_value() && next->part == Part::sign_mantissa, "the last buffer is not for a load that can wait");
  urgent->task.request.urgent = true;
  const auto now = next_read(tasks, rings.shards, rings.pieces);
  check(now.has_value() && now->task == &urgent->task && now->part == Part::exponents, "it is for an urgent one");
}

// Host memory is filled after all loads, and nothing is read for it while an urgent load is running, even if that load cannot read
// anything now.
void fills_host_memory_last() {
  LoadRequest kept;
  kept.exponents.entry = 0;
  kept.sign_mantissa.entry = 0;
  const auto filling = planned(CodecKind::zstd, 1, kept, 0);
  filling->task.filling = true;
  const auto relaxed = planned(CodecKind::zstd, 1, LoadRequest{}, 1);
  check_order({&filling->task, &relaxed->task}, "1E0 1E1 1E2 1S0 1S1 1S2 0E0 0E1 0E2 0S0 0S1 0S2 ");

  const auto again = planned(CodecKind::zstd, 1, kept, 2);
  again->task.filling = true;
  const auto urgent = planned(CodecKind::zstd, 1, LoadRequest{}, 3);
  urgent->task.request.urgent = true;
  const std::vector<LoadTask*> tasks = {&again->task, &urgent->task};
  Rings rings;
  // All reads of the urgent load are in flight.
  for (std::optional<ReadOperation> read; (read = next_read(tasks, rings.shards, rings.pieces)).has_value();) {
    check(read->task == &urgent->task, "a fill reads while an urgent load is under way");
    take_buffers(*read, rings.shards, rings.pieces);
    read->task->progress[read->tensor].read_done(read->task->plans[read->tensor], read->part);
    while (const auto piece = next_piece(tasks)) finish_piece(*piece, rings.shards, rings.pieces);
  }
  check(next_read({&again->task}, rings.shards, rings.pieces).has_value(), "the fill goes on without it");
}

// The graphs of ZipMoE's figure 6.
void reads_only_what_no_entry_holds() {
  const PartPlan kept{PartOrigin::entry, 0};
  LoadRequest request = ordered(0, 0);
  request.exponents = kept;
  const auto exponents = planned(CodecKind::zstd, 2, request, 0);
  check_order({&exponents->task}, "0S0 0S0 0S1 0S1 0S2 0S2 ");
  request.sign_mantissa = kept;
  const auto compressed = planned(CodecKind::zstd, 2, request, 0);
  check_order({&compressed->task}, "");
  request.exponents = {};
  const auto rest = planned(CodecKind::zstd, 2, request, 0);
  check(!next_piece({&rest->task}).has_value(), "nothing is ready before its exponents are read");
  check_order({&rest->task}, "0E0 0E0 0E1 0E1 0E2 0E2 ");
  const auto missing = planned(CodecKind::zstd, 2, ordered(0, 0), 0);
  check_order({&missing->task}, "0E0 0E0 0E1 0S0 0E1 0S0 0E2 0S1 0E2 0S1 0S2 0S2 ");
}

void begins_nothing_for_a_load_that_stops() {
  const auto first = planned(CodecKind::zstd, 1, ordered(0, 0), 0);
  const auto second = planned(CodecKind::raw, 1, ordered(1, 0), 1);
  first->task.stopping = true;
  check_order({&first->task, &second->task}, "1E0 1E1 1E2 1S0 1S1 1S2 ");
}

// Any mixture of loads, with operations ending in any order, comes to an end and gives all buffers back.
void never_gets_stuck() {
  for (uint32_t seed = 0; seed < 300; seed++) {
    std::mt19937 random(seed);
    std::vector<std::unique_ptr<Planned>> loads;
    std::vector<LoadTask*> tasks;
    for (uint64_t i = 0; i < 1 + random() % 5; i++) {
      LoadRequest request = random() % 2 == 0 ? LoadRequest{} : ordered(random() % 3, random() % 5);
      request.exponents = {random() % 4 == 0 ? PartOrigin::entry : PartOrigin::storage, static_cast<int>(random() % 3) - 1};
      if (request.exponents.from == PartOrigin::entry) request.exponents.entry = 0;
      request.sign_mantissa.entry = static_cast<int>(random() % 2) - 1;
      request.urgent = random() % 5 == 0;
      const auto codec = random() % 3 == 0 ? CodecKind::raw : CodecKind::huffman;
      loads.push_back(planned(codec, 1 + random() % 9, request, i, 300 + static_cast<int64_t>(random() % 3000), 1000));
      tasks.push_back(&loads.back()->task);
    }
    Rings rings;
    std::vector<PieceOperation> working;
    while (true) {
      if (random() % 20 == 0) tasks[random() % tasks.size()]->request.urgent = true;
      if (working.size() < 2) {
        if (const auto piece = next_piece(tasks)) {
          working.push_back(*piece);
          continue;
        }
      }
      const auto read = next_read(tasks, rings.shards, rings.pieces);
      if (read.has_value() && (working.empty() || random() % 2 == 0)) {
        take_buffers(*read, rings.shards, rings.pieces);
        read->task->progress[read->tensor].read_done(read->task->plans[read->tensor], read->part);
        continue;
      }
      if (working.empty()) break;
      finish_piece(working.front(), rings.shards, rings.pieces);
      working.erase(working.begin());
    }
    for (const LoadTask* task : tasks) check(task->all_done(), "stuck, seed " + std::to_string(seed));
    check(rings.shards.free_count() == kBuffers && rings.pieces.free_count() == kBuffers, "a buffer is held");
  }
}

// The promises of a plan: its ranges are on the boundaries of direct I/O, do not overlap in entries, and are together all bytes of
// all chunks; its slices cover each chunk once and in order; its pieces cover each row once.
void check_plan(const TensorSource& source, const LoadRequest& request, const TensorPlan& plan) {
  uint64_t useful = 0;
  std::set<std::tuple<Holder, uint64_t>> kept_ends;
  for (const FileRange& range : plan.ranges) {
    check(range.begin % kReadAlignment == 0 && range.end % kReadAlignment == 0, "a range off the boundaries");
    check(range.place.offset % kReadAlignment == 0, "a place off the boundaries");
    check(range.useful_begin >= range.begin && range.useful_end <= range.end, "useful bytes outside their range");
    useful += range.useful_end - range.useful_begin;
  }
  uint64_t stored = 0;
  for (const ChunkLocation& chunk : source.chunks) {
    const Part part = chunk.plane == 0 ? Part::exponents : Part::sign_mantissa;
    if (part_plan(request, part).from == PartOrigin::storage) stored += chunk.stored_bytes;
  }
  check(useful == stored, "the ranges read " + std::to_string(useful) + " of " + std::to_string(stored) + " bytes");
  for (size_t i = 0; i < plan.checks.size(); i++) {
    uint64_t bytes = 0;
    for (uint32_t at = plan.checks[i].first_slice; at != kNoSlice; at = plan.slices[at].next) bytes += plan.slices[at].bytes;
    const bool read =
        part_plan(request, source.chunks[i].plane == 0 ? Part::exponents : Part::sign_mantissa).from == PartOrigin::storage;
    check(bytes == (read ? source.chunks[i].stored_bytes : 0), "a chunk is not summed up as a whole");
  }
  int64_t row = 0;
  for (const PlannedPiece& piece : plan.pieces) {
    check(piece.first_row == row && piece.rows > 0, "pieces leave rows out or take them twice");
    row += piece.rows;
  }
  check(row == source.rows, "pieces are not all rows");
}

void plans_every_byte_once() {
  for (uint32_t seed = 0; seed < 400; seed++) {
    std::mt19937 random(seed);
    const auto rows = static_cast<int64_t>(1 + random() % 3000);
    const auto columns = static_cast<int64_t>(1 + random() % 2000);
    const auto codec = random() % 2 == 0 ? CodecKind::raw : CodecKind::fixed4;
    const TensorSource source = tensor(rows, columns, codec, 1 + random() % 9, random() % 2 == 0);
    LoadRequest request;
    request.exponents.entry = static_cast<int>(random() % 2) - 1;
    request.sign_mantissa.entry = static_cast<int>(random() % 2) - 1;
    if (request.exponents.entry == 0 && random() % 2 == 0) request.exponents.from = PartOrigin::entry;
    const PlanLimits limits{uint64_t{1} << 24, piece_buffer_bytes(rows, columns), {uint64_t{1} << 24, uint64_t{1} << 24}};
    std::array<uint64_t, kParts> used = {};
    TensorPlan plan;
    plan_tensor(source, request, limits, used, plan);
    check_plan(source, request, plan);
  }
}

void refuses_what_does_not_fit() {
  std::array<uint64_t, kParts> used = {};
  TensorPlan plan;
  const TensorSource source = tensor(64, 64, CodecKind::zstd, 2);
  PlanLimits limits{kShardBytes, piece_buffer_bytes(64, 64), {0, 0}};
  LoadRequest keeping;
  keeping.exponents.entry = 0;
  check_refused(ErrorCode::internal, [&] { plan_tensor(source, keeping, limits, used, plan); });
  limits.shard_buffer_bytes = 0;
  check_refused(ErrorCode::internal, [&] { plan_tensor(source, {}, limits, used, plan); });
  limits = {kShardBytes, 100, {0, 0}};
  check_refused(ErrorCode::internal, [&] { plan_tensor(source, {}, limits, used, plan); });
  limits.piece_buffer_bytes = piece_buffer_bytes(64, 64);
  TensorSource torn = source;
  torn.chunks[1].plain_bytes += 7;
  torn.chunks[2].plain_bytes -= 7;
  check_refused(ErrorCode::pack_corrupt, [&] { plan_tensor(torn, {}, limits, used, plan); });
  TensorSource shifted = source;
  shifted.chunks[1].plain_bytes += 64;
  shifted.chunks[2].plain_bytes -= 64;
  plan_tensor(shifted, {}, limits, used, plan);
}

void paces_storage() {
  using Clock = StoragePacer::Clock;
  using std::chrono::milliseconds;
  StoragePacer pacer(1e6);
  Clock::time_point now{std::chrono::hours(1)};
  now = pacer.end_of_read(10'000, now, true);
  check(now == Clock::time_point{std::chrono::hours(1)} + milliseconds(10), "10 kB at 1 MB/s");
  // Woken 3 ms too late, and late again: the rate holds all the same.
  check(pacer.end_of_read(10'000, now + milliseconds(3), false) == now + milliseconds(10), "lateness is made up for");
  check(pacer.end_of_read(10'000, now + milliseconds(13), false) == now + milliseconds(20), "and again");
  // Storage that was idle, or much slower than the rate, does not read faster than the rate later.
  check(pacer.end_of_read(10'000, now + milliseconds(50), true) == now + milliseconds(60), "after a pause");
  check(pacer.end_of_read(10'000, now + milliseconds(1050), false) >= now + milliseconds(1040), "after a slow read");
}

void combines_checksums() {
  std::mt19937 random(5);
  std::vector<uint8_t> bytes(100'000);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
  for (const size_t cut : {size_t{0}, size_t{1}, size_t{63}, size_t{4096}, size_t{77'777}, bytes.size()}) {
    const uint32_t left = crc32c(0, bytes.data(), cut);
    const uint32_t right = crc32c(0, bytes.data() + cut, bytes.size() - cut);
    check(crc32c_combine(left, right, bytes.size() - cut) == crc32c(0, bytes.data(), bytes.size()),
          "cut at " + std::to_string(cut));
  }
}

}  // namespace

void add_load_schedule_cases(std::vector<Case>& cases) {
  const std::string name = "load schedule: ";
  cases.push_back({name + "reads exponents of a block first", reads_exponents_of_a_block_first});
  cases.push_back({name + "interleaves experts of a block", interleaves_experts_of_a_block});
  cases.push_back({name + "unordered loads in turn, after ordered ones", takes_unordered_loads_in_turn_and_after_ordered_ones});
  cases.push_back({name + "urgent first", does_what_is_urgent_first});
  cases.push_back({name + "keeps staging for urgent loads", keeps_staging_for_urgent_loads});
  cases.push_back({name + "fills host memory last", fills_host_memory_last});
  cases.push_back({name + "reads only what no entry holds", reads_only_what_no_entry_holds});
  cases.push_back({name + "begins nothing for a load that stops", begins_nothing_for_a_load_that_stops});
  cases.push_back({name + "never gets stuck", never_gets_stuck});
  cases.push_back({name + "plans every byte once", plans_every_byte_once});
  cases.push_back({name + "refuses what does not fit", refuses_what_does_not_fit});
  cases.push_back({name + "paces storage", paces_storage});
  cases.push_back({name + "combines checksums", combines_checksums});
}

}  // namespace odmoe::test
