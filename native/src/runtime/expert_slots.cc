#include "odmoe/expert_slots.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <string>
#include <utility>

#include "expert_loader.h"
#include "host_chunks.h"
#include "load_entries.h"
#include "load_memory.h"
#include "odmoe/error.h"
#include "packed_rows.h"

namespace odmoe {
namespace {

using Clock = std::chrono::steady_clock;

double milliseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

// Bytes of the buffers of ExpertActivations.
uint64_t activation_bytes(const Backend& backend, const ExpertShape& shape, int64_t rows) {
  const uint64_t hidden = backend.counted_bytes(float_bytes(rows * shape.hidden_size));
  const uint64_t intermediate = backend.counted_bytes(float_bytes(rows * shape.glu.intermediate_size));
  return 2 * hidden + intermediate + backend.counted_bytes(float_bytes(rows * 2 * shape.glu.gate_rows()));
}

// Bytes of a slot's biases.
uint64_t bias_bytes(const Backend& backend, const ExpertShape& shape) {
  return shape.glu.bias ? backend.counted_bytes(float_bytes(shape.bias_count())) : 0;
}

ExpertMemoryShape memory_shape(const Backend& backend, const ExpertShape& shape, int slots, int64_t experts) {
  return {
      .slots = slots, .experts = experts, .gate_up_bytes = gate_up_bytes(backend, shape), .down_bytes = down_bytes(backend, shape)};
}

// Bytes of the memory for a slot's lower slices.
uint64_t lower_bytes(const Backend& backend, const ExpertShape& shape) {
  if (slice_bits(shape.format) == 0) return 0;
  const int64_t intermediate = shape.glu.intermediate_size;
  return backend.counted_bytes(backend.lower_slice_bytes(shape.format, 2 * shape.glu.gate_rows(), shape.hidden_size)) +
         backend.counted_bytes(backend.lower_slice_bytes(shape.format, shape.hidden_size, intermediate));
}

uint64_t upper_fingerprint(const ExpertSource& source) {
  const TensorSource* const tensors[] = {&source.gate, &source.up, &source.down};
  return part_fingerprint(tensors, kExpertTensors, Part::exponents);
}

bool is_wanted(const PartPlan& plan) { return plan.from != PartOrigin::not_wanted; }

// Memory beside the slots: one more slot, and a piece.
uint64_t pack_memory_bytes(const Backend& backend, const ExpertShape& shape) {
  return backend.expert_slot_bytes(memory_shape(backend, shape, 1, 0)) + backend.counted_bytes(pack_scratch_bytes(shape));
}

// The rows of a tile, together where they follow one another and have one reading.
std::vector<ExpertRows> runs_of(const std::array<ExpertMatrices, kSliceReadings>& experts, std::span<const SliceReading> readings,
                                int rows) {
  if (readings.empty()) return {{&experts[0], rows}};
  std::vector<ExpertRows> runs;
  for (const SliceReading reading : readings) {
    const ExpertMatrices* const expert = &experts[static_cast<size_t>(reading)];
    if (runs.empty() || runs.back().expert != expert) runs.push_back({expert, 0});
    runs.back().rows++;
  }
  return runs;
}

// Waits for the end of a fill.
class AwaitedFill : public LoadListener {
 public:
  void settled(const LoadOutcome& outcome, std::exception_ptr error) noexcept override {
    const std::lock_guard lock(mutex_);
    outcome_ = outcome;
    error_ = std::move(error);
    settled_ = true;
    // Notified under the lock, because the waiting thread destroys this object as soon as it can.
    changed_.notify_one();
  }

  // Throws the error of the fill.
  LoadOutcome wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return settled_; });
    if (error_ != nullptr) std::rethrow_exception(error_);
    return outcome_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool settled_ = false;
  LoadOutcome outcome_;
  std::exception_ptr error_;
};

}  // namespace

ExpertSlotBytes expert_slot_bytes(const Backend& backend, const ExpertShape& shape, int max_rows, const LoaderOptions& loader) {
  const int64_t rows = std::min(max_rows, kExpertTileRows);
  const LoadMemoryLayout layout = load_memory_layout(shape, loader);
  const auto scratch_bytes = [&](WeightFormat format) {
    return backend.expert_scratch_bytes(format, rows, shape.hidden_size, shape.glu.intermediate_size);
  };
  uint64_t scratch = 0;
  for (const ExpertFormats& formats : shape.formats()) {
    scratch = std::max({scratch, scratch_bytes(formats.gate), scratch_bytes(formats.up), scratch_bytes(formats.down)});
  }
  return {.slot_bytes = backend.expert_slot_bytes(memory_shape(backend, shape, 1, loader.experts)) + bias_bytes(backend, shape),
          .lower_bytes = lower_bytes(backend, shape),
          .shared_bytes = (backend.counts_staging() ? layout.shared_bytes : 0) + activation_bytes(backend, shape, rows) + scratch +
                          (loader.packs ? pack_memory_bytes(backend, shape) + scratch_bytes(WeightFormat::fixed4) : 0),
          .exponent_entry_bytes = layout.limits.entry_bytes[index_of(Part::exponents)],
          .sign_mantissa_entry_bytes = layout.limits.entry_bytes[index_of(Part::sign_mantissa)]};
}

ExpertSlots::ExpertSlots(std::shared_ptr<Device> device, const ExpertShape& shape, int count, int max_rows,
                         const LoaderOptions& loader)
    : device_(std::move(device)),
      shape_(shape),
      max_rows_(max_rows),
      experts_(loader.experts),
      slot_bytes_(expert_slot_bytes(*device_->backend(), shape, max_rows, loader).slot_bytes),
      packs_(loader.packs),
      activations_(device_->backend(), shape, max_rows),
      slots_(static_cast<size_t>(count)) {
  if (shape.format == WeightFormat::fixed4) {
    throw Error(ErrorCode::internal, "slots are written in pieces, in any order and by several threads, which fixed4 cannot be");
  }
  const std::vector<ExpertFormats> packable = {{WeightFormat::bf16, WeightFormat::bf16, WeightFormat::bf16}};
  if (packs_ && (shape.formats() != packable || !device_->works_here())) {
    throw Error(ErrorCode::internal, "only BF16 experts on the processor are packed");
  }
  // The place behind the slots is the memory into which an expert is packed.
  const int places = packs_ ? count + 1 : count;
  memory_ = device_->backend()->allocate_experts(memory_shape(*device_->backend(), shape, places, loader.experts));
  if (packs_) pack_scratch_ = DeviceMemory(device_->backend(), pack_scratch_bytes(shape));
  for (int i = 0; i < count; i++) {
    Slot& slot = slots_[static_cast<size_t>(i)];
    slot.mutex = &mutex_;
    slot.memory = memory_.get();
    slot.backend = device_->backend().get();
    slot.index = i;
    if (!shape.glu.bias) continue;
    slot.matrices.bias_memory = DeviceMemory(device_->backend(), float_bytes(shape.bias_count()));
    slot.matrices.biases = slot.matrices.bias_memory.floats();
  }
  held_ = std::make_unique<HostChunkTable>();
  loader_ = std::make_unique<ExpertLoader>(device_->backend(), shape, count, loader);
}

ExpertSlots::~ExpertSlots() = default;

ExpertSlots::Slot& ExpertSlots::slot_at(int slot) {
  if (slot >= 0 && slot < count()) return slots_[static_cast<size_t>(slot)];
  throw Error(ErrorCode::internal, "slot " + std::to_string(slot) + " of " + std::to_string(count()));
}

ExpertSlots::Call::Call(std::shared_ptr<ExpertSlots> slots, int index, Kind kind) : slot_(index), kind_(kind) {
  slots->begin_call(index, kind);
  slots_ = std::move(slots);
}

void ExpertSlots::begin_call(int index, Call::Kind kind) {
  Slot& slot = slot_at(index);
  const std::string name = "slot " + std::to_string(index);
  std::unique_lock lock(mutex_);
  if (slot.loading) throw Error(ErrorCode::internal, name + " is being loaded; await the load, or cancel and await it");
  if (kind == Call::Kind::execute || kind == Call::Kind::execute_upper) return begin_execute(slot, kind);
  if (slot.changes_lower) {
    throw Error(ErrorCode::internal, name + " is getting its lower slices; await the load, or cancel and await it");
  }
  if (kind == Call::Kind::load) {
    if (slot.executing > 0) throw Error(ErrorCode::internal, name + " is executing; await that before loading over it");
    slot.loading = true;
    slot.loaded = false;
    slot.lower_loaded = false;
    slot.loads++;
    lock.unlock();
    // Waits until a pack no longer reads the slot's old expert.
    const std::lock_guard piece(piece_mutex_);
    return;
  }
  if (kind == Call::Kind::load_lower && (!slot.loaded || slot.lower_loaded)) {
    throw Error(ErrorCode::internal,
                name + " holds " + (slot.loaded ? "both slices already" : "no upper slices to add lower ones to"));
  }
  if (slot.reading_lower > 0) throw Error(ErrorCode::internal, name + "'s lower slices are executing; await that first");
  slot.changes_lower = true;
}

// The caller holds mutex_.
void ExpertSlots::begin_execute(Slot& slot, Call::Kind kind) {
  const std::string name = "slot " + std::to_string(slot.index);
  if (!slot.loaded) throw Error(ErrorCode::internal, name + " holds no expert to execute");
  if (kind == Call::Kind::execute && is_sliced()) {
    if (!slot.lower_loaded) throw Error(ErrorCode::internal, name + " holds upper slices alone; load the lower ones first");
    slot.reading_lower++;
  }
  slot.executing++;
}

ExpertSlots::Call::~Call() {
  if (slots_ == nullptr) return;
  Slot& slot = slots_->slot_at(slot_);
  const std::lock_guard lock(slots_->mutex_);
  switch (kind_) {
    case Kind::load: slot.loading = false; break;
    case Kind::load_lower:
    case Kind::move_lower: slot.changes_lower = false; break;
    case Kind::execute:
      if (slots_->is_sliced()) slot.reading_lower--;
      slot.executing--;
      break;
    case Kind::execute_upper: slot.executing--; break;
  }
}

ExpertSlots::Call::Kind ExpertSlots::load_kind(const LoadRequest& request) {
  if (is_wanted(request.exponents)) return Call::Kind::load;
  if (is_wanted(request.sign_mantissa)) return Call::Kind::load_lower;
  throw Error(ErrorCode::internal, "a load wants neither part of its expert");
}

ExpertSlots::Call::Kind ExpertSlots::execute_kind(std::span<const SliceReading> readings) {
  const bool upper = std::none_of(readings.begin(), readings.end(), [](SliceReading one) { return one == SliceReading::both; });
  return upper && !readings.empty() ? Call::Kind::execute_upper : Call::Kind::execute;
}

void ExpertSlots::set_pages(Slot& slot, const ExpertPages& pages, const ExpertFormats& formats) {
  StoredMatrix& gate_up = slot.matrices.gate_up;
  StoredMatrix& down = slot.matrices.down;
  const int64_t rows = shape_.glu.gate_rows();
  down.matrix = {formats.down, shape_.hidden_size, shape_.glu.intermediate_size, pages.down, down.lower_memory.buffer()};
  if (shares_matrix(formats, rows)) {
    gate_up.matrix = {formats.gate, 2 * rows, shape_.hidden_size, pages.gate_up, gate_up.lower_memory.buffer()};
    slot.matrices.up.matrix = {};
    return;
  }
  const uint64_t offset = up_offset(*device_->backend(), formats, shape_);
  DeviceBuffer up = pages.gate_up;
  up.data = static_cast<uint8_t*>(up.data) + offset;
  up.bytes -= offset;
  gate_up.matrix = {formats.gate, rows, shape_.hidden_size, pages.gate_up};
  slot.matrices.up.matrix = {formats.up, rows, shape_.hidden_size, up};
}

// Nothing reads the old biases: no execute is running.
bool ExpertSlots::Slot::copy_biases(std::exception_ptr& error) noexcept {
  try {
    backend->copy_to_device(matrices.bias_memory.floats(), biases.data(), biases.size() * sizeof(float));
    return true;
  } catch (...) {
    error = std::current_exception();
    return false;
  }
}

void ExpertSlots::Slot::settled(const LoadOutcome& told, std::exception_ptr error) noexcept {
  LoadOutcome outcome = told;
  if (outcome.loaded && wants_upper && !biases.empty()) outcome.loaded = copy_biases(error);
  if (wants_upper) memory->end_load(index, outcome.loaded);
  {
    const std::lock_guard lock(*mutex);
    if (wants_upper) loaded = outcome.loaded;
    lower_loaded = outcome.loaded && wants_lower;
  }
  listener->settled(outcome, std::move(error));
}

void ExpertSlots::load(const Call& call, const ExpertSource& source, const LoadRequest& request, LoadListener& listener) {
  const int index = call.slot();
  Slot& slot = slot_at(index);
  if (!slot.has_memory) throw Error(ErrorCode::internal, "slot " + std::to_string(index) + " has given its memory back");
  check_load(call, source, request);
  const ExpertFormats formats = slot_formats(shape_, source);
  slot.listener = &listener;
  slot.wants_upper = is_wanted(request.exponents);
  slot.wants_lower = is_wanted(request.sign_mantissa);
  if (slot.wants_upper) {
    slot.biases = source.biases;
    slot.glu_limit = source.glu_limit;
    slot.upper_fingerprint = upper_fingerprint(source);
    set_pages(slot, memory_->begin_load(index, request.expert), formats);
  }
  try {
    loader_->load(index, slot.matrices, source, request, slot, held_->find(request.held));
  } catch (...) {
    if (slot.wants_upper) memory_->end_load(index, false);
    throw;
  }
}

void ExpertSlots::check_load(const Call& call, const ExpertSource& source, const LoadRequest& request) {
  const Slot& slot = slot_at(call.slot());
  const std::string name = "slot " + std::to_string(call.slot());
  check_expert_source(source, shape_, "the expert for " + name);
  if (call.kind() != load_kind(request)) throw Error(ErrorCode::internal, "a load of " + name + " wants other parts than its call");
  if (!is_sliced()) {
    if (is_wanted(request.exponents) && is_wanted(request.sign_mantissa)) return;
    throw Error(ErrorCode::internal, "only a sliced expert is usable without one of its parts");
  }
  check_slices(source, shape_.format, SliceReading::both);
  if (is_wanted(request.sign_mantissa) && slot.matrices.down.lower_memory.empty()) {
    throw Error(ErrorCode::internal, name + " has no memory for lower slices; take it first");
  }
  if (call.kind() == Call::Kind::load_lower && slot.upper_fingerprint != upper_fingerprint(source)) {
    throw Error(ErrorCode::internal, name + " holds the upper slices of another expert");
  }
}

void ExpertSlots::let_go(const Call& call) {
  Slot& slot = slot_at(call.slot());
  memory_->let_go(call.slot());
  release_lower(slot);
  slot.has_memory = false;
}

void ExpertSlots::let_go_lower(const Call& call) { release_lower(slot_at(call.slot())); }

void ExpertSlots::release_lower(Slot& slot) {
  DeviceMemory released[2];
  const std::lock_guard lock(mutex_);
  slot.lower_loaded = false;
  released[0] = std::exchange(slot.matrices.gate_up.lower_memory, {});
  released[1] = std::exchange(slot.matrices.down.lower_memory, {});
  slot.matrices.gate_up.matrix.lower = {};
  slot.matrices.down.matrix.lower = {};
}

void ExpertSlots::take_lower(const Call& call) {
  if (!is_sliced()) throw Error(ErrorCode::internal, "these slots hold experts that are not sliced");
  Slot& slot = slot_at(call.slot());
  if (!slot.matrices.down.lower_memory.empty()) return;
  const int64_t intermediate = shape_.glu.intermediate_size;
  const std::shared_ptr<Backend>& backend = device_->backend();
  DeviceMemory gate_up(backend, backend->lower_slice_bytes(shape_.format, 2 * shape_.glu.gate_rows(), shape_.hidden_size));
  DeviceMemory down(backend, backend->lower_slice_bytes(shape_.format, shape_.hidden_size, intermediate));
  // Executes may read the slot's upper slices meanwhile.
  const std::lock_guard lock(mutex_);
  slot.matrices.gate_up.lower_memory = std::move(gate_up);
  slot.matrices.down.lower_memory = std::move(down);
  slot.matrices.gate_up.matrix.lower = slot.matrices.gate_up.lower_memory.buffer();
  slot.matrices.down.matrix.lower = slot.matrices.down.lower_memory.buffer();
}

void ExpertSlots::take(const Call& call) {
  memory_->take(call.slot());
  slot_at(call.slot()).has_memory = true;
}

void ExpertSlots::cancel(int index) { loader_->cancel(slot_at(index).index); }

void ExpertSlots::prioritize(int index) { loader_->prioritize(slot_at(index).index); }

void ExpertSlots::reorder(int index, const std::optional<ExpertOrder>& order) { loader_->reorder(slot_at(index).index, order); }

uint64_t ExpertSlots::new_hold() { return held_->new_ticket(); }

HoldOutcome ExpertSlots::hold(uint64_t ticket, int64_t number, const ExpertSource& source) {
  check_expert_source(source, shape_, "the expert for host memory");
  if (!held_->is_wanted(ticket)) return {};
  AwaitedFill fill;
  std::shared_ptr<const HostChunks> chunks = loader_->fill(source, fill);
  // A cancel before the fill had begun found nothing to cancel, so it is repeated here.
  if (!held_->is_wanted(ticket)) loader_->cancel_fill();
  const LoadOutcome outcome = fill.wait();
  if (!outcome.loaded) return {.held = false, .bytes = 0, .read_bytes = outcome.read_bytes};
  const uint64_t bytes = chunks->bytes();
  held_->put(number, std::move(chunks));
  return {.held = true, .bytes = bytes, .read_bytes = outcome.read_bytes};
}

void ExpertSlots::cancel_hold() {
  held_->cancel_tickets();
  loader_->cancel_fill();
}

void ExpertSlots::drop_held(int64_t number) { held_->drop(number); }

uint64_t ExpertSlots::held_bytes() const { return held_->bytes(); }

StorageReads ExpertSlots::storage_reads() const { return loader_->storage_reads(); }

uint64_t ExpertSlots::new_pack() {
  const std::lock_guard lock(mutex_);
  return ++pack_tickets_;
}

void ExpertSlots::cancel_pack() {
  const std::lock_guard lock(mutex_);
  cancelled_packs_ = pack_tickets_;
}

// The caller holds mutex_.
bool ExpertSlots::is_packable(const Packing& packing) {
  const Slot& slot = slot_at(packing.slot);
  return packing.ticket > cancelled_packs_ && slot.loaded && !slot.loading && slot.loads == packing.loads;
}

PackResult ExpertSlots::pack(uint64_t ticket, int index) {
  if (!packs_) throw Error(ErrorCode::internal, "these slots have no memory to pack experts into");
  const Slot& slot = slot_at(index);
  Packing packing{.ticket = ticket, .slot = index};
  Matrix from[2];
  {
    const std::lock_guard lock(mutex_);
    packing.loads = slot.loads;
    if (!is_packable(packing)) return PackResult::given_up;
    from[0] = slot.matrices.gate_up.matrix;
    from[1] = slot.matrices.down.matrix;
  }
  if (from[0].format == WeightFormat::fixed4) return PackResult::packed;
  const ExpertPages pages = memory_->begin_load(count(), kNoExpert);
  Matrix to[2] = {from[0], from[1]};
  to[0].storage = pages.gate_up;
  to[1].storage = pages.down;
  for (Matrix& matrix : to) {
    matrix.format = WeightFormat::fixed4;
    if (device_->backend()->matrix_bytes(matrix.format, matrix.rows, matrix.columns) > matrix.storage.bytes)
      return PackResult::unfit;
  }
  const PackResult result = pack_pieces(packing, to, from);
  if (result != PackResult::packed) return result;
  return adopt(packing, to) ? PackResult::packed : PackResult::given_up;
}

PackResult ExpertSlots::pack_pieces(const Packing& packing, Matrix (&to)[2], const Matrix (&from)[2]) {
  for (int i = 0; i < 2; i++) {
    for (int64_t row = 0; row < from[i].rows; row += packed_piece_rows(from[i].columns)) {
      const std::lock_guard piece(piece_mutex_);
      {
        const std::lock_guard lock(mutex_);
        if (!is_packable(packing)) return PackResult::given_up;
      }
      if (!pack_piece(*device_->backend(), to[i], from[i], row, pack_scratch_.floats())) return PackResult::unfit;
    }
  }
  return PackResult::packed;
}

// False: the slot's expert was replaced, or it executes from its old place.
bool ExpertSlots::adopt(const Packing& packing, const Matrix (&to)[2]) {
  const std::lock_guard lock(mutex_);
  Slot& slot = slot_at(packing.slot);
  if (!is_packable(packing) || slot.executing > 0) return false;
  memory_->exchange(packing.slot, count());
  slot.matrices.gate_up.matrix = to[0];
  slot.matrices.down.matrix = to[1];
  return true;
}

ExpertMatrices ExpertSlots::read_as(Slot& slot, SliceReading reading) {
  const bool lower = reading == SliceReading::both;
  ExpertMatrices read;
  const std::lock_guard lock(mutex_);
  read.biases = slot.matrices.biases;
  read.up.matrix = slot.matrices.up.matrix;
  for (const auto& [to, from] :
       {std::pair{&read.gate_up.matrix, &slot.matrices.gate_up.matrix}, std::pair{&read.down.matrix, &slot.matrices.down.matrix}}) {
    *to = *from;
    to->reading = reading;
    if (!lower) to->lower = {};
  }
  return read;
}

void ExpertSlots::check_readings(const Call& call, int rows, std::span<const SliceReading> readings) const {
  if (!readings.empty() && readings.size() != static_cast<size_t>(rows)) {
    throw Error(ErrorCode::internal, std::to_string(readings.size()) + " readings of " + std::to_string(rows) + " rows");
  }
  if (call.kind() != execute_kind(readings)) throw Error(ErrorCode::internal, "an execute reads other slices than its call");
  const bool both = std::all_of(readings.begin(), readings.end(), [](SliceReading one) { return one == SliceReading::both; });
  if (!both && !is_sliced()) throw Error(ErrorCode::internal, "only a sliced expert has upper slices to be read alone");
}

double ExpertSlots::execute(const Call& call, int rows, std::span<const uint8_t> hidden, std::span<uint8_t> output,
                            std::span<const SliceReading> readings) {
  const int index = call.slot();
  Slot& slot = slot_at(index);
  const uint64_t row_bytes = float_bytes(shape_.hidden_size);
  if (rows < 1 || rows > max_rows_ || hidden.size() != static_cast<uint64_t>(rows) * row_bytes || output.size() != hidden.size()) {
    throw Error(ErrorCode::internal, std::to_string(rows) + " rows for slots of at most " + std::to_string(max_rows_) +
                                         ", or buffers that do not fit them");
  }
  check_readings(call, rows, readings);
  const auto start = Clock::now();
  Backend& backend = *device_->backend();
  const std::array<ExpertMatrices, kSliceReadings> experts = {
      read_as(slot, SliceReading::both), read_as(slot, SliceReading::upper_centred), read_as(slot, SliceReading::upper_amat)};
  GluShape glu = shape_.glu;
  glu.limit = slot.glu_limit.value_or(glu.limit);
  for (int done = 0; done < rows; done += activations_.rows) {
    const int n = std::min(activations_.rows, rows - done);
    const uint64_t offset = static_cast<uint64_t>(done) * row_bytes;
    const uint64_t bytes = static_cast<uint64_t>(n) * row_bytes;
    backend.copy_to_device(activations_.input.floats(), hidden.data() + offset, bytes);
    const std::vector<ExpertRows> runs =
        runs_of(experts, readings.empty() ? readings : readings.subspan(static_cast<size_t>(done), static_cast<size_t>(n)), n);
    memory_->begin_read(index);
    run_experts(backend, glu, runs, activations_, activations_.output.floats(), activations_.input.floats());
    memory_->end_read(index);
    backend.copy_to_host(output.data() + offset, activations_.output.floats(), bytes);
  }
  return milliseconds_since(start);
}

}  // namespace odmoe
