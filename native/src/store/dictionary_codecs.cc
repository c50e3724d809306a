#include "dictionary_codecs.h"

#include <lz4.h>
#include <lz4hc.h>
#include <zstd.h>

#include <string>

#include "odmoe/error.h"

namespace odmoe {
namespace {

void check_level(int level, int highest, const std::string& codec) {
  if (level >= 1 && level <= highest) return;
  throw Error(ErrorCode::internal, codec + " has levels from 1 to " + std::to_string(highest) + ", not " + std::to_string(level));
}

template <typename Context, size_t (*free_context)(Context*)>
struct Freeing {
  void operator()(Context* context) const { free_context(context); }
};

// Up to this level zstd takes the first match that it finds. Exponents hardly depend on one another, so their repetitions are
// chance, and coding a match costs more than entropy-coding its bytes. So at these levels short matches are not allowed, which also
// decodes fastest.
constexpr int kHighestGuessingLevel = 2;
constexpr int kLongestMinimalMatch = 7;
constexpr int kSmallestHashLog = 6;

class ZstdEncoder : public BlockEncoder {
 public:
  explicit ZstdEncoder(int level) : context_(ZSTD_createCCtx()) {
    check_level(level, kHighestZstdLevel, "zstd");
    if (context_ == nullptr) throw std::bad_alloc();
    set(ZSTD_c_compressionLevel, level);
    if (level > kHighestGuessingLevel) return;
    set(ZSTD_c_minMatch, kLongestMinimalMatch);
    set(ZSTD_c_hashLog, kSmallestHashLog);
  }

  void encode(std::span<const uint8_t> plain, std::vector<uint8_t>& out) override {
    const size_t start = out.size();
    out.resize(start + ZSTD_compressBound(plain.size()));
    const size_t size = checked(ZSTD_compress2(context_.get(), out.data() + start, out.size() - start, plain.data(), plain.size()));
    out.resize(start + size);
  }

 private:
  static size_t checked(size_t result) {
    if (ZSTD_isError(result) != 0) throw Error(ErrorCode::internal, std::string("zstd: ") + ZSTD_getErrorName(result));
    return result;
  }

  void set(ZSTD_cParameter parameter, int value) { checked(ZSTD_CCtx_setParameter(context_.get(), parameter, value)); }

  std::unique_ptr<ZSTD_CCtx, Freeing<ZSTD_CCtx, ZSTD_freeCCtx>> context_;
};

class ZstdDecoder : public BlockDecoder {
 public:
  ZstdDecoder() : context_(ZSTD_createDCtx()) {
    if (context_ == nullptr) throw std::bad_alloc();
  }

  void decode(std::span<const uint8_t> coded, std::span<uint8_t> plain) override {
    const size_t size = ZSTD_decompressDCtx(context_.get(), plain.data(), plain.size(), coded.data(), coded.size());
    if (ZSTD_isError(size) != 0) throw_corrupt_chunk(std::string("zstd: ") + ZSTD_getErrorName(size));
    if (size != plain.size()) throw_corrupt_chunk("a zstd block has another size than it should");
  }

 private:
  std::unique_ptr<ZSTD_DCtx, Freeing<ZSTD_DCtx, ZSTD_freeDCtx>> context_;
};

class Lz4hcEncoder : public BlockEncoder {
 public:
  explicit Lz4hcEncoder(int level) : level_(level) { check_level(level, kHighestLz4hcLevel, "lz4hc"); }

  void encode(std::span<const uint8_t> plain, std::vector<uint8_t>& out) override {
    const auto plain_size = static_cast<int>(plain.size());
    const int bound = LZ4_compressBound(plain_size);
    const size_t start = out.size();
    out.resize(start + static_cast<size_t>(bound));
    const int size = LZ4_compress_HC(reinterpret_cast<const char*>(plain.data()), reinterpret_cast<char*>(out.data() + start),
                                     plain_size, bound, level_);
    if (size <= 0) throw Error(ErrorCode::internal, "LZ4 could not compress a block");
    out.resize(start + static_cast<size_t>(size));
  }

 private:
  int level_;
};

class Lz4Decoder : public BlockDecoder {
 public:
  void decode(std::span<const uint8_t> coded, std::span<uint8_t> plain) override {
    const int size = LZ4_decompress_safe(reinterpret_cast<const char*>(coded.data()), reinterpret_cast<char*>(plain.data()),
                                         static_cast<int>(coded.size()), static_cast<int>(plain.size()));
    if (size < 0 || static_cast<size_t>(size) != plain.size()) throw_corrupt_chunk("an LZ4 block is malformed");
  }
};

}  // namespace

std::unique_ptr<BlockEncoder> make_zstd_encoder(int level) { return std::make_unique<ZstdEncoder>(level); }
std::unique_ptr<BlockDecoder> make_zstd_decoder() { return std::make_unique<ZstdDecoder>(); }
std::unique_ptr<BlockEncoder> make_lz4hc_encoder(int level) { return std::make_unique<Lz4hcEncoder>(level); }
std::unique_ptr<BlockDecoder> make_lz4_decoder() { return std::make_unique<Lz4Decoder>(); }

}  // namespace odmoe
