import { join } from 'node:path';
import { runtime } from '../../cli/client/process-runtime.js';
import { packForServing } from '../../packs/pack-for-serving.js';
import { packageRoot } from '../../shared/base/files/package-root.js';
import { PROMPT_KINDS, type PromptKind } from '../paired-clusters/draft-prompts.js';
import {
  type PairedRun,
  type PairOptions,
  runPairedClusters,
  pairedSpeeds,
  type SpeedUp,
  speedUpOf,
} from '../paired-clusters/run-paired-clusters.js';

/** The settings of PairOptions that the command does not set itself. */
export type DraftBenchOptions = Omit<PairOptions, 'packPath' | 'ofMain'>;

export interface DraftRow extends SpeedUp {
  kind: PromptKind;
  users: number;
  /** Tokens of an answer that a pass of it yields, without the first one, over all rounds. */
  tokensAPass: number;
  /** Drafts, right or wrong, that a pass of an answer runs. */
  draftsAPass: number;
  /** Tokens a second of all users together, medians of the rounds. */
  plainTokensPerSecond: number;
  draftedTokensPerSecond: number;
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
  const sumOf = (value: 'tokens' | 'passes' | 'drafts'): number =>
    rounds.reduce((sum, [, drafted]) => sum + drafted[value], 0);
  const passes = Math.max(1, sumOf('passes'));
  const speeds = pairedSpeeds(rounds);
  return {
    kind,
    users,
    tokensAPass: sumOf('tokens') / passes,
    draftsAPass: sumOf('drafts') / passes,
    plainTokensPerSecond: speeds.first,
    draftedTokensPerSecond: speeds.second,
    ...speedUpOf(speeds),
  };
}
