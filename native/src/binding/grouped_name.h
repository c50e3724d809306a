// Names of grouped codes: "grouped4-bf16-g32", "grouped8-fp16-row-z-o6" (shared/model/block-formats.ts).
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "odmoe/formats.h"

namespace odmoe {

// Absent: the text is no such name, or a number is beyond its limit.
std::optional<GroupedCodes> grouped_codes_of(std::string_view name);
std::string grouped_name(const GroupedCodes& codes);

}  // namespace odmoe
