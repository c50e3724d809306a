/**
 * Runs a short text through a model when it is packed, and measures by it: thresholds (theta) that make shares of the executions critical, and the
 * recall of the forms in which a shadow may hold the model. Dense weights stay in memory, as on main; each expert is loaded for its layer and
 * then makes room for the next one. The result depends on nothing but the model and its tokenizer.
 */
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { openDevice, type Device, type RouterChoice } from '../../native/index.js';
import { OdmoeError, toOdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { ErrorCode } from '../../shared/base/errors/registry.js';
import { packageRoot } from '../../shared/base/files/package-root.js';
import { SeededRandom } from '../../shared/base/runtime/seeded-random.js';
import { AUTO_PRECISIONS, type FormRecall } from '../../shared/decisions/slices/choose-shadow-form.js';
import { renormalizedWeights } from '../../shared/decisions/slices/critical-executions.js';
import { measuredThresholds, type MeasuredTheta } from '../../shared/decisions/slices/plan-readings.js';
import { openTokenizer } from '../../shared/language/tokenizer/load-tokenizer.js';
import type { ModelSource, WeightFormat } from '../../shared/model/tensor-source.js';
import { expertsIn, type PassingExperts, runPassingExperts, withShadowExperts } from '../generation/passing-experts.js';
import { loadDenseWeights } from '../loading/load-weights.js';
import { shadowForm } from '../loading/shadow-form.js';

/** Rows of the one pass that is measured. They are enough to activate every expert of a layer. */
const ROWS = 512;
/** Tokens of a sequence of random token ids. */
const RANDOM_TOKENS = 64;
const SEED = 1;

/** Faults of a machine, or of a model's tokenizer, which leave a model without measurements but do no harm to its pack. */
const HINDRANCES: ReadonlySet<ErrorCode> = new Set(['DEVICE_OUT_OF_MEMORY', 'TOKENIZER_INVALID', 'REQUEST_INVALID']);

export interface CalibrationSetting {
  /** Memory that measuring may take. */
  readonly budgetBytes: number;
  readonly signal: AbortSignal;
  readonly onProgress: (doneLayers: number, layers: number) => void;
  /** Measures the recall of all forms of a shadow, too: that takes as many passes more as there are forms. */
  readonly withRecall: boolean;
}

export interface Calibration {
  readonly theta: readonly MeasuredTheta[];
  /** By the order of AUTO_PRECISIONS, without those that cannot hold this model; null: not asked for. */
  readonly recall: readonly FormRecall[] | null;
  /** The tokens that ran. A model without a tokenizer runs random ones. */
  readonly from: 'text' | 'random tokens';
  readonly tokens: number;
}

export type CalibrationResult = Calibration | { readonly problem: string };

/**
 * Recall is measured in one pass per form, in which a shadow's rows read its own keys and values: alignment with main would make each recall higher,
 * and keeps their order.
 * @throws CANCELLED; PACK_CORRUPT, MODEL_CORRUPT, STORAGE_FAILED, STORAGE_FULL as loading does
 */
export async function calibrate(source: ModelSource, setting: CalibrationSetting): Promise<CalibrationResult> {
  const { budgetBytes, withRecall } = setting;
  try {
    const { sequences, from } = await calibrationTokens(source);
    const device = openDevice({ backend: 'cpu', instructionSet: 'auto', threads: 0, budgetBytes });
    try {
      const run = new CalibrationRun(device, source, sequences, setting);
      const exact = await run.choices('shipped', expertsIn('shipped', source));
      const renormalized = exact.map(({ weights }) => renormalizedWeights(weights, source.shape.expertsPerToken));
      const theta = measuredThresholds(Float32Array.from(renormalized.flatMap((ofLayer) => [...ofLayer])));
      const recall = withRecall ? await run.recallOfForms(exact) : null;
      return { theta, recall, from, tokens: sequences.flat().length };
    } finally {
      device.dispose();
    }
  } catch (thrown) {
    const error = toOdmoeError(thrown);
    if (HINDRANCES.has(error.code)) return { problem: error.message };
    throw error;
  }
}

/** Passes over the same tokens, exact or as a shadow's. */
class CalibrationRun {
  private readonly passes: number;
  private donePasses = 0;

  constructor(
    private readonly device: Device,
    private readonly source: ModelSource,
    private readonly sequences: readonly number[][],
    private readonly setting: CalibrationSetting,
  ) {
    this.passes = setting.withRecall ? 1 + AUTO_PRECISIONS.length : 1;
  }

  /** The choices of all routers, by layer. `projections`: format of dense weights, as loadDenseWeights takes it. */
  async choices(projections: WeightFormat, experts: PassingExperts): Promise<RouterChoice[]> {
    const { device, source, sequences, setting } = this;
    const { expertLayers } = source.shape;
    const choices: RouterChoice[] = [];
    const model = device.createModel(source.shape);
    try {
      await loadDenseWeights(model, source, projections);
      await runPassingExperts(device, model, experts, sequences, {
        routed: (layer, choice) => {
          choices.push(choice);
          setting.onProgress(this.donePasses * expertLayers + layer + 1, this.passes * expertLayers);
        },
        beforeLoad: () => {
          if (setting.signal.aborted) throw new OdmoeError('CANCELLED', 'measuring with the model was interrupted');
        },
      });
      this.donePasses += 1;
      return choices;
    } finally {
      model.dispose();
    }
  }

  async recallOfForms(exact: readonly RouterChoice[]): Promise<FormRecall[]> {
    const recalls: FormRecall[] = [];
    for (const precision of AUTO_PRECISIONS) {
      const form = shadowForm(precision);
      try {
        const predicted = await withShadowExperts(this.source, form, (experts) => this.choices(form.format, experts));
        recalls.push({ precision, recall: recallOf(predicted, exact, this.source.shape.expertsPerToken) });
      } catch (thrown) {
        // Some experts cannot be sliced.
        if (toOdmoeError(thrown).code !== 'MODEL_UNSUPPORTED') throw thrown;
      }
    }
    return recalls;
  }
}

/** The share of the activated experts of all rows and layers that the same row of the other run activates, too. */
function recallOf(
  predicted: readonly RouterChoice[],
  activated: readonly RouterChoice[],
  expertsPerToken: number,
): number {
  let [correct, all] = [0, 0];
  for (const [layer, { experts }] of activated.entries()) {
    const others = predicted[layer]?.experts ?? new Int32Array();
    for (const [index, expert] of experts.entries()) {
      const first = index - (index % expertsPerToken);
      if (others.subarray(first, first + expertsPerToken).includes(expert)) correct += 1;
      all += 1;
    }
  }
  return correct / all;
}

/** The token ids of some texts, each a sequence of its own; of random tokens where there is no tokenizer. */
async function calibrationTokens(
  source: ModelSource,
): Promise<{ sequences: number[][]; from: 'text' | 'random tokens' }> {
  const { vocabSize, maxPositions } = source.shape;
  const tokenizer = await openTokenizer(source.directory, source.madeFiles);
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
