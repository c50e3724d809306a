// Canonical prefix codes of limited length over byte values.
#pragma once
#include <array>
#include <cstdint>

#include "histogram.h"

namespace odmoe {

// Code lengths by value, in bits; 0: the value has no code.
using CodeLengths = std::array<uint8_t, 256>;

// An optimal code among the codes with at most `longest` bits, by package-merge (Larmore and Hirschberg 1990). It is always
// complete: a lone value gets a partner that does not occur. At least one count is not zero; `longest` is 8 or more.
CodeLengths limited_code_lengths(const Histogram& counts, int longest);

// Codes by value, for a stream whose bits are filled from the lowest: the first bit of a code is its lowest bit. Canonical: codes
// rise with length, then with value.
std::array<uint16_t, 256> canonical_codes(const CodeLengths& lengths);

// True if every sequence of bits begins with exactly one code.
bool is_complete(const CodeLengths& lengths, int longest);

}  // namespace odmoe
