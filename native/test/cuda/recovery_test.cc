// The recovery that odmoe_cuda_bench measures gives the same matrix as a plain write.
#include "coded_tensor.h"
#include "odmoe/cuda_speed.h"

namespace odmoe::cuda_test {
namespace {

void recovers(Devices& devices, CudaSpeed& speed, CodecKind codec, int64_t rows, int64_t columns, int64_t block_rows) {
  const PlainTensor tensor = random_tensor(devices.random, Split::bf16_e8_sm8, rows, columns);
  StoredWeights expected(devices.cuda, WeightFormat::bf16, rows, columns);
  write_plain(*devices.cuda, expected.matrix, 0, tensor);
  const CodedPlane exponents(devices.cuda, tensor, 0, codec, block_rows);
  std::vector<uint8_t> matrix(expected.matrix.storage.bytes);
  CudaRecovery recovery;
  recovery.codec = codec;
  recovery.table = exponents.rows(0, rows, recovery.blocks).table;
  recovery.sign_mantissas = tensor.planes[1].data();
  recovery.rows = rows;
  recovery.columns = columns;
  recovery.matrix_bytes = matrix.size();
  recovery.matrix = matrix.data();
  const CudaRecoverySeconds seconds = speed.recovery_seconds(recovery, 1);
  const std::string what = "codec " + std::to_string(static_cast<int>(codec)) + ", " + std::to_string(rows) + " x " +
                           std::to_string(columns) + ", blocks of " + std::to_string(block_rows) + " rows";
  expect(seconds.decode > 0 && seconds.whole > 0, what + ": no time measured");
  expect(matrix == expected.bytes(), what + ": another matrix");
}

}  // namespace

void test_recovery(Devices& devices) {
  const std::unique_ptr<CudaSpeed> speed = make_cuda_speed(devices.device);
  for (const CodecKind codec : {CodecKind::fixed4, CodecKind::huffman}) {
    recovers(devices, *speed, codec, 70, 96, 16);
    // More blocks than a launch takes.
    recovers(devices, *speed, codec, 200, 100, 1);
    // More than fits in a slice; and a block that is larger than a slice.
    recovers(devices, *speed, codec, 300, 16384, 16);
  }
  recovers(devices, *speed, CodecKind::fixed4, 600, 8192, 520);
}

}  // namespace odmoe::cuda_test
