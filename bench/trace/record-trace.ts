import { tracedRouters, tracedScores } from './record-scores.js';
import { promptTokenIds } from '../../engine/generation/prompt-encoder.js';
import { loadDenseWeights, loadResidentExperts, type Quantized } from '../../engine/loading/load-weights.js';
import { shadowForm } from '../../engine/loading/shadow-form.js';
import type { ShadowPrecision } from '../../shared/settings/setting-choices.js';
import { openModelSource } from '../../packs/open-model-source.js';
import { openDevice, type Model, type Pass, type Sequence } from '../../native/index.js';
import { chooseToken } from '../../engine/sampling/choose-token.js';
import { resolveSampling } from '../../shared/wire/sampling-options.js';
import { openTokenizer } from '../../shared/language/tokenizer/load-tokenizer.js';
import { keyValuesDueBelow, takesMainToken, type AlignmentPeriods } from '../../shadow-node/predictor/alignment.js';
import { loadShadowModel, SHADOW_PASS_ROWS } from '../../shadow-node/predictor/shadow-model.js';
import { recordTrace, type MainTrace } from '../recall/main-trace.js';
import type { TraceDocument, TracePrompt } from '../../simulator/trace/trace-file.js';

const GREEDY = resolveSampling(null, () => 0);

export interface TraceRecording {
  modelPath: string;
  /** Prompts as texts or as token ids. */
  prompts: readonly (string | readonly number[])[];
  /** Decode iterations of a prompt. */
  iterations: number;
  precision: ShadowPrecision;
  /** The part of the shadow that is quantized. */
  quantize: Quantized;
  alignment: AlignmentPeriods;
  /** 0: as many threads as the process may use. */
  threads: number;
  /** Records the scores of all experts, too (version 2), for a model whose routers tell them. */
  scores: boolean;
}

/**
 * Runs a model greedily on prompts, past the end of answers, with a quantized shadow that is aligned as configured. Records the experts that
 * both activate, and whether shadow's own token would have equalled main's. Throws the errors of loading the model.
 */
export async function recordTraceDocument(
  recording: TraceRecording,
  onProgress: (done: number, total: number) => void,
): Promise<TraceDocument> {
  const source = await openModelSource(recording.modelPath);
  const device = openDevice({ backend: 'cpu', instructionSet: 'auto', threads: recording.threads, budgetBytes: 0 });
  const main = device.createModel(source.shape);
  let shadow: Model | null = null;
  try {
    await loadDenseWeights(main, source, 'shipped');
    await loadResidentExperts(main, source, 'shipped');
    const routers = recording.scores ? await tracedRouters(source) : null;
    shadow = await loadShadowModel(device, source, shadowForm(recording.precision), recording.quantize);
    const prompts: TracePrompt[] = [];
    for (const promptIds of await allTokenIds(source.directory, recording.prompts)) {
      prompts.push(await recordPrompt({ main, shadow }, promptIds, { ...recording, scores: routers !== null }));
      onProgress(prompts.length, recording.prompts.length);
    }
    const { expertLayers: layers, experts, expertsPerToken } = source.shape;
    return {
      format: 'odmoe-trace',
      version: routers === null ? 1 : 2,
      model: source.name,
      precision: recording.precision,
      align_token: recording.alignment.token,
      align_kv: recording.alignment.keyValue,
      layers,
      experts,
      experts_per_token: expertsPerToken,
      ...routers,
      prompts,
    };
  } finally {
    shadow?.dispose();
    main.dispose();
    device.dispose();
  }
}

/** The model in the directory needs a tokenizer where a prompt is a text. */
async function allTokenIds(
  directory: string,
  prompts: readonly (string | readonly number[])[],
): Promise<(readonly number[])[]> {
  const ids: (readonly number[])[] = [];
  for (const prompt of prompts) {
    if (typeof prompt !== 'string') ids.push(prompt);
    else {
      const text = { text: prompt, messages: [], promptTokenIds: [], raw: false };
      ids.push(promptTokenIds(text, await openTokenizer(directory), 0));
    }
  }
  return ids;
}

async function recordPrompt(
  { main, shadow }: { main: Model; shadow: Model },
  promptIds: readonly number[],
  { iterations, alignment, scores: withScores }: TraceRecording,
): Promise<TracePrompt> {
  const run = await recordTrace(main, promptIds, { iterations, sampling: GREEDY, endTokenIds: [], withScores });
  try {
    const { predicted, guessedRight } = await followRun(run, shadow, alignment);
    const { activated, scores } = run;
    const recorded = { prompt_tokens: promptIds.length, activated, predicted, guessed_right: guessedRight };
    return withScores ? { ...recorded, scores: scores.map(tracedScores) } : recorded;
  } finally {
    await run.sequence.end();
  }
}

/** Shadow runs each position once, aligned by the daemon's own decisions (OD-MoE section 3.2). */
async function followRun(
  run: MainTrace,
  shadow: Model,
  periods: AlignmentPeriods,
): Promise<{ predicted: number[][][]; guessedRight: boolean[] }> {
  const { promptIds, tokenIds } = run;
  const cache = shadow.createSequence();
  const pass = shadow.createPass(SHADOW_PASS_ROWS);
  const predicted: number[][][] = [];
  const guessedRight: boolean[] = [];
  try {
    let guess = await prefillShadow(cache, pass, promptIds);
    let aligned = 0;
    for (const [index, tokenId] of tokenIds.entries()) {
      const position = promptIds.length + index;
      guessedRight.push(guess === tokenId);
      const due = keyValuesDueBelow(position, promptIds.length, periods);
      if (due > aligned) alignRows(run.sequence.cache, cache, shadow.shape.layers.length, aligned, due);
      aligned = Math.max(aligned, due);
      const token = takesMainToken(position, promptIds.length, periods) ? tokenId : guess;
      const layers: number[][] = [];
      await pass.begin([cache], new Int32Array(1), Int32Array.of(position), Int32Array.of(token));
      await pass.forward((layer, { experts }) => {
        layers[layer] = [...experts];
      });
      predicted.push(layers);
      guess = chooseToken(await pass.logits(Int32Array.of(0)), position + 1, GREEDY);
    }
  } finally {
    pass.dispose();
    cache.dispose();
  }
  return { predicted, guessedRight };
}

/** Returns shadow's token after the prompt. */
async function prefillShadow(cache: Sequence, pass: Pass, promptIds: readonly number[]): Promise<number> {
  let rows = 0;
  for (let start = 0; start < promptIds.length; start += rows) {
    const piece = promptIds.slice(start, start + SHADOW_PASS_ROWS);
    rows = piece.length;
    const positions = Int32Array.from(piece, (_, row) => start + row);
    await pass.begin([cache], new Int32Array(rows), positions, Int32Array.from(piece));
    await pass.forward(null);
  }
  return chooseToken(await pass.logits(Int32Array.of(rows - 1)), promptIds.length, GREEDY);
}

function alignRows(from: Sequence, to: Sequence, layers: number, begin: number, end: number): void {
  for (let layer = 0; layer < layers; layer += 1) {
    to.writeRows(layer, begin, end - begin, from.readRows(layer, begin, end - begin));
  }
}
