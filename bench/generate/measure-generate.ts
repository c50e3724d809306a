import { realDevices } from '../../engine/environment/node-environment.js';
import { LocalEngine } from '../../engine/generation/local-engine.js';
import { measureMachine } from '../../native/index.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { rowBytes } from '../../shared/model/weight-dtype.js';
import type { GenerateRequest, Timing } from '../../shared/wire/messages.js';
import { counterRandom } from '../../shared/base/arithmetic/counter-random.js';
import type { EnergyMeter } from '../energy/energy-meter.js';
import { decodeBytesPerToken, multipliedWeights, prefillFlop } from './model-cost.js';

/** The weight form of an engine; null: as shipped. */
export type MeasuredWeightForm = 'bf16' | 'fixed4' | null;

export interface GenerateBenchOptions {
  /** Weight forms: one engine for each, all loaded at the same time. */
  residents: readonly MeasuredWeightForm[];
  promptTokens: number;
  answerTokens: number;
  rounds: number;
  threads: number;
  prefillRows: number;
}

/** One round: the machine and the engine, measured one right after the other. */
export interface GenerateBenchRound {
  readBytesPerS: number;
  fmaFlopPerS: number;
  decodeTokensPerS: number;
  decodeBytesPerS: number;
  prefillTokensPerS: number;
  prefillFlopPerS: number;
  /** Share of the memory read bandwidth, and share of the FP32 FMA peak. */
  decodeShare: number;
  prefillShare: number;
  /** Energy of the whole machine, from its counters; null: not measured. */
  decodeJoulesPerToken: number | null;
}

/** Tells joules since some time; null: not measured. */
export type JoulesMeter = Pick<EnergyMeter, 'joules'>;

/** Time of each measurement of the machine's two figures in a round. */
export const MACHINE_MS = 400;

/**
 * Runs rounds of (machine, prefill, decode) for each engine in turn, interleaved, so that other load on the machine slows all sides alike.
 * Returns each engine's rounds, in the order of options.residents.
 */
export async function measureGenerate(
  directory: string,
  options: GenerateBenchOptions,
  meter: JoulesMeter,
): Promise<GenerateBenchRound[][]> {
  const engines: LocalEngine[] = [];
  try {
    for (const resident of options.residents) engines.push(await openEngine(directory, resident, options));
    // The first answer touches the weights' pages and the code for the first time.
    for (const engine of engines) await timeAnswer(engine, options, meter);
    const rounds = engines.map((): GenerateBenchRound[] => []);
    for (let round = 0; round < options.rounds; round++) {
      for (const [index, engine] of engines.entries()) rounds[index]?.push(await measureRound(engine, options, meter));
    }
    return rounds;
  } finally {
    engines.forEach((engine) => {
      engine.dispose();
    });
  }
}

export async function openEngine(
  directory: string,
  resident: MeasuredWeightForm,
  options: { threads: number; prefillRows: number },
): Promise<LocalEngine> {
  return await LocalEngine.open(directory, {
    device: { backend: 'cpu', instructionSet: 'auto', threads: options.threads, budgetBytes: 0 },
    emulation: null,
    resident,
    shadow: null,
    prefillRows: options.prefillRows,
    chooseSeed: () => 0,
    environment: realDevices(),
    onProgress: null,
  });
}

async function measureRound(
  engine: LocalEngine,
  options: GenerateBenchOptions,
  meter: JoulesMeter,
): Promise<GenerateBenchRound> {
  const { shape } = engine.source;
  const { readBytesPerS, fmaFlopPerS } = await measureMachine(engine.device, MACHINE_MS);
  const { timing, decodeJoules } = await timeAnswer(engine, options, meter);
  const meanPositions = options.promptTokens + options.answerTokens / 2;
  const bytesPerToken = decodeBytesPerToken(shape, meanWeightBytes(engine), meanPositions);
  const decodeBytesPerS = timing.decodeTokensPerS * bytesPerToken;
  const prefillFlopPerS = (prefillFlop(shape, options.promptTokens) * 1000) / timing.ttftMs;
  return {
    readBytesPerS,
    fmaFlopPerS,
    decodeTokensPerS: timing.decodeTokensPerS,
    decodeBytesPerS,
    prefillTokensPerS: (options.promptTokens * 1000) / timing.ttftMs,
    prefillFlopPerS,
    decodeShare: decodeBytesPerS / readBytesPerS,
    prefillShare: prefillFlopPerS / fmaFlopPerS,
    decodeJoulesPerToken: decodeJoules === null ? null : decodeJoules / (options.answerTokens - 1),
  };
}

/** Mean bytes of a weight in memory. An embedding that is only looked up does not count. */
export function meanWeightBytes(engine: LocalEngine): number {
  const { source } = engine;
  const { rows, columns, split } = source.dense('embedding', 0);
  const bytes = engine.residentWeights().kinds.reduce((sum, kind) => sum + kind.bytes, 0);
  const lookedUp = source.tiedEmbeddings ? 0 : rows * rowBytes(split, columns);
  return (bytes - lookedUp) / multipliedWeights(source.shape);
}

/** Random tokens, the same at every call. */
export function benchPrompt(vocabSize: number, tokens: number): number[] {
  return Array.from({ length: tokens }, (_, n) => Math.floor(counterRandom(0, n) * vocabSize));
}

/** `decodeJoules`: from the first token of the answer, which the prompt gives, to the last one. */
export async function timeAnswer(
  engine: LocalEngine,
  options: Pick<GenerateBenchOptions, 'promptTokens' | 'answerTokens'>,
  meter: JoulesMeter,
  signal: AbortSignal = new AbortController().signal,
): Promise<{ timing: Timing; decodeJoules: number | null }> {
  const { vocabSize } = engine.source.shape;
  const request: GenerateRequest = {
    text: '',
    messages: [],
    promptTokenIds: benchPrompt(vocabSize, options.promptTokens),
    raw: true,
    maxTokens: options.answerTokens,
    sampling: null,
    stop: [],
    ignoreEos: true,
    logprobs: 0,
  };
  let first: number | null = null;
  for await (const reply of engine.generate(request, signal)) {
    if (reply.kind === 'token') first ??= meter.joules();
    if (reply.kind !== 'finished' || reply.finished.timing === null) continue;
    const last = meter.joules();
    return { timing: reply.finished.timing, decodeJoules: first === null || last === null ? null : last - first };
  }
  throw new OdmoeError('INTERNAL', 'an answer ended without its timing');
}
