/** Measures which thresholds (theta) make which shares of a model's executions critical. */
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { openDevice, type Device } from '../../native/index.js';
import { OdmoeError, toOdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { ErrorCode } from '../../shared/base/errors/registry.js';
import { packageRoot } from '../../shared/base/files/package-root.js';
import { SeededRandom } from '../../shared/base/runtime/seeded-random.js';
import { renormalizedWeights } from '../../shared/decisions/slices/critical-executions.js';
import { measuredThresholds, type MeasuredTheta } from '../../shared/decisions/slices/plan-readings.js';
import { openTokenizer } from '../../shared/language/tokenizer/load-tokenizer.js';
import type { ModelSource } from '../../shared/model/tensor-source.js';
import { runPassingExperts } from '../generation/passing-experts.js';
import { loadDenseWeights } from '../loading/load-weights.js';

/** Rows of the one pass that is measured. They are enough to activate every expert of a layer. */
const ROWS = 512;
/** Tokens of a sequence of random token ids. */
const RANDOM_TOKENS = 64;
const SEED = 1;

/** Faults of a machine, or of a model's tokenizer, which leave a model without thresholds but do no harm to its slices. */
const HINDRANCES: ReadonlySet<ErrorCode> = new Set(['DEVICE_OUT_OF_MEMORY', 'TOKENIZER_INVALID', 'REQUEST_INVALID']);

export interface ThresholdSetting {
  /** Memory that measuring may take. */
  readonly budgetBytes: number;
  readonly signal: AbortSignal;
  readonly onProgress: (doneLayers: number, layers: number) => void;
}

export type ThresholdMeasurement =
  /** `from`: the tokens that ran. A model without a tokenizer runs random ones. */
  | { readonly theta: readonly MeasuredTheta[]; readonly from: 'text' | 'random tokens'; readonly tokens: number }
  | { readonly problem: string };

/**
 * Runs calibration tokens through the model exactly, in one pass. Dense weights stay in memory, as on main; each expert is loaded for its layer
 * and then makes room for the next one. The result depends on nothing but the model and its tokenizer.
 * @throws CANCELLED; PACK_CORRUPT, MODEL_CORRUPT, STORAGE_FAILED as loading does
 */
export async function measureThresholds(source: ModelSource, setting: ThresholdSetting): Promise<ThresholdMeasurement> {
  const { budgetBytes } = setting;
  try {
    const { sequences, from } = await calibrationTokens(source);
    const device = openDevice({ backend: 'cpu', instructionSet: 'auto', threads: 0, budgetBytes });
    try {
      const renormalized = await runExactly(device, source, sequences, setting);
      return { theta: measuredThresholds(renormalized), from, tokens: sequences.flat().length };
    } finally {
      device.dispose();
    }
  } catch (thrown) {
    const error = toOdmoeError(thrown);
    if (HINDRANCES.has(error.code)) return { problem: error.message };
    throw error;
  }
}

/** The token ids of some texts, each a sequence of its own; of random tokens where there is no tokenizer. */
async function calibrationTokens(
  source: ModelSource,
): Promise<{ sequences: number[][]; from: 'text' | 'random tokens' }> {
  const { vocabSize, maxPositions } = source.shape;
  const tokenizer = await openTokenizer(source.directory);
  if (tokenizer === null) {
    const random = new SeededRandom(SEED).fork('calibration');
    const tokens = (): number[] => Array.from({ length: RANDOM_TOKENS }, () => random.int(vocabSize));
    return {
      sequences: cut(Array.from({ length: ROWS / RANDOM_TOKENS }, tokens), maxPositions),
      from: 'random tokens',
    };
  }
  const text = await readFile(join(packageRoot(), 'models', 'calibration.txt'), 'utf8');
  const passages = text.split('\n\n').map((passage) => tokenizer.encode(passage.trim()));
  const known = passages.map((ids) => ids.filter((id) => id < vocabSize));
  return { sequences: cut(known, maxPositions), from: 'text' };
}

/** As many sequences as fit into the rows of the pass, none longer than the model's context. */
function cut(sequences: readonly number[][], maxPositions: number): number[][] {
  let left = ROWS;
  const taken = sequences.map((ids) => {
    const some = ids.slice(0, Math.min(left, maxPositions));
    left -= some.length;
    return some;
  });
  return taken.filter((ids) => ids.length > 0);
}

/** The renormalized weights of all executions. */
async function runExactly(
  device: Device,
  source: ModelSource,
  inputs: readonly number[][],
  { signal, onProgress }: ThresholdSetting,
): Promise<Float32Array> {
  const { expertsPerToken, expertLayers } = source.shape;
  const renormalized = new Float32Array(expertLayers * inputs.flat().length * expertsPerToken);
  const model = device.createModel(source.shape);
  try {
    await loadDenseWeights(model, source, source.shippedFormat);
    await runPassingExperts(device, model, source, inputs, {
      routed: (layer, { weights }) => {
        renormalized.set(renormalizedWeights(weights, expertsPerToken), layer * weights.length);
        onProgress(layer + 1, expertLayers);
      },
      beforeLoad: () => {
        if (signal.aborted) throw new OdmoeError('CANCELLED', 'measuring the thresholds of slices was interrupted');
      },
    });
    return renormalized;
  } finally {
    model.dispose();
  }
}
