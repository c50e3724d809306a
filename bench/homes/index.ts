import type { Command } from 'commander';
import { parseWhole } from '../../cli/client/generation-flags.js';
import { profileFile } from '../../cli/client/simulation-flags.js';
import { tableLines } from '../../cli/output/table.js';
import { shippedStorage } from '../../engine/emulation/device-profile.js';
import { loadDeviceProfile } from '../../engine/emulation/load-device-profile.js';
import { snakeCaseKeys } from '../../shared/base/json/snake-case.js';
import { wholeNumberFlag } from '../../shared/settings/whole-number-flag.js';
import type { MeasuredRun } from '../history/measured-run.js';
import { measureHomes, type HomesResult } from './measure-homes.js';

interface HomesFlags {
  profile: string;
  workers: number;
  tokens: number;
  seed: number;
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
    .option('--tokens <n>', 'tokens that are measured by speed', wholeNumberFlag(2, MOST_TOKENS), 48)
    .option('--seed <n>', "seed of the routers' choices", parseWhole, 1)
    .option('--json', 'print one JSON array and nothing else', false)
    .action(async ({ profile, workers, tokens, seed, json }: HomesFlags) => {
      const devices = loadDeviceProfile(profileFile(profile));
      const rows: HomesRow[] = [];
      for (const cachedPart of CACHED_PARTS) {
        const storage = shippedStorage(devices.model);
        const setting = { profile: devices, storage, slowWorkers: workers, cachedPart, tokens, seed };
        rows.push({ cachedPercent: 100 * cachedPart, ...(await measureHomes(setting)) });
      }
      run.print(snakeCaseKeys(rows), json, () => `${asTable(rows)}\n`);
    });
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
