// The vectors of the instruction set for which a unit is compiled. The build names the set (ODMOE_INSTRUCTION_SET, the namespace of
// what the units of a set share) and the header with its Simd (ODMOE_SIMD).
#pragma once
#include ODMOE_SIMD
