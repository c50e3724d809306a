#include "prefix_code.h"

#include <algorithm>
#include <vector>

namespace odmoe {
namespace {

// A value, or two items of the previous round together.
struct Item {
  uint64_t count;
  std::vector<uint8_t> values;
};

std::vector<Item> pairs_of(const std::vector<Item>& items) {
  std::vector<Item> pairs;
  for (size_t i = 0; i + 1 < items.size(); i += 2) {
    Item pair{items[i].count + items[i + 1].count, items[i].values};
    pair.values.insert(pair.values.end(), items[i + 1].values.begin(), items[i + 1].values.end());
    pairs.push_back(std::move(pair));
  }
  return pairs;
}

uint16_t reversed(uint32_t code, int length) {
  uint32_t result = 0;
  for (int i = 0; i < length; i++) result |= (code >> i & 1) << (length - 1 - i);
  return static_cast<uint16_t>(result);
}

}  // namespace

CodeLengths limited_code_lengths(const Histogram& counts, int longest) {
  std::vector<Item> singles;
  for (size_t value = 0; value < counts.size(); value++) {
    if (counts[value] > 0) singles.push_back({counts[value], {static_cast<uint8_t>(value)}});
  }
  if (singles.size() == 1) singles.push_back({0, {static_cast<uint8_t>(singles[0].values[0] ^ 1)}});
  const auto rarer = [](const Item& a, const Item& b) { return a.count < b.count; };
  std::stable_sort(singles.begin(), singles.end(), rarer);
  std::vector<Item> items = singles;
  for (int round = 1; round < longest; round++) {
    const std::vector<Item> pairs = pairs_of(items);
    items.clear();
    std::merge(singles.begin(), singles.end(), pairs.begin(), pairs.end(), std::back_inserter(items), rarer);
  }
  // A value's code has one bit for each of the cheapest 2n - 2 items that contain the value.
  CodeLengths lengths{};
  for (size_t i = 0; i < 2 * singles.size() - 2; i++) {
    for (const uint8_t value : items[i].values) lengths[value]++;
  }
  return lengths;
}

std::array<uint16_t, 256> canonical_codes(const CodeLengths& lengths) {
  std::array<uint16_t, 256> codes{};
  uint32_t code = 0;
  const int longest = *std::max_element(lengths.begin(), lengths.end());
  for (int length = 1; length <= longest; length++, code <<= 1) {
    for (size_t value = 0; value < lengths.size(); value++) {
      if (lengths[value] == length) codes[value] = reversed(code++, length);
    }
  }
  return codes;
}

bool is_complete(const CodeLengths& lengths, int longest) {
  uint64_t share = 0;
  for (const int length : lengths) {
    if (length > longest) return false;
    if (length > 0) share += uint64_t{1} << (longest - length);
  }
  return share == uint64_t{1} << longest;
}

}  // namespace odmoe
