import { join } from 'node:path';
import { runtime, transport } from '../../cli/client/process-runtime.js';
import { DemoCluster } from '../../cli/demo/demo-cluster.js';
import { packForServing } from '../../packs/pack-for-serving.js';
import { requirePresent } from '../../shared/base/errors/assert-invariant.js';
import { packageRoot } from '../../shared/base/files/package-root.js';
import type { ShadowPrecision } from '../../shared/settings/setting-choices.js';
import { generate } from '../../shared/transport/node-clients.js';
import type { Finished, GenerateRequest } from '../../shared/wire/messages.js';
import { median } from '../statistics/median.js';
import { draftPrompts, PROMPT_KINDS, type DraftPrompt, type PromptKind } from './draft-prompts.js';

export interface DraftBenchOptions {
  workers: number;
  shadow: 'none' | ShadowPrecision;
  users: number;
  prompts: number;
  rounds: number;
  /** Flags of all daemons, such as those of an emulation. */
  flags: readonly string[];
}

/** Sums over the prompts of a kind. */
interface KindRun {
  tokens: number;
  passes: number;
  ms: number;
  texts: string[];
}

export interface DraftRow {
  kind: PromptKind;
  users: number;
  /** Tokens of an answer that a pass of it yields, without the first one. */
  tokensAPass: number;
  /** Tokens a second of all users together, medians of the rounds. */
  plainTokensPerSecond: number;
  draftedTokensPerSecond: number;
  /** Median of the rounds' ratios. */
  speedUp: number;
}

const START_TIMEOUT_MS = 120_000;

/** Two demo clusters, without drafts and with main's own, take turns. Throws if their answers differ. */
export async function measureDrafts(options: DraftBenchOptions, signal: AbortSignal): Promise<DraftRow[]> {
  const directory = join(packageRoot(), 'models', 'demo');
  const packPath = await packForServing(directory, null, runtime, () => undefined, signal);
  const clusters = [['--draft-rows', '1'], []].map((flags) => clusterOf(packPath, options, flags));
  try {
    for (const cluster of clusters) await cluster.start(signal);
    const [plain, drafted] = clusters as [DemoCluster, DemoCluster];
    // A first run without measurement: the daemons have just started.
    for (const cluster of clusters) await runPrompts(cluster, draftPrompts('story', 2), 1, emptyRun(), signal);
    const rows: DraftRow[] = [];
    for (const kind of PROMPT_KINDS) {
      const rounds: [KindRun, KindRun][] = [];
      for (let round = 0; round < options.rounds; round++) {
        const pair = await runPair([plain, drafted], kind, options, round, signal);
        if (pair[0].texts.join('\0') !== pair[1].texts.join('\0')) throw new Error(`answers of ${kind} differ`);
        rounds.push(pair);
      }
      rows.push(rowOf(kind, options.users, rounds));
    }
    return rows;
  } finally {
    await Promise.all(clusters.map((cluster) => cluster.stop()));
  }
}

function rowOf(kind: PromptKind, users: number, rounds: readonly [KindRun, KindRun][]): DraftRow {
  const speed = ({ tokens, ms }: KindRun): number => tokens / (ms / 1000);
  const drafted = requirePresent(rounds[0], 'there is a round.')[1];
  return {
    kind,
    users,
    tokensAPass: drafted.tokens / Math.max(1, drafted.passes),
    plainTokensPerSecond: median(rounds.map(([plain]) => speed(plain))),
    draftedTokensPerSecond: median(rounds.map(([, with_]) => speed(with_))),
    speedUp: median(rounds.map(([plain, with_]) => speed(with_) / speed(plain))),
  };
}

function clusterOf(packPath: string, options: DraftBenchOptions, main: readonly string[]): DemoCluster {
  const { workers, shadow, flags } = options;
  const ofMain = shadow === 'none' ? ['--prediction', 'router-ahead'] : [];
  return new DemoCluster({
    packPath,
    workers,
    shadow,
    groupSize: 'auto',
    alignTokenPeriod: 1,
    alignKeyValuePeriod: 1,
    startTimeoutMs: START_TIMEOUT_MS,
    // Each round asks the same: its prompts run anew.
    flags: { main: [...flags, '--no-reuse-prefixes', ...ofMain, ...main], worker: flags, shadow: flags },
  });
}

/**
 * A round of one kind in both clusters. One user's prompts alternate between them, one by one, because the machine's speed changes from minute to minute;
 * several users keep one cluster busy for a whole round. The one that runs first changes, as the first one finds colder caches.
 */
async function runPair(
  clusters: readonly [DemoCluster, DemoCluster],
  kind: PromptKind,
  { users, prompts: count }: DraftBenchOptions,
  round: number,
  signal: AbortSignal,
): Promise<[KindRun, KindRun]> {
  const prompts = draftPrompts(kind, count);
  const runs: [KindRun, KindRun] = [emptyRun(), emptyRun()];
  const parts = users === 1 ? prompts.map((prompt) => [prompt]) : [prompts];
  for (const [index, part] of parts.entries()) {
    const order = (round + index) % 2 === 0 ? ([0, 1] as const) : ([1, 0] as const);
    for (const place of order) await runPrompts(clusters[place], part, users, runs[place], signal);
  }
  return runs;
}

function emptyRun(): KindRun {
  return { tokens: 0, passes: 0, ms: 0, texts: [] };
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
