import { MOST_ROUNDS, MOST_STREAMS, type StreamsShape } from '../../shared/model/model-shape.js';
import type { TensorNames } from './checkpoint-layout.js';
import type { ConfigReader } from './config-reader.js';

/** Reads the number of residual streams, and their epsilon. @throws MODEL_UNSUPPORTED: one stream alone, or too many */
export function readStreamCount(config: ConfigReader): Pick<StreamsShape, 'count' | 'epsilon'> {
  const key = 'hc_mult';
  const count = config.sizeOr(4, key);
  if (count < 2 || count > MOST_STREAMS) throw config.unsupported(key, count, `2 to ${MOST_STREAMS}`);
  return { count, epsilon: Math.fround(config.positiveOr(1e-6, 'hc_eps')) };
}

/** The streams of DeepSeek-V4 and GLM-5-Next, which each part mixes. @throws MODEL_UNSUPPORTED: too many rounds */
export function readMixedStreams(config: ConfigReader): Extract<StreamsShape, { kind: 'mixed' }> {
  const key = 'hc_sinkhorn_iters';
  const rounds = config.sizeOr(20, key);
  if (rounds > MOST_ROUNDS) throw config.unsupported(key, rounds, `at most ${MOST_ROUNDS}`);
  return { kind: 'mixed', ...readStreamCount(config), rounds };
}

/** Names of a layer's tensors for mixed streams. */
export const MIXED_STREAM_NAMES = {
  mixerStreamMap: 'hc_attn_fn',
  mixerStreamScale: 'hc_attn_scale',
  mixerStreamBase: 'hc_attn_base',
  feedForwardStreamMap: 'hc_ffn_fn',
  feedForwardStreamScale: 'hc_ffn_scale',
  feedForwardStreamBase: 'hc_ffn_base',
} as const satisfies TensorNames['layer'];
