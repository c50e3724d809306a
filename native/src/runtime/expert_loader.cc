#include "expert_loader.h"

#include <algorithm>
#include <string>
#include <utility>

#include "odmoe/error.h"
#include "odmoe/float_environment.h"

namespace odmoe {
namespace {

uint64_t fingerprint_of(const ExpertSource& source, Part part) {
  const TensorSource* const tensors[] = {&source.gate, &source.up, &source.down};
  return part_fingerprint(tensors, kExpertTensors, part);
}

uint64_t stored_bytes(const ExpertSource& source, Part part) {
  uint64_t bytes = 0;
  for (size_t tensor = 0; tensor < kExpertTensors; tensor++) {
    for (const ChunkLocation& chunk : tensor_of(source, tensor).chunks) {
      if ((chunk.plane == 0) == (part == Part::exponents)) bytes += chunk.stored_bytes;
    }
  }
  return bytes;
}

double milliseconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

// The matrix that gets the rows of gate, up or down.
StoredMatrix& matrix_of(ExpertMatrices& matrices, size_t tensor) {
  if (tensor == 2) return matrices.down;
  return tensor == 1 && matrices.has_up() ? matrices.up : matrices.gate_up;
}

OpenedQueue queue_for(const LoaderOptions& options, std::unique_ptr<StorageQueue> given) {
  if (given != nullptr) return {std::move(given), ""};
  return open_storage_queue(options.storage_way, read_depth(options), options.direct_io);
}

}  // namespace

ExpertLoader::ExpertLoader(std::shared_ptr<Backend> backend, const ExpertShape& shape, int slots, const LoaderOptions& options,
                           std::unique_ptr<StorageQueue> queue)
    : ExpertLoader(std::move(backend), shape, slots, options, queue_for(options, std::move(queue))) {}

ExpertLoader::ExpertLoader(std::shared_ptr<Backend> backend, const ExpertShape& shape, int slots, const LoaderOptions& options,
                           OpenedQueue queue)
    : backend_(std::move(backend)),
      layout_(load_memory_layout(shape, options)),
      memory_(backend_, layout_, options),
      shard_buffers_(memory_.shard_buffers(), layout_.shard_buffers, layout_.limits.shard_buffer_bytes),
      piece_buffers_(memory_.piece_buffers(), layout_.piece_buffers, layout_.limits.piece_buffer_bytes),
      entries_{PartEntries(Part::exponents, memory_.entries(Part::exponents), options.exponent_entries,
                           layout_.limits.entry_bytes[index_of(Part::exponents)]),
               PartEntries(Part::sign_mantissa, memory_.entries(Part::sign_mantissa), options.sign_mantissa_entries,
                           layout_.limits.entry_bytes[index_of(Part::sign_mantissa)])},
      loads_(static_cast<size_t>(slots) + 1),
      reads_{.way = queue.queue->way(),
             .depth = read_depth(options),
             .direct = options.direct_io,
             .direct_refused = false,
             .ring_refusal = std::move(queue.refusal)},
      flights_(static_cast<size_t>(reads_.depth)),
      pacer_(options.storage_bytes_per_s),
      reader_(std::move(queue.queue), reads_.depth, options.direct_io) {
  active_.reserve(loads_.size());
  try {
    start_threads();
  } catch (...) {
    stop_threads();
    throw;
  }
}

ExpertLoader::~ExpertLoader() { stop_threads(); }

void ExpertLoader::start_threads() {
  threads_.emplace_back([this] { read_loop(); });
  for (int i = 0; i < layout_.threads; i++) {
    threads_.emplace_back([this, i] { recover_loop(i); });
  }
}

void ExpertLoader::stop_threads() {
  {
    Lock lock(mutex_);
    stopping_ = true;
    for (Load& load : loads_) {
      if (!load.active) continue;
      stop(load, nullptr);
      settle_if_over(load, lock);
    }
  }
  wake_reads();
  held_back_changed_.notify_all();
  pieces_changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

ExpertLoader::Load& ExpertLoader::load_at(int slot) {
  const size_t slots = loads_.size() - 1;
  if (slot >= 0 && static_cast<size_t>(slot) < slots) return loads_[static_cast<size_t>(slot)];
  throw Error(ErrorCode::internal, "slot " + std::to_string(slot) + " of " + std::to_string(slots));
}

void ExpertLoader::renew(Load& load, const ExpertSource& source, const LoadRequest& request, LoadListener& listener) {
  {
    const std::lock_guard lock(mutex_);
    if (load.active) throw Error(ErrorCode::internal, "an expert is being loaded there");
  }
  // No other thread reads a load that is not active.
  load.source = source;
  load.request = request;
  load.matrices = nullptr;
  load.listener = &listener;
  load.start = Clock::now();
  load.outcome = {};
  load.error = nullptr;
  load.filling = false;
  load.images = {};
  load.host.reset();
}

void ExpertLoader::use_host(Load& load, std::shared_ptr<const HostChunks> host) {
  for (const Part part : kBothParts) {
    PartPlan& plan = part == Part::exponents ? load.request.exponents : load.request.sign_mantissa;
    if (plan.from != PartOrigin::storage || plan.entry >= 0 || !host->is_of(part, fingerprint_of(load.source, part))) continue;
    plan = {PartOrigin::entry, 0};
    load.images[index_of(part)] = host->part(part);
    load.outcome.host_bytes += stored_bytes(load.source, part);
  }
  load.host = std::move(host);
}

HostChunks::PartSizes ExpertLoader::plan(Load& load) const {
  HostChunks::PartSizes used = {};
  for (size_t i = 0; i < kExpertTensors; i++) {
    plan_tensor(tensor_of(load.source, i), load.request, layout_.limits, used, load.plans[i]);
  }
  return used;
}

void ExpertLoader::load(int slot, ExpertMatrices& matrices, const ExpertSource& source, const LoadRequest& request,
                        LoadListener& listener, std::shared_ptr<const HostChunks> host) {
  Load& load = load_at(slot);
  renew(load, source, request, listener);
  load.matrices = &matrices;
  if (host != nullptr) use_host(load, std::move(host));
  try {
    plan(load);
    start(load);
  } catch (...) {
    // Otherwise the chunks would stay until something else is loaded there.
    load.host.reset();
    throw;
  }
}

std::shared_ptr<const HostChunks> ExpertLoader::fill(const ExpertSource& source, LoadListener& listener) {
  const PartPlan kept{PartOrigin::storage, 0};
  Load& load = loads_.back();
  renew(load, source, {.exponents = kept, .sign_mantissa = kept, .order = {}, .urgent = false}, listener);
  load.filling = true;
  const HostChunks::PartSizes fingerprints = {fingerprint_of(source, Part::exponents), fingerprint_of(source, Part::sign_mantissa)};
  auto chunks = std::make_shared<const HostChunks>(backend_, plan(load), fingerprints);
  load.images = {chunks->part(Part::exponents), chunks->part(Part::sign_mantissa)};
  load.host = chunks;
  start(load);
  return chunks;
}

void ExpertLoader::start(Load& load) {
  {
    const std::lock_guard lock(mutex_);
    begin_entries(load);
    load.begin(arrivals_++);
    load.active = true;
    active_.push_back(&load);
  }
  wake_reads();
  pieces_changed_.notify_all();
}

void ExpertLoader::cancel(int slot) { cancel(load_at(slot)); }

void ExpertLoader::cancel(Load& load) {
  Lock lock(mutex_);
  if (!load.active) return;
  stop(load, nullptr);
  settle_if_over(load, lock);
  lock.unlock();
  wake_reads();
  held_back_changed_.notify_all();
}

void ExpertLoader::prioritize(int slot) {
  Load& load = load_at(slot);
  {
    const std::lock_guard lock(mutex_);
    load.request.urgent = load.request.urgent || load.active;
  }
  // The load may now use the staging that is reserved for urgent loads.
  wake_reads();
}

void ExpertLoader::reorder(int slot, const std::optional<ExpertOrder>& order) {
  Load& load = load_at(slot);
  const std::lock_guard lock(mutex_);
  if (load.active) load.request.order = order;
}

void ExpertLoader::recover_loop(int thread) {
  use_exact_float_environment();
  PieceRecovery recovery(*backend_, memory_.scratch(thread), layout_.scratch_bytes);
  Lock lock(mutex_);
  while (true) {
    const std::optional<PieceOperation> piece = next_piece(active_);
    if (piece.has_value()) {
      do_piece(*piece, recovery, lock);
      continue;
    }
    if (stopping_) return;
    pieces_changed_.wait(lock);
  }
}

HolderMemory ExpertLoader::memory_of(const Load& load, size_t tensor, uint32_t piece) const {
  const TensorProgress& progress = load.progress[tensor];
  const int shard_buffer = progress.shard_buffers[load.plans[tensor].pieces[piece].shard];
  const int piece_buffer = progress.piece_buffers[piece];
  HolderMemory memory = {};
  if (shard_buffer != kNoBuffer) memory[static_cast<size_t>(Holder::shard_buffer)] = shard_buffers_.bytes(shard_buffer);
  if (piece_buffer != kNoBuffer) memory[static_cast<size_t>(Holder::piece_buffer)] = piece_buffers_.bytes(piece_buffer);
  const auto set_entry = [&](Part part, Holder holder) {
    const int entry = part_plan(load.request, part).entry;
    if (uint8_t* const image = load.images[index_of(part)]; image != nullptr) {
      memory[static_cast<size_t>(holder)] = image;
      return;
    }
    if (entry >= 0) memory[static_cast<size_t>(holder)] = entries_[index_of(part)].bytes(entry);
  };
  set_entry(Part::exponents, Holder::exponent_entry);
  set_entry(Part::sign_mantissa, Holder::sign_mantissa_entry);
  return memory;
}

void ExpertLoader::do_piece(const PieceOperation& operation, PieceRecovery& recovery, Lock& lock) {
  Load& load = static_cast<Load&>(*operation.task);
  const size_t tensor = operation.tensor;
  TensorProgress& progress = load.progress[tensor];
  StoredMatrix* const stored = load.matrices == nullptr ? nullptr : &matrix_of(*load.matrices, tensor);
  const StoredMatrix* const shared = load.matrices == nullptr ? nullptr : &load.matrices->gate_up;
  const PieceWork work{.source = &tensor_of(load.source, tensor),
                       .plan = &load.plans[tensor],
                       .piece = operation.piece,
                       .serial = load.arrival * kExpertTensors + tensor,
                       .memory = memory_of(load, tensor, operation.piece),
                       .matrix = stored == nullptr ? nullptr : &stored->matrix,
                       .first_row = tensor == 1 && stored == shared ? load.source.gate.rows : 0,
                       .slice_crcs = progress.slice_crcs,
                       .slices_left = progress.slices_left};
  load.running++;
  lock.unlock();
  const auto start = Clock::now();
  std::exception_ptr error;
  try {
    recovery.recover(work);
  } catch (...) {
    error = std::current_exception();
  }
  const double taken_ms = milliseconds_since(start);
  lock.lock();
  load.running--;
  load.outcome.decompress_ms += taken_ms;
  finish_piece(operation, shard_buffers_, piece_buffers_);
  wake_reads();
  if (error != nullptr) stop(load, error);
  settle_if_over(load, lock);
}

void ExpertLoader::begin_entries(Load& load) {
  begin_entry(load, Part::exponents);
  try {
    begin_entry(load, Part::sign_mantissa);
  } catch (...) {
    end_entry(load, Part::exponents, false);
    throw;
  }
}

void ExpertLoader::begin_entry(Load& load, Part part) {
  const PartPlan& plan = part_plan(load.request, part);
  if (load.images[index_of(part)] != nullptr) return;
  if (plan.from == PartOrigin::entry) {
    entries(part).begin_read(plan.entry, fingerprint_of(load.source, part));
  } else if (plan.entry >= 0) {
    entries(part).begin_write(plan.entry, fingerprint_of(load.source, part));
  }
}

void ExpertLoader::end_entry(Load& load, Part part, bool complete) {
  const PartPlan& plan = part_plan(load.request, part);
  if (load.images[index_of(part)] != nullptr) return;
  if (plan.from == PartOrigin::entry) {
    entries(part).end_read(plan.entry);
  } else if (plan.entry >= 0) {
    entries(part).end_write(plan.entry, complete);
  }
}

bool ExpertLoader::is_whole(const Load& load, Part part) {
  for (size_t tensor = 0; tensor < kExpertTensors; tensor++) {
    if (load.progress[tensor].reads_left(part)) return false;
    const TensorSource& source = tensor_of(load.source, tensor);
    for (size_t i = 0; i < source.chunks.size(); i++) {
      const bool of_part = (source.chunks[i].plane == 0) == (part == Part::exponents);
      if (of_part && load.progress[tensor].slices_left[i] > 0) return false;
    }
  }
  return true;
}

void ExpertLoader::stop(Load& load, std::exception_ptr error) {
  load.stopping = true;
  if (load.error == nullptr) load.error = std::move(error);
}

void ExpertLoader::settle_if_over(Load& load, Lock& lock) {
  if (!load.active || load.running > 0 || !(load.stopping || load.all_done())) return;
  give_back_all(load, shard_buffers_, piece_buffers_);
  LoadOutcome& outcome = load.outcome;
  outcome.loaded = !load.stopping;
  for (const Part part : kBothParts) {
    const bool whole = load.error == nullptr && is_whole(load, part);
    const bool kept = whole && part_plan(load.request, part).entry >= 0 && load.images[index_of(part)] == nullptr;
    (part == Part::exponents ? outcome.exponents_kept : outcome.sign_mantissa_kept) = kept;
    end_entry(load, part, whole);
  }
  active_.erase(std::find(active_.begin(), active_.end(), &load));
  load.active = false;
  outcome.load_ms = milliseconds_since(load.start);
  const LoadOutcome told = outcome;
  const std::exception_ptr error = std::exchange(load.error, nullptr);
  // Memory that was dropped meanwhile is freed without the lock, and before the listener is called.
  std::shared_ptr<const HostChunks> host = std::move(load.host);
  LoadListener& listener = *load.listener;
  lock.unlock();
  host.reset();
  listener.settled(told, error);
  lock.lock();
}

}  // namespace odmoe
