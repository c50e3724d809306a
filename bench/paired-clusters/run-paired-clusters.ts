/** Two demo clusters that differ in flags of main take turns with the same prompts: their answers must be equal, and their speeds are compared. */
import { runtime, transport } from '../../cli/client/process-runtime.js';
import { DemoCluster } from '../../cli/demo/demo-cluster.js';
import { requirePresent } from '../../shared/base/errors/assert-invariant.js';
import type { ShadowPrecision } from '../../shared/settings/setting-choices.js';
import { generate } from '../../shared/transport/node-clients.js';
import type { Finished, GenerateRequest } from '../../shared/wire/messages.js';
import { median } from '../statistics/median.js';
import { type Spread, spreadOf } from '../statistics/spread.js';
import { draftPrompts, type DraftPrompt, type PromptKind } from './draft-prompts.js';

export interface PairOptions {
  packPath: string;
  workers: number;
  shadow: 'none' | ShadowPrecision;
  users: number;
  prompts: number;
  rounds: number;
  /** Flags of all daemons, such as those of an emulation. */
  flags: readonly string[];
  /** Flags of main, by cluster. */
  ofMain: readonly [readonly string[], readonly string[]];
}

/** Sums over the prompts of a kind. */
export interface KindRun {
  /** Without the first token of each answer, which comes from the prompt's pass. */
  tokens: number;
  passes: number;
  /** Drafts that passes ran, right or wrong. */
  drafts: number;
  ms: number;
  texts: string[];
}

/** A round of one kind in both clusters. */
export type PairedRun = [KindRun, KindRun];

const START_TIMEOUT_MS = 120_000;

/** The rounds of each kind, one kind after the other. Throws if answers differ. */
export async function runPairedClusters<Kind extends PromptKind>(
  kinds: readonly Kind[],
  options: PairOptions,
  signal: AbortSignal,
): Promise<Map<Kind, PairedRun[]>> {
  const clusters: readonly [DemoCluster, DemoCluster] = [
    clusterOf(options, options.ofMain[0]),
    clusterOf(options, options.ofMain[1]),
  ];
  const runs = new Map<Kind, PairedRun[]>();
  try {
    for (const cluster of clusters) await cluster.start(signal);
    // A first run without measurement: the daemons have just started.
    for (const cluster of clusters) await runPrompts(cluster, draftPrompts('story', 2), 1, emptyRun(), signal);
    for (const kind of kinds) {
      const rounds: PairedRun[] = [];
      for (let round = 0; round < options.rounds; round++) {
        const pair = await runPair(clusters, kind, options, round, signal);
        if (pair[0].texts.join('\0') !== pair[1].texts.join('\0')) throw new Error(`answers of ${kind} differ`);
        rounds.push(pair);
      }
      runs.set(kind, rounds);
    }
    return runs;
  } finally {
    await Promise.all(clusters.map((cluster) => cluster.stop()));
  }
}

/** Tokens a second of all users together. */
function speedOf({ tokens, ms }: Pick<KindRun, 'tokens' | 'ms'>): number {
  return tokens / (ms / 1000);
}

/** How much faster the second cluster is: the median of the rounds' ratios, and their range. */
export interface SpeedUp {
  speedUp: number;
  lowestSpeedUp: number;
  highestSpeedUp: number;
}

export function speedUpOf({ ratio: { median: speedUp, lowest, highest } }: PairedSpeeds): SpeedUp {
  return { speedUp, lowestSpeedUp: lowest, highestSpeedUp: highest };
}

/** Titles and cells of a table. */
export const SPEED_UP_TITLES = ['ratio', 'lowest', 'highest'] as const;
export function speedUpCells({ speedUp, lowestSpeedUp, highestSpeedUp }: SpeedUp): string[] {
  return [speedUp, lowestSpeedUp, highestSpeedUp].map((ratio) => ratio.toFixed(2));
}

/** Speeds of the two clusters, and the second one's over the first one's in the same round. */
export interface PairedSpeeds {
  /** Tokens a second, medians of the rounds. */
  first: number;
  second: number;
  ratio: Spread;
}

/** Compares the two clusters over at least one round. Pure. */
export function pairedSpeeds(
  rounds: readonly (readonly [Pick<KindRun, 'tokens' | 'ms'>, Pick<KindRun, 'tokens' | 'ms'>])[],
): PairedSpeeds {
  return {
    first: median(rounds.map(([first]) => speedOf(first))),
    second: median(rounds.map(([, second]) => speedOf(second))),
    ratio: spreadOf(rounds.map(([first, second]) => speedOf(second) / speedOf(first))),
  };
}

function clusterOf({ packPath, workers, shadow, flags }: PairOptions, ofMain: readonly string[]): DemoCluster {
  const prediction = shadow === 'none' ? ['--prediction', 'router-ahead'] : [];
  return new DemoCluster({
    packPath,
    workers,
    shadow,
    groupSize: 'auto',
    alignTokenPeriod: 1,
    alignKeyValuePeriod: 1,
    startTimeoutMs: START_TIMEOUT_MS,
    // Each round asks the same: its prompts run anew.
    flags: { main: [...flags, '--no-reuse-prefixes', ...prediction, ...ofMain], worker: flags, shadow: flags },
  });
}

/**
 * A round of one kind in both clusters. One user's prompts alternate between them, one by one, because the machine's speed changes from minute to minute;
 * several users keep one cluster busy for a whole round. The one that runs first changes, as the first one finds colder caches.
 */
async function runPair(
  clusters: readonly [DemoCluster, DemoCluster],
  kind: PromptKind,
  { users, prompts: count }: PairOptions,
  round: number,
  signal: AbortSignal,
): Promise<PairedRun> {
  const prompts = draftPrompts(kind, count);
  const runs: PairedRun = [emptyRun(), emptyRun()];
  const parts = users === 1 ? prompts.map((prompt) => [prompt]) : [prompts];
  for (const [index, part] of parts.entries()) {
    const order = (round + index) % 2 === 0 ? ([0, 1] as const) : ([1, 0] as const);
    for (const place of order) await runPrompts(clusters[place], part, users, runs[place], signal);
  }
  return runs;
}

function emptyRun(): KindRun {
  return { tokens: 0, passes: 0, drafts: 0, ms: 0, texts: [] };
}

/** The users share the prompts; each asks again as soon as its answer is whole. One user's time is that of decode. */
async function runPrompts(
  cluster: DemoCluster,
  prompts: readonly DraftPrompt[],
  users: number,
  run: KindRun,
  signal: AbortSignal,
): Promise<void> {
  const texts = prompts.map(() => '');
  let [next, decodeMs] = [0, 0];
  const ask = async (): Promise<void> => {
    for (let index = next++; index < prompts.length; index = next++) {
      const prompt = requirePresent(prompts[index], 'each index has a prompt.');
      const { finished, tokens } = await answer(cluster, prompt, signal);
      // The first token comes from the prompt's pass.
      const decodedTokens = Math.max(0, tokens - 1);
      decodeMs += decodedTokens * (finished.timing?.tpotMs ?? 0);
      run.tokens += decodedTokens;
      run.passes += decodedTokens - (finished.drafts?.accepted ?? 0);
      run.drafts += finished.drafts?.proposed ?? 0;
      texts[index] = finished.text;
    }
  };
  const begunMs = runtime.nowMs();
  await Promise.all(Array.from({ length: users }, ask));
  run.ms += users > 1 ? runtime.nowMs() - begunMs : decodeMs;
  run.texts.push(...texts);
}

async function answer(
  cluster: DemoCluster,
  prompt: DraftPrompt,
  signal: AbortSignal,
): Promise<{ finished: Finished; tokens: number }> {
  const { text, raw, maxTokens } = prompt;
  const request: GenerateRequest = {
    text,
    messages: [],
    promptTokenIds: [],
    raw,
    maxTokens,
    sampling: null,
    stop: [],
    ignoreEos: false,
    logprobs: 0,
  };
  let [finished, tokens]: [Finished | null, number] = [null, 0];
  for await (const reply of generate(transport, cluster.mainAddress, request, signal)) {
    if (reply.kind === 'token') tokens += 1;
    if (reply.kind === 'finished') ({ finished } = reply);
  }
  return { finished: requirePresent(finished, 'an answer has an end.'), tokens };
}
