// Converts names from JavaScript to members of an enumeration.
#pragma once
#include <napi.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <string>
#include <string_view>

#include "odmoe/error.h"

namespace odmoe {

// The member at the index of a name; the list of names has the order of the enumeration.
template <typename Enumeration, size_t Count>
Enumeration to_enumeration(const Napi::Value& value, const std::array<std::string_view, Count>& names) {
  const std::string name = value.As<Napi::String>().Utf8Value();
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) throw Error(ErrorCode::internal, "'" + name + "' is none of the names allowed here");
  return static_cast<Enumeration>(std::distance(names.begin(), found));
}

}  // namespace odmoe
