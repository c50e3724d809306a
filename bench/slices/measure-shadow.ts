/** The table `shadow`: recall and bytes of shadows whose experts are sliced, and of those that are not. */
import { ExpertRecall } from '../../engine/generation/expert-recall.js';
import { loadDenseWeights, loadResidentExperts } from '../../engine/loading/load-weights.js';
import type { ShadowForm } from '../../engine/loading/shadow-form.js';
import { openDevice, type Device } from '../../native/index.js';
import { openModelSource } from '../../packs/open-model-source.js';
import { openTokenizer } from '../../shared/language/tokenizer/load-tokenizer.js';
import type { ModelSource, SliceReading } from '../../shared/model/tensor-source.js';
import { resolveSampling } from '../../shared/wire/sampling-options.js';
import { loadShadowModel, SHADOW_PASS_ROWS } from '../../shadow-node/predictor/shadow-model.js';
import { demoPrompts } from '../../engine/fitting/demo-prompts.js';
import { recordTrace, type MainTrace } from '../recall/main-trace.js';
import { tokenizePrompts } from '../recall/measure-recall.js';
import { replayTraces } from '../recall/replay-trace.js';
import { SLICED_FORMS } from './measure-slices.js';

export interface ShadowRow {
  table: 'shadow';
  /** "(8,4) high", "(8,4) low" (by the paper's rule), "(8,4) low centred"; or the format of experts that are not sliced. */
  experts: string;
  /** Format of all other projections. */
  attention: string;
  /** As `odmoe bench recall` measures it, aligned at every iteration. */
  recall: number;
  /** Bytes of all matrices of the shadow on its device. */
  bytes: number;
}

export interface MeasuredShadow {
  readonly experts: string;
  readonly attention: 'int8' | 'nf4' | 'lossless';
  readonly sliced: ShadowForm['sliced'];
}

const READINGS: readonly (readonly [name: string, reading: SliceReading])[] = [
  ['high', 'both'],
  ['low', 'upperAmat'],
  ['low centred', 'upperCentred'],
];

/** All of the table. */
export const SHADOWS: readonly MeasuredShadow[] = [
  { experts: 'int8', attention: 'int8', sliced: null },
  { experts: 'nf4', attention: 'nf4', sliced: null },
  ...(['int8', 'lossless'] as const).flatMap((attention) =>
    SLICED_FORMS.flatMap(({ name, split }) =>
      READINGS.map(([kind, reading]) => ({ experts: `${name} ${kind}`, attention, sliced: { split, reading } })),
    ),
  ),
];

export interface ShadowOptions {
  /** The first so many prompts of `odmoe bench recall`. */
  readonly prompts: number;
  /** Decode iterations of a prompt. */
  readonly iterations: number;
  readonly shadows: readonly MeasuredShadow[];
  /** Gets the shadow that is measured next. */
  readonly onProgress: (shadow: string) => void;
}

/**
 * Lets each shadow follow the same greedy answers of the lossless model, which runs once. No rows where the checkpoint has no tokenizer. Memory holds
 * the keys and values of all prompts. @throws the errors of loading a model
 */
export async function measureShadows(directory: string, options: ShadowOptions): Promise<ShadowRow[]> {
  const source = await openModelSource(directory);
  if ((await openTokenizer(source.directory)) === null) return [];
  const device = openDevice({ backend: 'cpu', instructionSet: 'auto', threads: 0, budgetBytes: 0 });
  try {
    return await withTraces(device, source, options, async (traces) => {
      const rows: ShadowRow[] = [];
      for (const shadow of options.shadows) {
        options.onProgress(`${shadow.experts}, attention ${shadow.attention}`);
        rows.push(await measureShadow(device, source, shadow, traces));
      }
      return rows;
    });
  } finally {
    device.dispose();
  }
}

/** Records the answers of the lossless model. */
async function withTraces<T>(
  device: Device,
  source: ModelSource,
  { prompts, iterations }: ShadowOptions,
  use: (traces: readonly MainTrace[]) => Promise<T>,
): Promise<T> {
  const main = device.createModel(source.shape);
  const traces: MainTrace[] = [];
  try {
    await loadDenseWeights(main, source, 'shipped');
    await loadResidentExperts(main, source, 'shipped');
    const sampling = resolveSampling(null, () => 0);
    for (const promptIds of await tokenizePrompts(source, demoPrompts(prompts))) {
      traces.push(await recordTrace(main, promptIds, { iterations, sampling, endTokenIds: [] }));
    }
    return await use(traces);
  } finally {
    for (const { sequence } of traces) await sequence.end();
    main.dispose();
  }
}

async function measureShadow(
  device: Device,
  source: ModelSource,
  { experts, attention, sliced }: MeasuredShadow,
  traces: readonly MainTrace[],
): Promise<ShadowRow> {
  const format = attention === 'lossless' ? 'shipped' : attention;
  const model = await loadShadowModel(device, source, { format, sliced }, 'projections');
  const pass = model.createPass(SHADOW_PASS_ROWS);
  try {
    const recall = new ExpertRecall();
    const aligned = { periods: { token: 1, keyValue: 1 }, sampling: null };
    await replayTraces(traces, { model, pass }, aligned, recall);
    const bytes = model.residentWeights().kinds.reduce((sum, kind) => sum + kind.bytes, 0);
    return { table: 'shadow', experts, attention, recall: recall.result().recall, bytes };
  } finally {
    pass.dispose();
    model.dispose();
  }
}
