// Damaged chunks: the result is PACK_CORRUPT or wrong bytes, but never a crash, or a read or write outside the memory (the
// sanitizers check that).
#include <algorithm>
#include <random>

#include "codec_samples.h"
#include "native_tests.h"
#include "odmoe/error.h"

namespace odmoe::test {
namespace {

constexpr int kMutations = 1500;  // mutations of each chunk

using Generator = std::mt19937;

size_t below(Generator& generator, size_t bound) { return generator() % bound; }

// Damage is likelier where it has most effect: in header, table, index and the starts of blocks.
size_t some_place(Generator& generator, const std::vector<uint8_t>& stored) {
  const size_t bound = below(generator, 2) == 0 ? std::min<size_t>(stored.size(), 220) : stored.size();
  return below(generator, bound);
}

void flip_bits(Generator& generator, std::vector<uint8_t>& stored) {
  for (size_t i = 0; i <= below(generator, 4); i++) {
    stored[some_place(generator, stored)] ^= static_cast<uint8_t>(1u << below(generator, 8));
  }
}

void overwrite(Generator& generator, std::vector<uint8_t>& stored) {
  const size_t place = some_place(generator, stored);
  const size_t end = std::min(stored.size(), place + 1 + below(generator, 40));
  const size_t kind = below(generator, 3);
  for (size_t i = place; i < end; i++) {
    stored[i] = kind == 0 ? 0 : kind == 1 ? 0xFF : static_cast<uint8_t>(generator());
  }
}

void truncate(Generator& generator, std::vector<uint8_t>& stored) { stored.resize(below(generator, stored.size())); }

void extend(Generator& generator, std::vector<uint8_t>& stored) {
  stored.resize(stored.size() + 1 + below(generator, 64), static_cast<uint8_t>(generator()));
}

void move_bytes(Generator& generator, std::vector<uint8_t>& stored) {
  const size_t from = below(generator, stored.size());
  const size_t to = below(generator, stored.size());
  const size_t count = std::min(below(generator, 100), stored.size() - std::max(from, to));
  std::copy_n(std::vector<uint8_t>(stored).begin() + static_cast<ptrdiff_t>(from), count,
              stored.begin() + static_cast<ptrdiff_t>(to));
}

void decode_damaged(ChunkDecoder& decoder, CodecKind codec, const std::vector<uint8_t>& stored, uint64_t plain_bytes) {
  try {
    decode_all(decoder, codec, stored, plain_bytes, 1000);
  } catch (const Error& error) {
    check(error.code() == ErrorCode::pack_corrupt, std::string(name_of(error.code())) + ": " + error.what());
  }
}

void survives_damage_of(CodecKind codec, const std::vector<uint8_t>& plain, uint64_t block_bytes, uint32_t seed) {
  const auto stored = encode_chunk(codec, some_level(codec), plain, block_bytes);
  using Damage = void (*)(Generator&, std::vector<uint8_t>&);
  constexpr Damage kDamages[] = {flip_bits, flip_bits, overwrite, overwrite, truncate, extend, move_bytes};
  for (const PlaneKernels* const* kernels = usable_plane_kernels(); *kernels != nullptr; kernels++) {
    ChunkDecoder decoder(**kernels);
    Generator generator(seed);
    for (int i = 0; i < kMutations; i++) {
      std::vector<uint8_t> damaged = stored;
      do {
        kDamages[below(generator, std::size(kDamages))](generator, damaged);
      } while (!damaged.empty() && below(generator, 3) == 0);
      damaged.shrink_to_fit();
      decode_damaged(decoder, codec, damaged, plain.size());
    }
    check(decode_all(decoder, codec, stored, plain.size(), 1000) == plain, "a decoder is of no use after damage");
  }
}

void survives_damage() {
  uint32_t seed = 1;
  for (const CodecKind codec : kAllCodecs) {
    const auto exponents = fitting(codec, gaussian_exponents(5000, 9));
    survives_damage_of(codec, exponents, 1300, seed++);
    survives_damage_of(codec, exponents, 5000, seed++);
    survives_damage_of(codec, fitting(codec, gaussian_exponents(90, 9)), 90, seed++);
    for (const Sample& sample : plane_samples(700)) {
      if (sample.name == "geometric" || sample.name == "changing at the end") {
        survives_damage_of(codec, fitting(codec, sample.bytes), 512, seed++);
      }
    }
  }
}

void survives_noise() {
  Generator generator(77);
  ChunkDecoder decoder;
  for (int i = 0; i < 3000; i++) {
    std::vector<uint8_t> noise(below(generator, 600));
    for (uint8_t& byte : noise) byte = static_cast<uint8_t>(generator());
    for (const CodecKind codec : kAllCodecs) decode_damaged(decoder, codec, noise, 1 + below(generator, 1000));
  }
}

void tells_what_the_layout_shows() {
  ChunkDecoder decoder;
  const auto plain = gaussian_exponents(5000, 9);
  for (const CodecKind codec : {CodecKind::zstd, CodecKind::lz4hc, CodecKind::fixed4, CodecKind::huffman, CodecKind::e4m3}) {
    const auto stored = encode_chunk(codec, some_level(codec), plain, 1300);
    const auto refused = [&](CodecKind asked, std::vector<uint8_t> bytes, uint64_t plain_bytes) {
      check_refused(ErrorCode::pack_corrupt, [&] { decode_all(decoder, asked, bytes, plain_bytes, 1000); });
    };
    const std::vector<uint8_t> shorter(stored.begin(), stored.end() - 16);
    auto longer = stored;
    longer.resize(longer.size() + 16);
    auto other_version = stored;
    other_version[3]++;
    refused(codec, shorter, plain.size());
    refused(codec, longer, plain.size());
    refused(codec, other_version, plain.size());
    refused(codec, stored, plain.size() + 1);
    refused(codec, stored, 0);
    refused(CodecKind::packed3, stored, plain.size());
    refused(CodecKind::raw, stored, plain.size());
  }
}

}  // namespace

void add_codec_damage_cases(std::vector<Case>& cases) {
  cases.push_back({"codecs survive damage", survives_damage});
  cases.push_back({"codecs survive noise", survives_noise});
  cases.push_back({"codecs tell what the layout shows", tells_what_the_layout_shows});
}

}  // namespace odmoe::test
