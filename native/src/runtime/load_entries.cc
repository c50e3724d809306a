#include "load_entries.h"

#include <functional>
#include <string>
#include <string_view>

#include "odmoe/error.h"

namespace odmoe {
namespace {

uint64_t mixed(uint64_t sum, uint64_t value) {
  sum = (sum ^ value) * 0x9E3779B97F4A7C15u;
  return sum ^ (sum >> 29);
}

}  // namespace

uint64_t part_fingerprint(const TensorSource* const* tensors, size_t count, Part part) {
  uint64_t sum = 0;
  for (size_t i = 0; i < count; i++) {
    sum = mixed(sum, i);
    for (const ChunkLocation& chunk : tensors[i]->chunks) {
      if ((chunk.plane == 0) != (part == Part::exponents)) continue;
      // The directory is left out: a pack that was repaired in another folder holds the same parts.
      const std::string_view path = chunk.path;
      sum = mixed(sum, std::hash<std::string_view>()(path.substr(path.rfind('/') + 1)));
      sum = mixed(sum, chunk.offset_bytes);
      sum = mixed(sum, chunk.stored_bytes);
      sum = mixed(sum, chunk.crc32c.value_or(0));
    }
  }
  return sum;
}

PartEntries::PartEntries(Part part, uint8_t* memory, int count, uint64_t bytes_each)
    : part_(part), memory_(memory), bytes_each_(bytes_each), entries_(static_cast<size_t>(count)) {}

PartEntries::Entry& PartEntries::entry_at(int entry) {
  if (entry < 0 || static_cast<size_t>(entry) >= entries_.size()) refuse(entry, "there is no such entry");
  return entries_[static_cast<size_t>(entry)];
}

void PartEntries::refuse(int entry, const char* why) const {
  throw Error(ErrorCode::internal, std::string(part_ == Part::exponents ? "exponent" : "sign-mantissa") + " entry " +
                                       std::to_string(entry) + " of " + std::to_string(entries_.size()) + ": " + why);
}

void PartEntries::begin_write(int entry, uint64_t fingerprint) {
  Entry& at = entry_at(entry);
  if (at.writing) refuse(entry, "another load is writing it");
  if (at.readers > 0) refuse(entry, "a load is reading it, so it cannot be written");
  at = {fingerprint, false, true, 0};
}

void PartEntries::end_write(int entry, bool complete) {
  Entry& at = entry_at(entry);
  at.writing = false;
  at.complete = complete;
}

void PartEntries::begin_read(int entry, uint64_t fingerprint) {
  Entry& at = entry_at(entry);
  if (at.writing) refuse(entry, "another load is writing it");
  if (!at.complete) refuse(entry, "it does not hold a whole part");
  if (at.fingerprint != fingerprint) refuse(entry, "it holds the part of another expert");
  at.readers++;
}

void PartEntries::end_read(int entry) { entry_at(entry).readers--; }

}  // namespace odmoe
