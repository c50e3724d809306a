/** One GGUF file in two engines on this machine, each in one process, in turns: odmoe's engine, and llama.cpp by its own llama-bench. */
import { join, resolve } from 'node:path';
import { tableLines } from '../../cli/output/table.js';
import type { LocalEngine } from '../../engine/generation/local-engine.js';
import { snakeCaseKeys } from '../../shared/base/json/snake-case.js';
import { standardError } from '../../shared/base/text/text-output.js';
import { openEngine, timeAnswer } from '../generate/measure-generate.js';
import type { MeasuredRun } from '../history/measured-run.js';
import { type Spread, spreadOf } from '../statistics/spread.js';
import { RunningProcess } from './running-process.js';
import { parseLlamaBench, type Speeds, type Workload } from './systems.js';

export interface SameFileFlags {
  /** A directory; left out: the one of PATH. */
  llamaBin?: string;
  gguf: string;
  threads: number;
  rounds: number;
  promptTokens: number;
  tokens: number;
  json: boolean;
}

/** A round: both engines, one right after the other. Tokens per second. */
export interface SameFileRound {
  odmoe: Speeds;
  llama: Speeds;
}

/** Rows of one prefill pass; llama-bench takes 512, more than most prompts here have. */
const PREFILL_ROWS = 512;
const NO_METER = { joules: () => null };

/**
 * Measures and prints. The engine of odmoe stays loaded; llama-bench loads the file in each of its turns, which is not counted.
 * @throws as LocalEngine.open; USAGE or TIMEOUT if llama-bench fails; AbortError
 */
export async function benchSameFile(flags: SameFileFlags, run: MeasuredRun, signal: AbortSignal): Promise<void> {
  const path = resolve(flags.gguf);
  const workload = { promptTokens: flags.promptTokens, answerTokens: flags.tokens, threads: flags.threads };
  const llama = llamaBenchCommand(flags.llamaBin, path, workload);
  const engine = await openEngine(path, null, { threads: flags.threads, prefillRows: PREFILL_ROWS });
  try {
    // The first answer touches the weights' pages and the code for the first time.
    await odmoeTurn(engine, workload, signal);
    const rounds: SameFileRound[] = [];
    while (rounds.length < flags.rounds) {
      const odmoe = await odmoeTurn(engine, workload, signal);
      rounds.push({ odmoe, llama: await llamaTurn(llama, flags.promptTokens, signal) });
      standardError.write(`round ${rounds.length} of ${flags.rounds}\n`);
    }
    const engines = sameFileEngines(rounds);
    run.print(snakeCaseKeys({ ...workload, engines }), flags.json, () => asText(engines, workload, flags.rounds));
  } finally {
    engine.dispose();
  }
}

/** Decode begins behind a prompt (-d), as odmoe's does. The processor alone computes (-ngl 0). */
export function llamaBenchCommand(
  binaries: string | undefined,
  ggufPath: string,
  { promptTokens, answerTokens, threads }: Workload,
): [string, ...string[]] {
  const program = binaries === undefined ? 'llama-bench' : join(resolve(binaries), 'llama-bench');
  const tokens = ['-p', String(promptTokens), '-n', String(answerTokens), '-d', `0,${promptTokens}`];
  return [program, '-m', ggufPath, '-ngl', '0', '-t', String(threads), ...tokens, '-r', '1', '-o', 'json'];
}

async function odmoeTurn(engine: LocalEngine, workload: Workload, signal: AbortSignal): Promise<Speeds> {
  const { timing } = await timeAnswer(engine, workload, NO_METER, signal);
  return {
    prefillTokensPerS: (workload.promptTokens * 1000) / timing.ttftMs,
    decodeTokensPerS: timing.decodeTokensPerS,
  };
}

async function llamaTurn(command: [string, ...string[]], promptTokens: number, signal: AbortSignal): Promise<Speeds> {
  const running = new RunningProcess('llama-bench', command, signal);
  try {
    return parseLlamaBench(await running.untilDone(), promptTokens);
  } finally {
    await running.stop();
  }
}

function overLlama({ odmoe, llama }: SameFileRound, figure: 'decodeTokensPerS' | 'prefillTokensPerS'): number {
  return (odmoe[figure] ?? 0) / (llama[figure] ?? 0);
}

export interface SameFileEngine {
  engine: string;
  decodeTokensPerS: Spread;
  prefillTokensPerS: Spread;
  /** Null for llama.cpp itself. */
  decodeOverLlama: Spread | null;
  prefillOverLlama: Spread | null;
}

/** Ratios are of the two turns of a round, because the machine's speed changes between the rounds. At least one round. Pure. */
export function sameFileEngines(rounds: readonly SameFileRound[]): [SameFileEngine, SameFileEngine] {
  const spread = (valueOf: (round: SameFileRound) => number): Spread => spreadOf(rounds.map(valueOf));
  const speeds = (engine: keyof SameFileRound): Pick<SameFileEngine, 'decodeTokensPerS' | 'prefillTokensPerS'> => ({
    decodeTokensPerS: spread((round) => round[engine].decodeTokensPerS),
    prefillTokensPerS: spread((round) => round[engine].prefillTokensPerS ?? 0),
  });
  return [
    {
      engine: 'odmoe',
      ...speeds('odmoe'),
      decodeOverLlama: spread((round) => overLlama(round, 'decodeTokensPerS')),
      prefillOverLlama: spread((round) => overLlama(round, 'prefillTokensPerS')),
    },
    { engine: 'llama.cpp', ...speeds('llama'), decodeOverLlama: null, prefillOverLlama: null },
  ];
}

function asText(
  engines: readonly SameFileEngine[],
  { promptTokens, answerTokens, threads }: Workload,
  rounds: number,
): string {
  const cell = (spread: Spread | null, digits: number): string =>
    spread === null
      ? ''
      : `${spread.median.toFixed(digits)} (${spread.lowest.toFixed(digits)}..${spread.highest.toFixed(digits)})`;
  const titles = ['decode, tokens/s', "of llama.cpp's", `prefill of ${promptTokens}, tokens/s`, "of llama.cpp's"];
  const lines = tableLines(
    [{ title: 'engine', align: 'left' }, ...titles.map((title) => ({ title, align: 'right' as const }))],
    engines.map((each) => [
      each.engine,
      cell(each.decodeTokensPerS, 2),
      cell(each.decodeOverLlama, 3),
      cell(each.prefillTokensPerS, 1),
      cell(each.prefillOverLlama, 3),
    ]),
  );
  return `${lines.join('\n')}\n(median and range of ${rounds} rounds; ${threads} threads, answers of ${answerTokens} tokens; ratios are of the two turns of a round)\n`;
}
