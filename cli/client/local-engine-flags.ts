import { Option, type Command } from 'commander';
import { realDevices } from '../../engine/environment/node-environment.js';
import { LocalEngine, type LocalEngineOptions } from '../../engine/generation/local-engine.js';
import { ARITHMETICS, type Resident, RESIDENTS } from '../../shared/settings/setting-choices.js';
import { deviceFlag, type DeviceName, deviceNamed } from '../../shared/settings/device-name.js';
import { THREADS_LIMIT } from '../../shared/settings/setting-limits.js';
import { wholeNumberFlag } from '../../shared/settings/whole-number-flag.js';
import { createProgressBar } from '../../shared/base/text/progress-bar.js';
import { runtime } from './process-runtime.js';

/** The flags from addLocalEngineFlags, for a command's action. */
export interface LocalEngineFlags {
  resident?: Resident;
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
  return command
    .addOption(
      new Option(
        '--resident <format>',
        'how the weights are kept in memory: fixed4 gives the same answer from fewer bytes, auto measures what is faster (default: as shipped)',
      ).choices(RESIDENTS),
    )
    .option('--device <name>', 'auto (a GPU where one can be used), cpu, cuda or cuda:N', deviceFlag, 'auto')
    .addOption(
      new Option('--arithmetic <kind>', "of a GPU; fast: tensor cores, whose answer is not the one arithmetic's")
        .choices(ARITHMETICS)
        .default('exact'),
    )
    .option(
      '--threads <n>',
      'processor threads to compute with (0: as many as there are)',
      wholeNumberFlag(0, THREADS_LIMIT),
      0,
    );
}

/** Loads the model, with a progress bar on a terminal. Throws like LocalEngine.open. */
export async function openLocalEngine(
  directory: string,
  flags: LocalEngineFlags,
  beside: Pick<LocalEngineOptions, 'emulation' | 'shadow'>,
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
