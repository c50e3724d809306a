// All operators but products and what writes weights, and the table of an instruction set's kernels.
#include "kernels_attention.h"
#include "kernels_elementwise.h"
#include "kernels_indexer.h"
#include "kernels_measure.h"
#include "kernels_norms.h"
#include "kernels_pools.h"
#include "kernels_recurrence.h"
#include "kernels_residual.h"
#include "kernels_router.h"
#include "kernels_training.h"
#include "kernels_units.h"

namespace odmoe::cpu {
namespace {

constexpr KernelTable make_table() {
  KernelTable table{};
  table.instruction_set = Simd::kName;
  table.matmul = &ODMOE_INSTRUCTION_SET::matmul;
  table.normalize = &normalize;
  table.rotate = &rotate;
  table.layer_norm = &layer_norm;
  table.attention_scores = &attention_scores;
  table.attention_weights = &attention_weights;
  table.attention_values = &attention_values;
  table.index_scores = &index_scores;
  table.index_dots = &index_dots;
  table.router = &router;
  table.glu = &glu;
  table.relu_squared = &relu_squared;
  table.add = &add;
  table.scale = &scale;
  table.clip = &clip;
  table.gate = &gate;
  table.gate_all = &gate_all;
  table.multiply_elements = &multiply_elements;
  table.cap_logits = &cap_logits;
  table.combine = &combine;
  table.convolve = &convolve;
  table.delta_rule = &delta_rule;
  table.channel_decay = &channel_decay;
  table.state_space = &state_space;
  table.stream_weights = &stream_weights;
  table.sum_streams = &sum_streams;
  table.mix_streams = &mix_streams;
  table.pool = &pool;
  table.exponentials = &exponentials;
  table.sum_products = &sum_products;
  table.sum = &fold_values;
  table.read_row = &ODMOE_INSTRUCTION_SET::read_row;
  table.write_rows = &ODMOE_INSTRUCTION_SET::write_rows;
  table.read_bytes = &read_bytes;
  table.multiply_add = &multiply_add;
  return table;
}

}  // namespace

const KernelTable ODMOE_INSTRUCTION_SET::kKernels = make_table();

}  // namespace odmoe::cpu
