// Decoding functions of the CUDA kernels that the host can run, against the CPU's decoders.
#include <cstring>
#include <numeric>
#include <random>

#include "codec_samples.h"
#include "huffman_work.h"
#include "native_tests.h"

namespace odmoe::test {
namespace {

using cuda::kHuffmanLongestCode;

void codes_of_fixed4() {
  std::mt19937 random(1);
  for (int round = 0; round < 2000; ++round) {
    uint32_t table[4];
    for (uint32_t& word : table) word = static_cast<uint32_t>(random());
    const auto codes = static_cast<uint32_t>(random());
    const uint32_t values = cuda::fixed4_values(codes, table[0], table[1], table[2], table[3]);
    for (int i = 0; i < 4; ++i) {
      const uint32_t code = codes >> 8 * i & 15;
      check((values >> 8 * i & 0xff) == (table[code / 4] >> code % 4 * 8 & 0xff), "a code's value");
    }
  }
}

// The table as the kernel builds it.
struct HuffmanTable {
  explicit HuffmanTable(const std::vector<uint8_t>& length_of_value) {
    uint32_t counts[kHuffmanLongestCode + 1] = {};
    std::vector<uint8_t> values;
    for (uint32_t length = 1; length <= kHuffmanLongestCode; ++length) {
      for (size_t value = 0; value < length_of_value.size(); ++value) {
        if (length_of_value[value] != length) continue;
        ++counts[length];
        values.push_back(static_cast<uint8_t>(value));
      }
    }
    values.resize(256);
    cuda::HuffmanLengths lengths;
    cuda::describe_lengths(lengths, counts);
    uint32_t length = 1;
    for (uint32_t in_order = 0; in_order < cuda::kHuffmanLookupEntries; ++in_order) {
      length = cuda::huffman_length(in_order, length, lengths);
      entries[cuda::reversed_code_bits(in_order)] = cuda::huffman_entry(in_order, length, lengths, values.data());
    }
  }

  std::vector<uint32_t> entries = std::vector<uint32_t>(cuda::kHuffmanLookupEntries, 0xffffffffu);
};

std::vector<uint8_t> stored_lengths(const uint8_t* table) {
  std::vector<uint8_t> lengths;
  for (int i = 0; i < 128; ++i) {
    lengths.push_back(table[i] & 15);
    lengths.push_back(table[i] >> 4);
  }
  return lengths;
}

// Each code's value by definition: the code has the first length of which some code is a prefix of the bits.
uint32_t entry_by_definition(uint32_t bits, const std::vector<uint8_t>& length_of_value) {
  uint32_t first = 0;
  for (uint32_t length = 1; length <= kHuffmanLongestCode; ++length) {
    uint32_t code = 0;
    for (uint32_t i = 0; i < length; ++i) code = code << 1 | (bits >> i & 1);
    uint32_t next = first;
    for (size_t value = 0; value < length_of_value.size(); ++value) {
      if (length_of_value[value] == length && next++ == code) return static_cast<uint32_t>(value) | length << 8;
    }
    first = next << 1;
  }
  return 0;
}

// Complete codes, and those of damaged tables: too few codes or too many.
void entries_of_huffman() {
  std::mt19937 random(2);
  std::vector<std::vector<uint8_t>> tables = {std::vector<uint8_t>(256, 0), std::vector<uint8_t>(256, 1),
                                              std::vector<uint8_t>(256, 8), std::vector<uint8_t>(256, 11),
                                              std::vector<uint8_t>(256, 15)};
  for (const uint32_t longest : {3, 8, 11, 15}) {
    for (const uint32_t share : {1, 4, 20}) {
      std::vector<uint8_t> lengths(256);
      for (uint8_t& length : lengths) length = static_cast<uint8_t>(random() % share == 0 ? random() % (longest + 1) : 0);
      tables.push_back(lengths);
    }
  }
  for (const std::vector<uint8_t>& lengths : tables) {
    const HuffmanTable table(lengths);
    for (uint32_t bits = 0; bits < cuda::kHuffmanLookupEntries; ++bits) {
      check(table.entries[bits] == entry_by_definition(bits, lengths), "an entry differs from its definition");
    }
  }
}

// Decodes as the lanes do. The block is in memory of exactly its size, `offset` bytes behind an aligned address.
std::vector<uint8_t> decoded_block(const HuffmanTable& table, std::span<const uint8_t> coded, uint64_t plain_bytes, size_t offset) {
  std::vector<uint8_t> memory(offset + coded.size());
  std::copy(coded.begin(), coded.end(), memory.begin() + static_cast<int64_t>(offset));
  const uint8_t* const block = memory.data() + offset;
  const uint64_t streams = (plain_bytes + cuda::kHuffmanStreamValues - 1) / cuda::kHuffmanStreamValues;
  const uint64_t groups = (streams + cuda::kHuffmanGroupStreams - 1) / cuda::kHuffmanGroupStreams;
  std::vector<uint8_t> plain;
  uint32_t start = 0;
  for (uint64_t stream = 0; stream < streams; ++stream) {
    if (stream % cuda::kHuffmanGroupStreams == 0) start = cuda::word_at(block + stream / cuda::kHuffmanGroupStreams * 4);
    cuda::BitReader reader(block, static_cast<uint32_t>(coded.size()), start);
    start += block[groups * 4 + stream];
    for (uint32_t i = 0; i < cuda::kHuffmanStreamValues && plain.size() < plain_bytes; ++i) {
      if (i % 2 == 0) reader.refill();
      const uint32_t entry = table.entries[reader.peek()];
      plain.push_back(static_cast<uint8_t>(entry));
      reader.skip(entry >> 8);
    }
  }
  return plain;
}

void blocks_of_huffman() {
  ChunkDecoder decoder;
  for (const Sample& sample : plane_samples(20000)) {
    const std::vector<uint8_t> stored = encode_chunk(CodecKind::huffman, 0, sample.bytes, 7001);
    decoder.open(CodecKind::huffman, stored, sample.bytes.size(), 0);
    const HuffmanTable table(stored_lengths(decoder.table()));
    for (uint64_t i = 0; i < decoder.block_count(); ++i) {
      const std::span<const uint8_t> coded = decoder.coded_block(i);
      const uint64_t plain_bytes = decoder.plain_bytes_of(i);
      if (coded.size() == plain_bytes) continue;
      const auto begin = sample.bytes.begin() + static_cast<int64_t>(i * decoder.block_bytes());
      const std::vector<uint8_t> expected(begin, begin + static_cast<int64_t>(plain_bytes));
      for (size_t offset = 0; offset < 5; ++offset) {
        check(decoded_block(table, coded, plain_bytes, offset) == expected, sample.name + ": block " + std::to_string(i));
      }
    }
  }
}

// For any start of a stream, bits outside the block count as zeros.
void reads_no_more_than_a_block() {
  for (uint32_t bytes = 0; bytes < 12; ++bytes) {
    for (uint32_t offset = 0; offset < 4; ++offset) {
      std::vector<uint8_t> memory(offset + bytes, 0xff);
      for (uint32_t start = 0; start <= bytes; ++start) {
        cuda::BitReader reader(memory.data() + offset, bytes, start);
        uint32_t ones = 0;
        for (int i = 0; i < 40; ++i) {
          reader.refill();
          const uint32_t bits = reader.peek();
          check((bits & (bits + 1)) == 0, "a one behind a zero");
          ones += static_cast<uint32_t>(__builtin_popcount(bits));
          reader.skip(kHuffmanLongestCode);
        }
        check(ones == 8 * (bytes - start), "bits of the block");
      }
    }
  }
}

void turns_of_huffman() {
  for (const int multiprocessors : {1, 8, 16, 82, 132}) {
    const auto filling = static_cast<uint64_t>(multiprocessors * cuda::kHuffmanBlocksOfMultiprocessor);
    for (const int count : {1, 2, 7, 18, 32, 80, 2000}) {
      for (const uint64_t turns : {uint64_t{1}, uint64_t{2}, uint64_t{7}, uint64_t{14}, uint64_t{100}, uint64_t{1024}}) {
        const uint64_t blocks = cuda::huffman_thread_blocks(turns, count, multiprocessors);
        const uint64_t all = blocks * static_cast<uint64_t>(count);
        const uint64_t most_turns = (turns + blocks - 1) / blocks;
        check(blocks >= 1 && blocks <= turns, "every thread block has a turn");
        check(blocks == 1 || all <= filling, "no more thread blocks than fill the device");
        check(most_turns == 1 || 2 * all + 2 * static_cast<uint64_t>(count) >= filling, "half of the device is filled");
        check((blocks - 1) * most_turns < turns, "turns are divided evenly");
      }
    }
  }
}

void turns_that_hold_wanted_values() {
  constexpr uint64_t kTurn = cuda::kHuffmanTurnValues;
  const auto turns = [](uint64_t block_plain, uint64_t skipped, uint64_t plain) {
    return cuda::huffman_turns({nullptr, 0, block_plain, skipped, plain, nullptr});
  };
  check(turns(0, 0, 0) == 0 && turns(kTurn, 10, 0) == 0 && turns(10, 20, 5) == 0, "nothing is wanted");
  check(turns(1, 0, 1) == 1 && turns(kTurn, 0, kTurn) == 1 && turns(kTurn + 1, 0, kTurn + 1) == 2, "all is wanted");
  check(
      turns(9 * kTurn, kTurn - 1, 2) == 2 && turns(9 * kTurn, kTurn, kTurn) == 1 && turns(9 * kTurn, 5 * kTurn - 1, 9 * kTurn) == 5,
      "a part is wanted");
}

}  // namespace

void add_device_decoding_cases(std::vector<Case>& cases) {
  cases.push_back({"device code: fixed4's codes", codes_of_fixed4});
  cases.push_back({"device code: entries of huffman tables", entries_of_huffman});
  cases.push_back({"device code: huffman's blocks", blocks_of_huffman});
  cases.push_back({"device code: a reader of bits stays in its block", reads_no_more_than_a_block});
  cases.push_back({"device code: huffman's turns that hold wanted values", turns_that_hold_wanted_values});
  cases.push_back({"device code: huffman's turns fill a device", turns_of_huffman});
}

}  // namespace odmoe::test
