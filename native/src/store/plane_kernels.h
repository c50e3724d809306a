// The inner loops of the codecs, once for each instruction set. All sets give the same bytes.
#pragma once
#include <cstdint>

namespace odmoe {

// fixed4: values come in groups of 32, whose codes are 16 bytes: byte j holds the code of value j below that of value 16 + j.
inline constexpr uint64_t kGroupValues = 32;
inline constexpr uint64_t kGroupCodeBytes = 16;

// huffman: a stream holds the codes of 128 values; four streams are decoded side by side.
inline constexpr uint64_t kStreamValues = 128;
inline constexpr int kStreamsAtOnce = 4;
inline constexpr int kLongestCode = 11;
inline constexpr uint64_t kLookupEntries = uint64_t{1} << kLongestCode;
// Bytes that decoding may read from a stream's first byte on, even beyond the stream.
inline constexpr uint64_t kStreamReadBytes = 192;

// e4m3: values come in groups of 32. Byte j of a group's 16 exponent bytes holds the exponent of value j in its low four bits and
// that of value 16 + j in its high ones; the bytes of sign and mantissa likewise, with the sign in bit 3.
inline constexpr uint64_t kE4m3GroupValues = 32;
inline constexpr uint64_t kE4m3GroupBytes = 16;

struct PlaneKernels {
  const char* name;

  // Looks codes up in a table of 16 values: `groups` groups of 32 values.
  void (*expand_codes)(const uint8_t* codes, const uint8_t* table, uint8_t* out, uint64_t groups);

  // Decodes four whole streams into 4 * 128 bytes. lookup[bits] for the next kLongestCode bits: up to six values in the low bytes,
  // their count in byte 6 (1 to 6), the bits that their codes take in byte 7 (1 to kLongestCode).
  void (*decode_streams)(const uint64_t* lookup, const uint8_t* const* streams, uint8_t* out);

  // Like merge_bf16 in odmoe/codec.h.
  void (*merge_bf16)(const uint8_t* exponents, const uint8_t* sign_mantissas, uint8_t* out, uint64_t count, bool streaming);

  // Joins `groups` groups of 32 E4M3 values. The exponents may be the second half of the room for the values.
  void (*join_e4m3)(const uint8_t* exponents, const uint8_t* sign_mantissas, uint8_t* out, uint64_t groups);
};

extern const PlaneKernels kAvx512PlaneKernels;
extern const PlaneKernels kAvx2PlaneKernels;
extern const PlaneKernels kNeonPlaneKernels;
extern const PlaneKernels kScalarPlaneKernels;

// The kernels that this processor can use, widest first; a null pointer ends the list.
const PlaneKernels* const* usable_plane_kernels();
// The widest kernels, or those that ODMOE_INSTRUCTION_SET names if they are usable.
const PlaneKernels& plane_kernels();

}  // namespace odmoe
