import type { TensorNames } from './checkpoint-layout.js';
import type { ExplainedKeys } from './explained-keys.js';
import { type StateSpaceMixer, stateSpaceChannels } from '../../shared/model/model-shape.js';
import { convolutionNames, everyRows } from './tensor-names.js';

/** Nemotron-3-Ultra writes its limit so: no FP32 number is beyond it. */
const LARGEST_STEPS = [0, 1e308];

/** Keys of Mamba-2 layers that change no answer. */
export const STATE_SPACE_KEYS: ExplainedKeys = {
  time_step_limit: { why: 'steps are not limited', only: [[0, Infinity], LARGEST_STEPS] },
  mamba_chunk_size: { why: 'it says how a program spreads the same arithmetic' },
};

/**
 * Tensor names of a Mamba-2 mixer, whose tensors begin with FOLDER. Its input projection holds [z of the gated norm | x of all heads | B | C | step of
 * each head], one below another.
 */
export function stateSpaceNames(folder: string, mixer: StateSpaceMixer, hiddenSize: number): TensorNames['layer'] {
  const inner = mixer.heads * mixer.headDim;
  const channels = stateSpaceChannels(mixer);
  const rest = channels + mixer.heads;
  const rows = (first: number, count: number) =>
    everyRows(`${folder}.in_proj.weight`, [inner + rest, hiddenSize], { first, count, step: count });
  return {
    stateSpaceGate: rows(0, inner),
    stateSpaceInput: rows(inner, rest),
    convolution: convolutionNames(`${folder}.conv1d.weight`, channels, mixer.taps),
    convolutionBias: `${folder}.conv1d.bias`,
    decayLog: `${folder}.A_log`,
    decayBias: `${folder}.dt_bias`,
    stateSpaceSkip: `${folder}.D`,
    stateSpaceNorm: `${folder}.norm.weight`,
  };
}
