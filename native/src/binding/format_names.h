// The names by which JavaScript calls formats, splits, codecs and readings of slices (shared/model/tensor-source.ts) and the parts of an expert
// (shared/model/expert-parts.ts).
#pragma once
#include <array>

#include "enumeration.h"
#include "odmoe/expert_load.h"
#include "odmoe/formats.h"
#include "odmoe/slices.h"

namespace odmoe {

inline constexpr std::array kWeightFormatNames = {
    Named{WeightFormat::bf16, "bf16"},
    Named{WeightFormat::fp16, "fp16"},
    Named{WeightFormat::fp32, "fp32"},
    Named{WeightFormat::int8, "int8"},
    Named{WeightFormat::nf4, "nf4"},
    Named{WeightFormat::fixed4, "fixed4"},
    Named{WeightFormat::mxfp4, "mxfp4"},
    Named{WeightFormat::fp8, "fp8"},
    Named{WeightFormat::sliced84, "sliced84"},
    Named{WeightFormat::sliced63, "sliced63"},
    Named{WeightFormat::sliced42, "sliced42"},
    Named{WeightFormat::fp8_row, "fp8-row"},
    Named{WeightFormat::fp8_tile, "fp8-tile"},
    Named{WeightFormat::mxfp8, "mxfp8"},
    Named{WeightFormat::nvfp4_multiplied, "nvfp4-multiplied"},
    Named{WeightFormat::nvfp4_divided, "nvfp4-divided"},
    Named{WeightFormat::q4_0, "q4_0"},
    Named{WeightFormat::q4_1, "q4_1"},
    Named{WeightFormat::q5_0, "q5_0"},
    Named{WeightFormat::q5_1, "q5_1"},
    Named{WeightFormat::q8_0, "q8_0"},
    Named{WeightFormat::q2_k, "q2_k"},
    Named{WeightFormat::q3_k, "q3_k"},
    Named{WeightFormat::q4_k, "q4_k"},
    Named{WeightFormat::q5_k, "q5_k"},
    Named{WeightFormat::q6_k, "q6_k"},
    Named{WeightFormat::iq4_nl, "iq4_nl"},
    Named{WeightFormat::iq4_xs, "iq4_xs"},
    Named{WeightFormat::grouped4, "grouped4"},
    Named{WeightFormat::grouped8, "grouped8"},
    Named{WeightFormat::shipped, "shipped"},
};

inline constexpr std::array kSplitNames = {
    Named{Split::none_bf16, "none-bf16"},
    Named{Split::none_fp16, "none-fp16"},
    Named{Split::none_fp32, "none-fp32"},
    Named{Split::bf16_e8_sm8, "bf16-e8-sm8"},
    Named{Split::fp16_hi8_lo8, "fp16-hi8-lo8"},
    Named{Split::fp32_e8_sm8_r16, "fp32-e8-sm8-r16"},
    Named{Split::fp16_e5_lo8_s1m2, "fp16-e5-lo8-s1m2"},
    Named{Split::mxfp4, "mxfp4"},
    Named{Split::fp8, "fp8"},
    Named{Split::sliced84, "sliced84"},
    Named{Split::sliced63, "sliced63"},
    Named{Split::sliced42, "sliced42"},
    Named{Split::fp8_row, "fp8-row"},
    Named{Split::fp8_tile, "fp8-tile"},
    Named{Split::mxfp8, "mxfp8"},
    Named{Split::nvfp4_multiplied, "nvfp4-multiplied"},
    Named{Split::nvfp4_divided, "nvfp4-divided"},
    Named{Split::q4_0, "q4_0"},
    Named{Split::q4_1, "q4_1"},
    Named{Split::q5_0, "q5_0"},
    Named{Split::q5_1, "q5_1"},
    Named{Split::q8_0, "q8_0"},
    Named{Split::q2_k, "q2_k"},
    Named{Split::q3_k, "q3_k"},
    Named{Split::q4_k, "q4_k"},
    Named{Split::q5_k, "q5_k"},
    Named{Split::q6_k, "q6_k"},
    Named{Split::iq4_nl, "iq4_nl"},
    Named{Split::iq4_xs, "iq4_xs"},
    Named{Split::grouped4, "grouped4"},
    Named{Split::grouped8, "grouped8"},
};

inline constexpr std::array kCodecNames = {
    Named{CodecKind::raw, "raw"},       Named{CodecKind::zstd, "zstd"},       Named{CodecKind::lz4hc, "lz4hc"},
    Named{CodecKind::fixed4, "fixed4"}, Named{CodecKind::huffman, "huffman"}, Named{CodecKind::packed3, "packed3"},
    Named{CodecKind::e4m3, "e4m3"},
};

inline constexpr std::array kSliceReadingNames = {
    Named{SliceReading::both, "both"},
    Named{SliceReading::upper_centred, "upperCentred"},
    Named{SliceReading::upper_amat, "upperAmat"},
};
static_assert(kSliceReadingNames.size() == kSliceReadings);

inline constexpr std::array kPartNames = {Named{Part::exponents, "exponent"}, Named{Part::sign_mantissa, "signMantissa"}};
static_assert(kPartNames.size() == kParts);

}  // namespace odmoe
