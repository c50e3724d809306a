#include "codec_calls.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "arguments.h"
#include "async_call.h"
#include "odmoe/codec.h"
#include "odmoe/codec_speed.h"
#include "odmoe/read_speed.h"

namespace odmoe {

const std::shared_ptr<JobQueue>& codec_threads(Napi::Env env) {
  std::shared_ptr<JobQueue>& threads = AddonData::of(env).codec_threads;
  if (threads == nullptr) {
    threads = std::make_shared<JobQueue>(std::max(1, static_cast<int>(std::thread::hardware_concurrency())));
  }
  return threads;
}

Napi::Value from_bytes(Napi::Env env, std::vector<uint8_t>& bytes) {
  auto* const owned = new std::vector<uint8_t>(std::move(bytes));
  const auto buffer = Napi::ArrayBuffer::New(
      env, owned->data(), owned->size(), [](Napi::Env, void*, std::vector<uint8_t>* held) { delete held; }, owned);
  return Napi::Uint8Array::New(env, owned->size(), buffer, 0);
}

namespace {

// Most plain bytes of one chunk and of one block (docs/pack-format.md, "Codecs").
constexpr int64_t kLargestChunkBytes = int64_t{1} << 31;
constexpr int64_t kLargestBlockBytes = int64_t{1} << 24;
constexpr int kHighestLevel = 22;
constexpr int kMostCopyingThreads = 1024;

int64_t to_block_bytes(const Napi::Value& value) { return to_integer(value, "blockBytes", 1, kLargestBlockBytes); }

std::vector<uint8_t> decode_chunk(CodecKind codec, std::span<const uint8_t> stored, uint64_t plain_bytes, uint64_t block_bytes) {
  ChunkDecoder decoder;
  decoder.open(codec, stored, plain_bytes, block_bytes);
  std::vector<uint8_t> plain(plain_bytes);
  std::vector<uint8_t> scratch(std::min(decoder.block_bytes(), plain_bytes) + ChunkDecoder::kScratchSlack);
  for (uint64_t i = 0; i < decoder.block_count(); i++) {
    std::memcpy(plain.data() + i * decoder.block_bytes(), decoder.decode_block(i, scratch.data()), decoder.plain_bytes_of(i));
  }
  return plain;
}

template <typename Work>
Napi::Value bytes_on_codec_threads(const Napi::CallbackInfo& info, const Napi::Value& input, Work work) {
  const std::shared_ptr<JobQueue>& threads = codec_threads(info.Env());
  return call_async(info.Env(), *threads, threads, {input.As<Napi::Object>()}, std::move(work), from_bytes);
}

}  // namespace

Napi::Value encode_chunk_of(const Napi::CallbackInfo& info) {
  return bytes_on_codec_threads(
      info, info[2],
      [codec = to_codec(info[0]), level = to_int(info[1], "level", 0, kHighestLevel), plain = bytes_of(info[2], "plain"),
       block = to_block_bytes(info[3])] { return encode_chunk(codec, level, plain, block); });
}

Napi::Value decode_chunk_of(const Napi::CallbackInfo& info) {
  return bytes_on_codec_threads(info, info[1],
                                [codec = to_codec(info[0]), stored = bytes_of(info[1], "stored"),
                                 plain = to_integer(info[2], "plainBytes", 1, kLargestChunkBytes),
                                 block = to_block_bytes(info[3])] { return decode_chunk(codec, stored, plain, block); });
}

Napi::Value measure_codec_of(const Napi::CallbackInfo& info) {
  const std::shared_ptr<JobQueue>& threads = codec_threads(info.Env());
  return call_async(
      info.Env(), *threads, threads, {info[2].As<Napi::Object>()},
      [codec = to_codec(info[0]), level = to_int(info[1], "level", 0, kHighestLevel), values = bytes_of(info[2], "bf16Values"),
       columns = to_integer(info[3], "columns", 1, kLargestBlockBytes),
       seconds = to_seconds(info[4])] { return measure_codec(codec, level, values, columns, seconds); },
      [](Napi::Env env, const CodecSpeed& speed) -> Napi::Value {
        Napi::Object object = Napi::Object::New(env);
        object.Set("ratio", speed.ratio);
        object.Set("encodeBytesPerS", speed.encode_bytes_per_s);
        object.Set("decodeBytesPerS", speed.decode_bytes_per_s);
        object.Set("memcpyBytesPerS", speed.memcpy_bytes_per_s);
        return object;
      });
}

Napi::Value measure_reads_of(const Napi::CallbackInfo& info) {
  const std::shared_ptr<JobQueue>& threads = codec_threads(info.Env());
  return call_async(
      info.Env(), *threads, threads, {},
      [path = to_text(info[0], "path"), bytes = to_integer(info[1], "bytes", 4096, kLargestInteger),
       seconds = to_seconds(info[2])] { return measure_reads(path, bytes, seconds); },
      [](Napi::Env env, const ReadSpeed& speed) -> Napi::Value {
        Napi::Object object = Napi::Object::New(env);
        object.Set("bytesPerS", speed.bytes_per_s);
        object.Set("readBytes", static_cast<double>(speed.read_bytes));
        object.Set("direct", speed.direct);
        return object;
      });
}

Napi::Value measure_queued_reads_of(const Napi::CallbackInfo& info) {
  const std::shared_ptr<JobQueue>& threads = codec_threads(info.Env());
  const Napi::Object object = to_object(info[2], "request");
  const QueuedReadRequest request{to_storage_way(object.Get("way")), to_read_depth(object.Get("depth")),
                                  to_flag(object.Get("direct"), "request.direct")};
  return call_async(
      info.Env(), *threads, threads, {},
      [path = to_text(info[0], "path"), bytes = to_integer(info[1], "bytes", 4096, kLargestInteger), request,
       seconds = to_seconds(info[3])] { return measure_queued_reads(path, bytes, request, seconds); },
      [](Napi::Env env, const QueuedReadSpeed& speed) -> Napi::Value {
        Napi::Object result = Napi::Object::New(env);
        result.Set("bytesPerS", speed.bytes_per_s);
        result.Set("readBytes", static_cast<double>(speed.read_bytes));
        result.Set("way", speed.way == StorageWay::io_uring ? "io_uring" : "threads");
        result.Set("direct", speed.direct);
        result.Set("ringRefusal", speed.ring_refusal);
        return result;
      });
}

Napi::Value measure_memory_copy_of(const Napi::CallbackInfo& info) {
  const std::shared_ptr<JobQueue>& threads = codec_threads(info.Env());
  return call_async(
      info.Env(), *threads, threads, {},
      [count = to_int(info[0], "threads", 1, kMostCopyingThreads), seconds = to_seconds(info[1])] {
        return measure_memory_copy(count, seconds);
      },
      [](Napi::Env env, double bytes_per_s) -> Napi::Value { return Napi::Number::New(env, bytes_per_s); });
}

}  // namespace odmoe
