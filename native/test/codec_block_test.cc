// Blocks of the two codecs whose layout contains their length: bytes behind the block, or positions behind the values, are damage.
#include <algorithm>
#include <memory>

#include "../src/store/block_codec.h"
#include "native_tests.h"
#include "odmoe/error.h"

namespace odmoe::test {
namespace {

constexpr size_t kWindowValues = 65536;  // values of a window in fixed4
constexpr uint64_t kSlack = 4096;        // more than any decoder writes behind the values

// Values with more than fixed4's number of codes: every seventh one is escaped, also the very last one.
std::vector<uint8_t> escaping(size_t count) {
  std::vector<uint8_t> plain(count);
  for (size_t i = 0; i < count; i++) plain[i] = (count - 1 - i) % 7 == 0 ? static_cast<uint8_t>(100 + i % 100) : i % 15;
  return plain;
}

struct Block {
  Block(CodecKind codec, const std::vector<uint8_t>& values, const PlaneKernels& kernels)
      : plain(values), decoder(make_block_decoder(codec, kernels)) {
    const std::unique_ptr<BlockEncoder> encoder = make_block_encoder(codec, 0, plain, plain.size());
    table = encoder->table();
    encoder->encode(plain, coded);
    decoder->open(table.data());
  }

  std::vector<uint8_t> decode() {
    std::vector<uint8_t> values(plain.size() + kSlack);
    decoder->decode(coded, std::span(values).first(plain.size()));
    values.resize(plain.size());
    return values;
  }

  void refuse(const std::string& what) {
    bool refused = false;
    try {
      decode();
    } catch (const Error& error) {
      refused = error.code() == ErrorCode::pack_corrupt;
    }
    check(refused, what + " is accepted");
  }

  std::vector<uint8_t> plain;
  std::vector<uint8_t> table;
  std::vector<uint8_t> coded;
  std::unique_ptr<BlockDecoder> decoder;
};

template <typename Visit>
void for_each_block(Visit visit) {
  for (const PlaneKernels* const* kernels = usable_plane_kernels(); *kernels != nullptr; kernels++) {
    for (const size_t count : {size_t{200}, size_t{1000}, kWindowValues, kWindowValues + 200}) visit(escaping(count), **kernels);
  }
}

void a_block_ends_where_its_layout_says() {
  for_each_block([](const std::vector<uint8_t>& plain, const PlaneKernels& kernels) {
    for (const CodecKind codec : {CodecKind::huffman, CodecKind::fixed4}) {
      Block block(codec, plain, kernels);
      check(block.decode() == plain, "the block is not what it was made of");
      const std::string name = codec == CodecKind::huffman ? "a huffman block" : "a fixed4 block";
      block.coded.push_back(0);
      block.refuse(name + " with a byte more");
      block.coded.pop_back();
      block.coded.pop_back();
      block.refuse(name + " with a byte less");
    }
  });
}

void an_escape_lies_within_its_values() {
  for_each_block([](const std::vector<uint8_t>& plain, const PlaneKernels& kernels) {
    Block block(CodecKind::fixed4, plain, kernels);
    const size_t in_last_window = (plain.size() - 1) % kWindowValues + 1;
    if (in_last_window == kWindowValues) return;  // 16 bits cannot say more
    // The last value is the last escape. Positions lie before the symbols, two bytes each.
    const size_t escapes = static_cast<size_t>(std::count_if(plain.begin(), plain.end(), [](uint8_t v) { return v >= 100; }));
    uint8_t* const position = block.coded.data() + block.coded.size() - escapes - 2;
    check(position[0] + 256 * position[1] == static_cast<int>(in_last_window - 1), "this is not the last escape's position");
    position[0] = static_cast<uint8_t>(in_last_window);
    position[1] = static_cast<uint8_t>(in_last_window >> 8);
    block.refuse("an escape right behind the values");
  });
}

}  // namespace

void add_codec_block_cases(std::vector<Case>& cases) {
  cases.push_back({"a coded block ends where its layout says", a_block_ends_where_its_layout_says});
  cases.push_back({"an escape of a fixed4 block lies within its values", an_escape_lies_within_its_values});
}

}  // namespace odmoe::test
