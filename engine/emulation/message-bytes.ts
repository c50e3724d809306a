import { cacheRowFloats, expertRowSize, type ModelShape } from '../../shared/model/model-shape.js';
import { rowCount } from '../../shared/wire/pass-rows.js';
import type { TensorType } from '../../shared/wire/messages.js';
import type { PeerMessage } from '../../shared/transport/stream-pace.js';
import type { ProfiledModel, ProfiledNetwork } from './device-profile.js';
import { FLOAT_BYTES } from './layer-arithmetic.js';

const ELEMENT_BYTES: Record<TensorType, number> = {
  TENSOR_TYPE_UNSPECIFIED: 4,
  TENSOR_TYPE_F32: 4,
  TENSOR_TYPE_BF16: 2,
};

/** The parts of a profile that decide the length of messages. */
export interface MessageProfile {
  model: Pick<ProfiledModel, 'shape' | 'quantization' | 'format'>;
  network: ProfiledNetwork;
}

/**
 * Bytes that a message of a peer stream would have for the profiled model: hidden states of 16 KB and keys and values of 8 KB per row for
 * Mixtral-8x7B (OD-MoE 4.2). Other contents are small beside the overhead of every message.
 */
export function messageBytes(message: PeerMessage, { model, network }: MessageProfile): number {
  return network.messageOverheadBytes + tensorBytes(message, model.shape);
}

function tensorBytes(message: PeerMessage, shape: ModelShape): number {
  const rowSize = expertRowSize(shape);
  if (message.kind === 'execute') {
    const { rows, dtype } = message.execute;
    return rowCount(rows) * rowSize * ELEMENT_BYTES[dtype];
  }
  if (message.kind === 'result') {
    const { experts, dtype } = message.result;
    const rows = experts.reduce((sum, expert) => sum + (expert.failure === null ? expert.rows : 0), 0);
    return rows * rowSize * ELEMENT_BYTES[dtype];
  }
  return message.kind === 'cacheRows' ? message.cacheRows.rows * cacheRowBytes(message.cacheRows.layer, shape) : 0;
}

/** Bytes of one cache row of this layer. If the model has more layers than the profiled one, they repeat from the first. */
function cacheRowBytes(layer: number, { layers, hiddenSize }: ModelShape): number {
  const like = layers[layer % layers.length];
  return like === undefined ? 0 : cacheRowFloats(like.mixer, hiddenSize) * FLOAT_BYTES;
}
