// Codecs restore the plain bytes, for every pattern, length and cut, on every instruction set; and their output is as small as
// promised.
#include <cstring>

#include "codec_samples.h"
#include "native_tests.h"
#include "odmoe/codec_speed.h"
#include "odmoe/store.h"

namespace odmoe::test {
namespace {

void check_round_trip(ChunkDecoder& decoder, CodecKind codec, const std::vector<uint8_t>& plain, uint64_t block_bytes,
                      const std::string& what) {
  const auto stored = encode_chunk(codec, some_level(codec), plain, block_bytes);
  const auto decoded = decode_all(decoder, codec, stored, plain.size(), block_bytes);
  check(decoded == plain, std::string(codec_name(codec)) + ", " + what + ", " + std::to_string(plain.size()) +
                              " bytes in blocks of " + std::to_string(block_bytes) + ": other bytes come back");
}

// Calls `body` with a decoder of each instruction set that this machine can use.
template <typename Body>
void with_every_decoder(Body body) {
  for (const PlaneKernels* const* kernels = usable_plane_kernels(); *kernels != nullptr; kernels++) {
    ChunkDecoder decoder(**kernels);
    body(decoder, **kernels);
  }
}

void gives_back_every_sample() {
  with_every_decoder([](ChunkDecoder& decoder, const PlaneKernels& kernels) {
    for (const size_t count : {size_t{1000}, size_t{70001}, size_t{131072}}) {
      for (const Sample& sample : plane_samples(count)) {
        for (const CodecKind codec : kAllCodecs) {
          const auto plain = fitting(codec, sample.bytes);
          for (const uint64_t block : {uint64_t{4096}, uint64_t{65537}, uint64_t{1} << 20}) {
            check_round_trip(decoder, codec, plain, block, sample.name + " on " + kernels.name);
          }
        }
      }
    }
  });
}

void gives_back_every_length() {
  with_every_decoder([](ChunkDecoder& decoder, const PlaneKernels& kernels) {
    for (size_t count = 1; count <= 300; count++) {
      for (const CodecKind codec : kAllCodecs) {
        const auto plain = fitting(codec, gaussian_exponents(count, static_cast<uint32_t>(count)));
        check_round_trip(decoder, codec, plain, 1 << 17, kernels.name);
        check_round_trip(decoder, codec, plain, count / 3 + 1, kernels.name);
      }
    }
  });
}

void gives_back_every_bf16_pattern() {
  std::vector<uint8_t> values(2 * 65536);
  for (size_t i = 0; i < 65536; i++) {
    values[2 * i] = static_cast<uint8_t>(i);
    values[2 * i + 1] = static_cast<uint8_t>(i >> 8);
  }
  const auto planes = split_planes(values.data(), values.size(), Split::bf16_e8_sm8);
  with_every_decoder([&](ChunkDecoder& decoder, const PlaneKernels& kernels) {
    for (const CodecKind codec : {CodecKind::raw, CodecKind::zstd, CodecKind::lz4hc, CodecKind::fixed4, CodecKind::huffman}) {
      const auto stored = encode_chunk(codec, some_level(codec), planes[0], 3001);
      const auto exponents = decode_all(decoder, codec, stored, planes[0].size(), 3001);
      std::vector<uint8_t> merged(values.size());
      kernels.merge_bf16(exponents.data(), planes[1].data(), merged.data(), exponents.size(), false);
      check(merged == values, std::string("a pattern is lost by ") + codec_name(codec) + " on " + kernels.name);
    }
  });
}

void gives_back_shards_that_do_not_divide() {
  ChunkDecoder decoder;
  const uint64_t columns = 97;
  const auto plane = gaussian_exponents(53 * columns, 3);
  for (const uint64_t shards : {2u, 3u, 5u, 7u, 53u}) {
    for (uint64_t i = 0; i < shards; i++) {
      const uint64_t first = 53 * i / shards * columns;
      const uint64_t end = 53 * (i + 1) / shards * columns;
      const std::vector<uint8_t> shard(plane.begin() + static_cast<ptrdiff_t>(first), plane.begin() + static_cast<ptrdiff_t>(end));
      for (const CodecKind codec : kAllCodecs) {
        check_round_trip(decoder, codec, fitting(codec, shard), 16 * columns, "shard");
      }
    }
  }
}

void takes_levels_up_to(CodecKind codec, int highest) {
  ChunkDecoder decoder;
  const auto plain = gaussian_exponents(3000, 4);
  for (int level = 1; level <= highest; level++) {
    check(decode_all(decoder, codec, encode_chunk(codec, level, plain, 1000), plain.size(), 0) == plain, "level");
  }
  check_refused(ErrorCode::internal, [&] { encode_chunk(codec, 0, plain, 1000); });
  check_refused(ErrorCode::internal, [&] { encode_chunk(codec, highest + 1, plain, 1000); });
}

void takes_every_level() {
  takes_levels_up_to(CodecKind::zstd, kHighestZstdLevel);
  takes_levels_up_to(CodecKind::lz4hc, kHighestLz4hcLevel);
}

void refuses_what_cannot_be_encoded() {
  const std::vector<uint8_t> plain(100, 8);
  check_refused(ErrorCode::internal, [&] { encode_chunk(CodecKind::packed3, 0, plain, 50); });
  check_refused(ErrorCode::internal, [&] { encode_chunk(CodecKind::fixed4, 0, plain, 0); });
  check_refused(ErrorCode::internal, [&] { encode_chunk(CodecKind::fixed4, 0, plain, kLargestPlainBlock + 1); });
  check_refused(ErrorCode::internal, [&] { encode_chunk(CodecKind::fixed4, 0, {}, 50); });
}

// Stored bytes of a BF16 tensor divided by its plain bytes.
double ratio_of(CodecKind codec, int level, const std::vector<uint8_t>& exponents) {
  const auto stored = encode_chunk(codec, level, exponents, 1 << 17);
  return static_cast<double>(stored.size() + exponents.size()) / static_cast<double>(2 * exponents.size());
}

void makes_gaussian_weights_small() {
  const auto exponents = gaussian_exponents(1 << 21, 5);
  check(ratio_of(CodecKind::zstd, 1, exponents) <= 0.665, "zstd");
  check(ratio_of(CodecKind::lz4hc, 9, exponents) <= 0.77, "lz4hc");
  check(ratio_of(CodecKind::fixed4, 0, exponents) <= 0.751, "fixed4");
  check(ratio_of(CodecKind::huffman, 0, exponents) <= 0.67, "huffman");
}

void never_grows_much() {
  for (const Sample& sample : plane_samples(1 << 18)) {
    for (const CodecKind codec : kAllCodecs) {
      const auto plain = fitting(codec, sample.bytes);
      const auto stored = encode_chunk(codec, some_level(codec), plain, 1 << 16);
      check(stored.size() <= plain.size() + 256, std::string(codec_name(codec)) + " grows on " + sample.name);
    }
  }
}

void measures_what_it_encodes() {
  const auto floats = random_values(64 * 128, 6, 0.02f);
  std::vector<uint8_t> values;
  for (const float value : floats) {
    uint8_t bytes[4];
    std::memcpy(bytes, &value, 4);
    values.insert(values.end(), {bytes[2], bytes[3]});
  }
  const CodecSpeed speed = measure_codec(CodecKind::huffman, 0, values, 128, 0.001);
  const auto exponents = split_planes(values.data(), values.size(), Split::bf16_e8_sm8)[0];
  check(speed.ratio == ratio_of(CodecKind::huffman, 0, exponents), "the ratio is another");
  check(speed.encode_bytes_per_s > 0 && speed.decode_bytes_per_s > 0 && speed.memcpy_bytes_per_s > 0, "no speed");
  check_refused(ErrorCode::internal, [&] { measure_codec(CodecKind::huffman, 0, values, 127, 0.001); });
}

}  // namespace

void add_codec_cases(std::vector<Case>& cases) {
  cases.push_back({"codecs give back every sample", gives_back_every_sample});
  cases.push_back({"codecs give back every length", gives_back_every_length});
  cases.push_back({"codecs give back every BF16 pattern", gives_back_every_bf16_pattern});
  cases.push_back({"codecs give back shards that do not divide the rows", gives_back_shards_that_do_not_divide});
  cases.push_back({"codecs take every level of theirs", takes_every_level});
  cases.push_back({"codecs refuse what cannot be encoded", refuses_what_cannot_be_encoded});
  cases.push_back({"codecs make Gaussian weights small", makes_gaussian_weights_small});
  cases.push_back({"codecs never grow much", never_grows_much});
  cases.push_back({"codecs are measured by what they encode", measures_what_it_encodes});
}

}  // namespace odmoe::test
