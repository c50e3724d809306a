import { realDevices } from '../../engine/environment/node-environment.js';
import type { LocalEngine } from '../../engine/generation/local-engine.js';
import type { SequenceRunner } from '../../engine/generation/sequence-runner.js';
import { highestIds } from '../../engine/sampling/highest.js';
import { measureMachine } from '../../native/index.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import {
  benchPrompt,
  meanWeightBytes,
  openEngine,
  type JoulesMeter,
  type MeasuredWeightForm,
} from './measure-generate.js';
import { decodeBytesPerToken, prefillFlop } from './model-cost.js';

export interface ContextBenchOptions {
  /** Positions before the first decoded token. */
  contexts: readonly number[];
  resident: MeasuredWeightForm;
  /** Tokens that are decoded at each context in each round. */
  answerTokens: number;
  rounds: number;
  threads: number;
  prefillRows: number;
  /** Time of each measurement of the machine's two figures. */
  machineMs: number;
}

/** Figures of one context. Decode figures have one entry per round. */
export interface ContextFigures {
  context: number;
  /** Time of the whole prompt, measured once. */
  prefillMs: number;
  prefillTokensPerS: number;
  prefillFlopPerS: number;
  /** Share of the FP32 FMA peak that was measured right before. */
  prefillShare: number;
  decodeTokensPerS: number[];
  decodeBytesPerS: number[];
  /** Shares of the memory read bandwidth that was measured in the same round. */
  decodeShare: number[];
  /** Energy of the whole machine, from its counters; null: not measured. */
  decodeJoulesPerToken: (number | null)[];
}

interface FilledContext {
  figures: ContextFigures;
  runner: SequenceRunner;
  tokenId: number;
  /** Number of positions so far. */
  length: number;
}

/**
 * Measures prefill and decode at each context. Every context is filled once. Then all of them decode in turns, round by round, so that other
 * load on the machine slows all of them alike. All contexts' keys and values stay in memory until the end.
 *
 * @throws USAGE when the model has fewer positions than the longest context and its answer need
 */
export async function measureContexts(
  directory: string,
  options: ContextBenchOptions,
  meter: JoulesMeter,
): Promise<ContextFigures[]> {
  const engine = await openEngine(directory, options.resident, options);
  const filled: FilledContext[] = [];
  try {
    checkPositions(engine, options);
    // The first passes touch the weights' pages and the code for the first time.
    await warmUp(engine, options.prefillRows);
    for (const context of options.contexts) filled.push(await fillContext(engine, context, options.machineMs));
    for (let round = 0; round < options.rounds; round++) {
      for (const one of filled) await decodeRound(engine, one, options, meter);
    }
    return filled.map(({ figures }) => figures);
  } finally {
    for (const { runner } of filled) await runner.end();
    engine.dispose();
  }
}

function checkPositions(engine: LocalEngine, { contexts, rounds, answerTokens }: ContextBenchOptions): void {
  const needed = Math.max(...contexts) + rounds * answerTokens;
  const { maxPositions } = engine.source.shape;
  if (needed <= maxPositions) return;
  throw new OdmoeError(
    'USAGE',
    `the model has ${maxPositions} positions, and the longest context with its answer takes ${needed}; ` +
      'give a shorter context, or make a model with odmoe bench synth --context',
  );
}

async function warmUp(engine: LocalEngine, rows: number): Promise<void> {
  const runner = engine.createRunner();
  try {
    const { vocabSize, maxPositions } = engine.source.shape;
    const logits = await runner.prefill(benchPrompt(vocabSize, Math.min(rows, maxPositions - 1)));
    await runner.decode(mostLikely(logits));
  } finally {
    await runner.end();
  }
}

async function fillContext(engine: LocalEngine, context: number, machineMs: number): Promise<FilledContext> {
  const { shape } = engine.source;
  const { fmaFlopPerS } = await measureMachine(engine.device, machineMs);
  const runner = engine.createRunner();
  try {
    const { value: logits, ms } = await timed(() => runner.prefill(benchPrompt(shape.vocabSize, context)));
    const prefillFlopPerS = (prefillFlop(shape, context) * 1000) / ms;
    const figures: ContextFigures = {
      context,
      prefillMs: ms,
      prefillTokensPerS: (context * 1000) / ms,
      prefillFlopPerS,
      prefillShare: prefillFlopPerS / fmaFlopPerS,
      decodeTokensPerS: [],
      decodeBytesPerS: [],
      decodeShare: [],
      decodeJoulesPerToken: [],
    };
    return { figures, runner, tokenId: mostLikely(logits), length: context };
  } catch (thrown) {
    await runner.end();
    throw thrown;
  }
}

/** Tokens are chosen greedily between the passes, as in an answer. */
async function decodeRound(
  engine: LocalEngine,
  one: FilledContext,
  options: ContextBenchOptions,
  meter: JoulesMeter,
): Promise<void> {
  const { answerTokens: tokens, machineMs } = options;
  const { readBytesPerS } = await measureMachine(engine.device, machineMs);
  const before = meter.joules();
  const { ms } = await timed(async () => {
    for (let token = 0; token < tokens; token++) one.tokenId = mostLikely(await one.runner.decode(one.tokenId));
  });
  const after = meter.joules();
  const tokensPerS = (tokens * 1000) / ms;
  const bytes = decodeBytesPerToken(engine.source.shape, meanWeightBytes(engine), one.length + tokens / 2);
  one.length += tokens;
  one.figures.decodeTokensPerS.push(tokensPerS);
  one.figures.decodeBytesPerS.push(tokensPerS * bytes);
  one.figures.decodeShare.push((tokensPerS * bytes) / readBytesPerS);
  one.figures.decodeJoulesPerToken.push(before === null || after === null ? null : (after - before) / tokens);
}

async function timed<T>(run: () => Promise<T>): Promise<{ value: T; ms: number }> {
  const { runtime } = realDevices();
  const startedMs = runtime.nowMs();
  const value = await run();
  return { value, ms: runtime.nowMs() - startedMs };
}

function mostLikely(logits: Float32Array): number {
  return highestIds(logits, 1)[0] ?? 0;
}
