import { mkdirSync } from 'node:fs';
import { type OpenRecorder, openRecorder } from '../../engine/recording/state-recorder.js';
import type { SeededRandom } from '../../shared/base/runtime/seeded-random.js';

/** Longest time of an operation: rows wait, and a kill may come between two operations. */
const LONGEST_MS = 20;

/** Records as main does, in this directory in place of the pack's, which scenarios share, and on a disk that takes time. */
export function slowRecorder(directory: string, random: SeededRandom): OpenRecorder {
  return ({ pack: { manifest, shape }, tokens }, runtime, log) => {
    mkdirSync(directory, { recursive: true });
    const slow = {
      sleep: (ms: number) => runtime.sleep(ms),
      outside: async <Result>(work: () => Promise<Result>): Promise<Result> => {
        await runtime.sleep(random.int(LONGEST_MS));
        return runtime.outside(work);
      },
    };
    return openRecorder({ pack: { directory, manifest, shape }, tokens }, slow, log);
  };
}
