import type { Command } from 'commander';
import { parseWhole } from '../../cli/client/generation-flags.js';
import { profileFile } from '../../cli/client/simulation-flags.js';
import { tableLines } from '../../cli/output/table.js';
import { loadDeviceProfile } from '../../engine/emulation/load-device-profile.js';
import { snakeCaseKeys } from '../../shared/base/json/snake-case.js';
import { wholeNumberFlag } from '../../shared/settings/whole-number-flag.js';
import type { MeasuredRun } from '../history/measured-run.js';
import { nodeTimes } from '../../engine/emulation/node-times.js';
import { operatorMs, shippedStorage, type DeviceProfile } from '../../engine/emulation/device-profile.js';
import { measureHomes, type HomesResult } from './measure-homes.js';
import { ownExpertsCosts, type OwnExpertsCosts } from './own-experts.js';

interface HomesFlags {
  profile: string;
  workers: number;
  tokens: number;
  seed: number;
  own: boolean;
  json: boolean;
}

interface HomesRow extends HomesResult {
  /** Part of all experts that each worker's cache holds, in percent. */
  cachedPercent: number;
}

/** Caches that hold everything, and caches that hold half of what a worker has by count, or less. */
const CACHED_PARTS = [1, 0.25, 0.1];
const MOST_WORKERS = 32;
const MOST_TOKENS = 4096;

/** `odmoe bench homes`: strict homes by count and by speed, where one worker is much faster than the others; on a virtual clock. */
export function registerBenchHomes(bench: Command, run: MeasuredRun): void {
  bench
    .command('homes')
    .description("strict homes by count and by speed, with main's device as one worker beside slow ones (simulated)")
    .option('--profile <file>', 'devices and network: a file, or a name in bench/profiles', 'orin-nx-rtx3090')
    .option('--workers <n>', "workers with the profile's device", wholeNumberFlag(1, MOST_WORKERS), 1)
    .option('--tokens <n>', 'tokens of the answer', wholeNumberFlag(12, MOST_TOKENS), 192)
    .option('--seed <n>', "seed of the routers' choices", parseWhole, 1)
    .option('--own', 'model the experts that main keeps itself (main.experts: both) instead', false)
    .option('--json', 'print one JSON array and nothing else', false)
    .action(async ({ profile, workers, tokens, seed, own, json }: HomesFlags) => {
      const devices = loadDeviceProfile(profileFile(profile));
      if (own) {
        const rows = ownRows(devices, workers);
        run.print(snakeCaseKeys(rows), json, () => `${ownTable(rows)}\n`);
        return;
      }
      const rows: HomesRow[] = [];
      for (const cachedPart of CACHED_PARTS) {
        const storage = shippedStorage(devices.model);
        const setting = { profile: devices, storage, slowWorkers: workers, cachedPart, tokens, seed };
        rows.push({ cachedPercent: 100 * cachedPart, ...(await measureHomes(setting)) });
      }
      run.print(snakeCaseKeys(rows), json, () => `${asTable(rows)}\n`);
    });
}

interface OwnRow {
  keptPercent: number;
  skew: number;
  costs: OwnExpertsCosts;
}

/** Time of main's thread for a message of a hidden state, as measured (docs/results.md, "An early announcement"). */
const MESSAGE_MS = 0.1;
const OWN_PARTS = [0.25, 0.5];
const SKEWS = [0, 0.5, 1];

function ownRows(profile: DeviceProfile, workers: number): OwnRow[] {
  const { expertLayers: layers, experts, expertsPerToken } = profile.model.shape;
  const storage = shippedStorage(profile.model);
  const { main, worker } = profile.devices;
  const own = {
    ...profile,
    devices: { ...profile.devices, worker: { ...main, expertOverheadMs: worker.expertOverheadMs } },
  };
  const expertMs = (of: DeviceProfile): number => operatorMs(nodeTimes(of, 'worker', storage).expert, 1);
  const common = { layers, experts, expertsPerToken, workers, ownMs: expertMs(own), workerMs: expertMs(profile) };
  const { roundTripMs } = profile.network;
  return OWN_PARTS.flatMap((part) =>
    SKEWS.map((skew) => ({
      keptPercent: 100 * part,
      skew,
      costs: ownExpertsCosts({ ...common, part, skew, roundTripMs, messageMs: MESSAGE_MS }),
    })),
  );
}

function ownTable(rows: readonly OwnRow[]): string {
  const titles = ['kept, %', 'skew', 'none', 'spread', 'most used', 'whole layers'];
  const columns = titles.map((title) => ({ title, align: 'right' as const }));
  const cells = rows.map(({ keptPercent, skew, costs: { none, spread, popular, whole } }) => [
    keptPercent.toFixed(0),
    skew.toFixed(1),
    ...[none, spread, popular, whole].map(({ messages, ms }) => `${messages.toFixed(0)} in ${ms.toFixed(1)} ms`),
  ]);
  return tableLines(columns, cells).join('\n');
}

function asTable(rows: readonly HomesRow[]): string {
  const titles = ['cached, %', 'shares', 'by count, ms', 'by speed, ms', 'times as fast'];
  const columns = titles.map((title) => ({ title, align: 'right' as const }));
  const cells = rows.map(({ cachedPercent, shares, byCountMs, bySpeedMs, speedUp }) => [
    cachedPercent.toFixed(0),
    shares.join(' : '),
    byCountMs.toFixed(2),
    bySpeedMs.toFixed(2),
    speedUp.toFixed(2),
  ]);
  return tableLines(columns, cells).join('\n');
}
