import type { DeviceProfile, PlannedStorage } from '../../engine/emulation/device-profile.js';
import { nodeTimes } from '../../engine/emulation/node-times.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { clusterTimes, DEFAULT_SET_UP, type ClusterSetUp } from '../../simulator/simulate/cluster-set-up.js';
import { simulateCluster } from '../../simulator/simulate/simulate-cluster.js';
import { SyntheticTrace } from '../../simulator/trace/synthetic-trace.js';
import { median } from '../statistics/median.js';

export interface HomesSetting {
  /** Main's device, the worker's, and the network. One worker more has main's device: the fast one. */
  profile: DeviceProfile;
  storage: PlannedStorage;
  /** Workers with the profile's worker's device. */
  slowWorkers: number;
  /** Part of all experts that each worker's cache holds. */
  cachedPart: number;
  /** Tokens of the answer. Those before homes change are measured as by count; the last quarter as by speed. */
  tokens: number;
  seed: number;
}

export interface HomesResult {
  /** Shares of the workers in the order of their ids; the fast one is the first. All are 1 where homes have stayed by count for MEASURING_MS. */
  shares: readonly number[];
  /** Median time of a token while homes are by count, and when they have been by speed for a while. The same where they stay by count. */
  byCountMs: number;
  bySpeedMs: number;
  speedUp: number;
}

/**
 * A prompt of so many tokens, in one message to each worker, uses all experts of a layer: caches are full when the answer begins, so that tokens by count and by
 * speed find them alike. Each expert runs on many rows, which says nothing of the speed on one, so that homes do not change before the answer.
 */
const PROMPT_TOKENS = 256;
/** Fewest tokens of a median. */
const LEAST_TOKENS = 3;
/** Time in which each worker has reported its speed often enough, and with room to spare. */
const MEASURING_MS = 8_000;

/** The cluster begins with homes by count, measures itself, and goes on with homes by speed: the tokens before and after are compared. */
export async function measureHomes(setting: HomesSetting): Promise<HomesResult> {
  const { timing } = await simulateHomes(setting);
  const durations = timing.passes.map(({ beginMs, endMs }, index) => ({
    beginMs,
    ms: endMs - (timing.passes[index - 1]?.endMs ?? beginMs),
  }));
  const last = durations.slice(-Math.ceil(setting.tokens / 4));
  const [first, end] = [durations[0]?.beginMs ?? 0, last[0]?.beginMs ?? 0];
  const changes = timing.homeShares.filter(({ shares }) => new Set(shares).size > 1);
  const before = durations.filter(({ beginMs }) => beginMs < (changes[0]?.atMs ?? Infinity));
  const settledMs = changes.at(-1)?.atMs ?? first + MEASURING_MS;
  if (before.length < LEAST_TOKENS || last.length < LEAST_TOKENS || settledMs > end)
    throw new OdmoeError('USAGE', 'homes may still change when the answer ends: give more --tokens');
  const byCountMs = medianOf(before);
  // The first tokens after a change load the experts that have moved.
  const bySpeedMs = changes.length === 0 ? byCountMs : medianOf(last);
  const shares = changes.at(-1)?.shares ?? Array.from({ length: setting.slowWorkers + 1 }, () => 1);
  return { shares, byCountMs, bySpeedMs, speedUp: byCountMs / bySpeedMs };
}

function medianOf(tokens: readonly { ms: number }[]): number {
  return median(tokens.map(({ ms }) => ms));
}

function simulateHomes(setting: HomesSetting): ReturnType<typeof simulateCluster> {
  const { profile, storage, slowWorkers, cachedPart, tokens, seed } = setting;
  const { expertLayers: layers, experts, expertsPerToken } = profile.model.shape;
  const plain = clusterTimes(profile, storage);
  const { main, worker } = profile.devices;
  const fast = { ...main, expertOverheadMs: worker.expertOverheadMs };
  const fastWorker = nodeTimes({ ...profile, devices: { ...profile.devices, worker: fast } }, 'worker', storage);
  const times = { ...plain, workers: [fastWorker, ...Array.from({ length: slowWorkers }, () => plain.worker)] };
  const setUp: ClusterSetUp = {
    ...DEFAULT_SET_UP,
    workers: slowWorkers + 1,
    slots: expertsPerToken,
    prefillRows: PROMPT_TOKENS,
    miniBatchRows: PROMPT_TOKENS,
    cacheBytes: Math.round(cachedPart * layers * experts * plain.worker.slotBytes),
    prediction: { source: 'off', layersAhead: 1 },
    placement: { ...DEFAULT_SET_UP.placement, homes: 'strict' },
  };
  const trace = new SyntheticTrace({
    layers,
    experts,
    expertsPerToken,
    prompts: 1,
    promptTokens: PROMPT_TOKENS,
    iterations: tokens,
    recall: 1,
    acceptance: 0,
    seed,
  });
  return simulateCluster(times, setUp, trace, { tokens });
}
