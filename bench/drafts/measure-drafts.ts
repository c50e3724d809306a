import { join } from 'node:path';
import { runtime } from '../../cli/client/process-runtime.js';
import { packForServing } from '../../packs/pack-for-serving.js';
import { packageRoot } from '../../shared/base/files/package-root.js';
import { PROMPT_KINDS, type PromptKind } from '../paired-clusters/draft-prompts.js';
import {
  type PairedRun,
  type PairOptions,
  runPairedClusters,
  speedOf,
} from '../paired-clusters/run-paired-clusters.js';
import { median } from '../statistics/median.js';

export type DraftBenchOptions = Omit<PairOptions, 'packPath' | 'ofMain'>;

export interface DraftRow {
  kind: PromptKind;
  users: number;
  /** Tokens of an answer that a pass of it yields, without the first one, over all rounds. */
  tokensAPass: number;
  /** Tokens a second of all users together, medians of the rounds. */
  plainTokensPerSecond: number;
  draftedTokensPerSecond: number;
  /** Median of the rounds' ratios. */
  speedUp: number;
}

/** Two demo clusters, without drafts and with main's own, take turns. Throws if their answers differ. */
export async function measureDrafts(options: DraftBenchOptions, signal: AbortSignal): Promise<DraftRow[]> {
  const directory = join(packageRoot(), 'models', 'demo');
  const packPath = await packForServing(directory, null, runtime, () => undefined, signal);
  const ofMain = [['--draft-rows', '1'], []] as const;
  const runs = await runPairedClusters(PROMPT_KINDS, { ...options, packPath, ofMain }, signal);
  return [...runs].map(([kind, rounds]) => rowOf(kind, options.users, rounds));
}

function rowOf(kind: PromptKind, users: number, rounds: readonly PairedRun[]): DraftRow {
  const sumOf = (value: 'tokens' | 'passes'): number => rounds.reduce((sum, [, with_]) => sum + with_[value], 0);
  return {
    kind,
    users,
    tokensAPass: sumOf('tokens') / Math.max(1, sumOf('passes')),
    plainTokensPerSecond: median(rounds.map(([plain]) => speedOf(plain))),
    draftedTokensPerSecond: median(rounds.map(([, with_]) => speedOf(with_))),
    speedUp: median(rounds.map(([plain, with_]) => speedOf(with_) / speedOf(plain))),
  };
}
