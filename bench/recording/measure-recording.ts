import { mkdtemp, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { runtime } from '../../cli/client/process-runtime.js';
import { RECORDED_HEADER_BYTES, recordedRowBytes } from '../../engine/recording/recorded-row.js';
import { RECORDED_FILE } from '../../packs/format/pack-layout.js';
import { openServedPack } from '../../packs/open-served-pack.js';
import { packForServing } from '../../packs/pack-for-serving.js';
import { assertInvariant, requirePresent } from '../../shared/base/errors/assert-invariant.js';
import { packageRoot } from '../../shared/base/files/package-root.js';
import {
  pairedSpeeds,
  type PairOptions,
  runPairedClusters,
  type SpeedUp,
  speedUpOf,
} from '../paired-clusters/run-paired-clusters.js';

/** The settings of PairOptions that the command does not set itself. */
export type RecordingBenchOptions = Pick<PairOptions, 'workers' | 'users' | 'prompts' | 'rounds'>;

export interface RecordingFigures extends SpeedUp {
  users: number;
  /** Tokens a second of all users together, medians of the rounds. */
  plainTokensPerSecond: number;
  recordingTokensPerSecond: number;
  recordedTokens: number;
}

/** More than any of these runs answers. */
const RECORD_TOKENS = 200_000;

/** Two demo clusters, of which one main records its states, take turns with stories. Neither drafts, so that each token of an answer is recorded. */
export async function measureRecording(options: RecordingBenchOptions, signal: AbortSignal): Promise<RecordingFigures> {
  const directory = await mkdtemp(join(tmpdir(), 'odmoe-recording-'));
  try {
    // A pack of its own: a main goes on with what an earlier one has recorded.
    const demo = join(packageRoot(), 'models', 'demo');
    const packPath = await packForServing(demo, join(directory, 'packs'), runtime, () => undefined, signal);
    const plain = ['--draft-rows', '1'];
    const ofMain = [plain, [...plain, '--record-tokens', String(RECORD_TOKENS)]] as const;
    const runs = await runPairedClusters(
      ['story'],
      { ...options, shadow: 'none', flags: [], packPath, ofMain },
      signal,
    );
    const rounds = requirePresent(runs.get('story'), 'stories were asked for');
    const recordedTokens = await countRecorded(packPath);
    const decoded = rounds.reduce((sum, [, { tokens }]) => sum + tokens, 0);
    assertInvariant(recordedTokens >= decoded, () => `${recordedTokens} of ${decoded} tokens were recorded`);
    const speeds = pairedSpeeds(rounds);
    return {
      users: options.users,
      plainTokensPerSecond: speeds.first,
      recordingTokensPerSecond: speeds.second,
      ...speedUpOf(speeds),
      recordedTokens,
    };
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
}

async function countRecorded(packPath: string): Promise<number> {
  const { size } = await stat(join(packPath, RECORDED_FILE));
  const { shape } = await openServedPack(packPath);
  return Math.floor((size - RECORDED_HEADER_BYTES) / recordedRowBytes(shape));
}
