// Parts of experts that stay in memory from one load to another (ZipMoE's E, S and C pools; the caller decides which part is in
// which entry). Not synchronized: the loader's lock guards everything except the bytes.
#pragma once
#include <cstdint>
#include <vector>

#include "load_plan.h"

namespace odmoe {

// Distinguishes the parts of experts by their places in storage and their checksums.
uint64_t part_fingerprint(const TensorSource* const* tensors, size_t count, Part part);

class PartEntries {
 public:
  // `memory`: count x bytes_each, on a boundary of kReadAlignment.
  PartEntries(Part part, uint8_t* memory, int count, uint64_t bytes_each);

  // Between a begin and its end nothing else writes the entry. Both throw INTERNAL for an entry that does not exist or is being
  // written. begin_write also throws it for an entry that is being read, and begin_read for one that does not hold the whole part.
  void begin_write(int entry, uint64_t fingerprint);
  void end_write(int entry, bool complete);
  void begin_read(int entry, uint64_t fingerprint);
  void end_read(int entry);

  uint8_t* bytes(int entry) const { return memory_ + static_cast<uint64_t>(entry) * bytes_each_; }

 private:
  struct Entry {
    uint64_t fingerprint = 0;
    bool complete = false;
    bool writing = false;
    int readers = 0;
  };

  Entry& entry_at(int entry);
  [[noreturn]] void refuse(int entry, const char* why) const;

  Part part_;
  uint8_t* memory_;
  uint64_t bytes_each_;
  std::vector<Entry> entries_;
};

}  // namespace odmoe
