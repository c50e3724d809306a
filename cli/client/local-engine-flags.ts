import type { Command } from 'commander';
import { realDevices } from '../../engine/environment/node-environment.js';
import { LocalEngine, type LocalEngineOptions } from '../../engine/generation/local-engine.js';
import type { ARITHMETICS, WeightForm } from '../../shared/settings/setting-choices.js';
import { type DeviceName, deviceNamed } from '../../shared/settings/device-name.js';
import { SETTINGS } from '../../shared/settings/settings-table.js';
import { createProgressBar } from '../../shared/base/text/progress-bar.js';
import { runtime } from './process-runtime.js';
import { settingFlag } from './setting-flags.js';

/** The flags from addLocalEngineFlags, for a command's action. */
export interface LocalEngineFlags {
  resident?: WeightForm;
  threads: number;
  device: DeviceName;
  arithmetic: (typeof ARITHMETICS)[number];
}

/** The flags for the device and weights of a model in this process, as keys of LocalEngineFlags. */
export const LOCAL_ENGINE_FLAGS: readonly (keyof LocalEngineFlags)[] = ['resident', 'threads', 'device', 'arithmetic'];

/** Rows of one prefill pass. They are enough to give every expert many tokens; a larger pass takes memory and gains little. */
const PREFILL_ROWS = 256;
const SEED_LIMIT = 2 ** 47;

/** Adds the flags of commands that run a model in their own process. */
export function addLocalEngineFlags(command: Command): Command {
  const { device, arithmetic, threads } = SETTINGS.device;
  const weightFormHelp =
    'how the weights are kept in memory: fixed4 gives the same answer from fewer bytes, auto measures what is faster (default: as shipped)';
  return command
    .addOption(settingFlag(SETTINGS.main.resident, '<format>', weightFormHelp))
    .addOption(settingFlag(device, '<name>', 'auto (a GPU where one can be used), cpu, cuda or cuda:N'))
    .addOption(
      settingFlag(arithmetic, '<kind>', "of a GPU; fast: tensor cores, whose answer is not the one arithmetic's"),
    )
    .addOption(settingFlag(threads, '<n>', 'processor threads to compute with (0: as many as there are)'));
}

/** Loads the model, with a progress bar on a terminal. Throws like LocalEngine.open. */
export async function openLocalEngine(
  directory: string,
  flags: LocalEngineFlags,
  beside: Pick<LocalEngineOptions, 'emulation' | 'shadow' | 'quality'>,
): Promise<LocalEngine> {
  const bar = createProgressBar('loading the model');
  try {
    return await LocalEngine.open(directory, {
      device: {
        ...deviceNamed(flags.device),
        arithmetic: flags.arithmetic,
        instructionSet: 'auto',
        threads: flags.threads,
        budgetBytes: 0,
      },
      ...beside,
      resident: flags.resident ?? null,
      prefillRows: PREFILL_ROWS,
      chooseSeed: () => runtime.randomInt(SEED_LIMIT),
      environment: realDevices(),
      onProgress: bar.update,
    });
  } finally {
    bar.stop();
  }
}
