import type { DeviceProfile, PlannedStorage } from '../../engine/emulation/device-profile.js';
import { nodeTimes } from '../../engine/emulation/node-times.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { clusterTimes, DEFAULT_SET_UP, type ClusterSetUp } from '../../simulator/simulate/cluster-set-up.js';
import { simulateCluster } from '../../simulator/simulate/simulate-cluster.js';
import { SyntheticTrace } from '../../simulator/trace/synthetic-trace.js';

export interface HomesSetting {
  /** Main's device, the worker's, and the network. One worker more has main's device: the fast one. */
  profile: DeviceProfile;
  storage: PlannedStorage;
  /** Workers with the profile's worker's device. */
  slowWorkers: number;
  /** Part of all experts that each worker's cache holds. */
  cachedPart: number;
  /** The simulation runs twice as many. Those before homes change are measured as by count; the last half of this number is measured as by speed. */
  tokens: number;
  seed: number;
}

export interface HomesResult {
  /** Shares of the workers in the order of their ids; the fast one is the first. */
  shares: readonly number[];
  /** Median time of a token while homes are by count, and when they have been by speed for a while. */
  byCountMs: number;
  bySpeedMs: number;
  speedUp: number;
}

/** The cluster begins with homes by count, measures itself, and goes on with homes by speed: the tokens before and after are compared. */
export async function measureHomes(setting: HomesSetting): Promise<HomesResult> {
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
    cacheBytes: Math.round(cachedPart * layers * experts * plain.worker.slotBytes),
    prediction: { source: 'off', layersAhead: 1 },
    placement: { ...DEFAULT_SET_UP.placement, homes: 'strict' },
  };
  const all = 2 * tokens;
  const trace = new SyntheticTrace({
    layers,
    experts,
    expertsPerToken,
    prompts: 1,
    promptTokens: 4,
    iterations: all,
    recall: 1,
    acceptance: 0,
    seed,
  });
  const { timing } = await simulateCluster(times, setUp, trace, { tokens: all });
  const changed = timing.homeShares.find(({ shares }) => new Set(shares).size > 1);
  if (changed === undefined)
    throw new OdmoeError(
      'USAGE',
      'homes stay by count: no worker is much faster than another, or more --tokens are needed',
    );
  const durations = timing.passes.map(({ beginMs, endMs }, index) => ({
    beginMs,
    ms: endMs - (timing.passes[index - 1]?.endMs ?? beginMs),
  }));
  // The first tokens after the change load the experts that have moved.
  const byCountMs = median(durations.filter(({ beginMs }) => beginMs < changed.atMs).map(({ ms }) => ms));
  const bySpeedMs = median(durations.slice(-Math.ceil(tokens / 2)).map(({ ms }) => ms));
  return { shares: changed.shares, byCountMs, bySpeedMs, speedUp: byCountMs / bySpeedMs };
}

function median(values: readonly number[]): number {
  const sorted = [...values].sort((left, right) => left - right);
  return sorted[Math.floor(sorted.length / 2)] ?? 0;
}
