#include "grouped_name.h"

#include <array>
#include <charconv>

namespace odmoe {
namespace {

constexpr std::array<std::string_view, 3> kScaleNames = {"bf16", "fp16", "fp32"};

// Takes a prefix from the text; false if the text does not begin with it.
bool take(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

// Takes a number from 1 to the limit.
bool take_number(std::string_view& text, int& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || text.front() == '0' || number < 1 || number > kMostGroupedNumber) return false;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return true;
}

}  // namespace

std::optional<GroupedCodes> grouped_codes_of(std::string_view name) {
  GroupedCodes codes;
  if (take(name, "grouped8-")) {
    codes.bits = 8;
  } else if (!take(name, "grouped4-")) {
    return std::nullopt;
  }
  bool found = false;
  for (size_t i = 0; i < kScaleNames.size() && !found; i++) {
    found = take(name, kScaleNames[i]);
    if (found) codes.scales = static_cast<ScaleType>(i);
  }
  if (!found) return std::nullopt;
  if (!take(name, "-row") && (!take(name, "-g") || !take_number(name, codes.group) || codes.group % 32 != 0)) return std::nullopt;
  codes.zeros = take(name, "-z");
  if (take(name, "-o") && !take_number(name, codes.order_bytes)) return std::nullopt;
  return name.empty() ? std::optional(codes) : std::nullopt;
}

std::string grouped_name(const GroupedCodes& codes) {
  std::string name = "grouped" + std::to_string(codes.bits) + "-" + std::string(kScaleNames[static_cast<size_t>(codes.scales)]);
  name += codes.group == 0 ? "-row" : "-g" + std::to_string(codes.group);
  if (codes.zeros) name += "-z";
  if (codes.order_bytes > 0) name += "-o" + std::to_string(codes.order_bytes);
  return name;
}

}  // namespace odmoe
