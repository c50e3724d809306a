// Converts names from JavaScript to members of an enumeration, and back.
#pragma once
#include <napi.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <string>
#include <string_view>

#include "odmoe/error.h"

namespace odmoe {

template <typename Enumeration>
struct Named {
  Enumeration member;
  const char* name;
};

// The index of a name. `argument`: for the error.
template <size_t Count>
size_t to_index(const Napi::Value& value, const char* argument, const std::array<std::string_view, Count>& names) {
  const std::string name = value.IsString() ? value.As<Napi::String>().Utf8Value() : "no string";
  const auto found = std::find(names.begin(), names.end(), name);
  if (found != names.end()) return static_cast<size_t>(std::distance(names.begin(), found));
  std::string wanted;
  for (const std::string_view allowed : names) wanted += (wanted.empty() ? "" : ", ") + std::string(allowed);
  throw Error(ErrorCode::internal, std::string("native call: ") + argument + " is " + name + ", but must be one of " + wanted);
}

// The member at the index of a name; the list of names has the order of the enumeration.
template <typename Enumeration, size_t Count>
Enumeration to_enumeration(const Napi::Value& value, const char* argument, const std::array<std::string_view, Count>& names) {
  return static_cast<Enumeration>(to_index(value, argument, names));
}

template <typename Enumeration, size_t Count>
Enumeration to_enumeration(const Napi::Value& value, const char* argument, const std::array<Named<Enumeration>, Count>& members) {
  std::array<std::string_view, Count> names;
  std::transform(members.begin(), members.end(), names.begin(), [](const auto& named) { return named.name; });
  return members[to_index(value, argument, names)].member;
}

template <typename Enumeration, size_t Count>
const char* name_of(Enumeration member, const std::array<Named<Enumeration>, Count>& members) {
  const auto found = std::find_if(members.begin(), members.end(), [&](const auto& named) { return named.member == member; });
  if (found == members.end()) throw Error(ErrorCode::internal, "a member of an enumeration has no name");
  return found->name;
}

}  // namespace odmoe
