import { InvalidArgumentError, type Command } from 'commander';
import type { CudaStatus } from '../../native/index.js';
import { defaultClusterConfig } from '../../shared/settings/load-cluster-config.js';
import type { ClusterConfig } from '../../shared/settings/cluster-config.js';
import { toOdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { fail, ok, type Check } from '../doctor/check.js';
import { checkCluster } from '../doctor/cluster-checks.js';
import { cudaJson, lookForCuda } from '../doctor/cuda-check.js';
import { checkModel } from '../doctor/model-check.js';
import { checkMachine } from '../doctor/machine-checks.js';
import { checkClock } from '../doctor/trust-checks.js';
import {
  askedMain,
  type ChoosingFlags,
  configurationOf,
  DEFAULT_CONFIG_PATH,
  MAIN_VARIABLE,
} from '../client/asked-main.js';
import { runtime } from '../client/process-runtime.js';
import { standardOutput } from '../../shared/base/text/text-output.js';
import { printableJson } from '../../shared/base/text/printable-text.js';

const UNUSABLE_EXIT_STATUS = 3;
const TIMEOUT_LIMIT_MS = 60_000;

interface DoctorFlags extends ChoosingFlags {
  model?: string;
  timeout: number;
  json: boolean;
}

/** `odmoe doctor`: checks for usual problems and gives advice. Exit status 0 if no check fails, else 3. */
export function registerDoctorCommand(program: Command): void {
  program
    .command('doctor')
    .description('check what usually goes wrong on this machine and in the cluster, and say what to do')
    .option(
      '--config <file>',
      `cluster.yaml whose nodes to look for (default: ./${DEFAULT_CONFIG_PATH}, where there is one)`,
    )
    .option('--cluster <name>', 'the cluster that peers should belong to')
    .option('--main <host:port>', `address of the main node (default: that of ${MAIN_VARIABLE})`)
    .option('--interface <ip>', 'the network interface for multicast, by its IPv4 address')
    .option(
      '--model <path>',
      'also say whether odmoe runs this model: a pack, a checkpoint, a GGUF file, or a config.json alone',
    )
    .option('--timeout <ms>', 'how long to wait for each answer', timeout, 2000)
    .option('--json', 'print one JSON object and nothing else', false)
    .addHelpText(
      'after',
      `
Examples:
  odmoe doctor
  odmoe doctor --config cluster.yaml
  odmoe doctor --model ~/Downloads/config.json
  odmoe doctor --main 192.168.1.20:7600 --json`,
    )
    .action(async (flags: DoctorFlags) => {
      const cuda = lookForCuda();
      const checks = await examine(flags, cuda);
      standardOutput.write(flags.json ? `${printableJson({ checks, cuda: cudaJson(cuda) })}\n` : report(checks));
      if (checks.some(({ status }) => status === 'fail')) process.exitCode = UNUSABLE_EXIT_STATUS;
    });
}

async function examine(flags: DoctorFlags, cuda: CudaStatus | null): Promise<Check[]> {
  const { read, check } = readConfig(flags);
  const { address, cluster, configured, interfaceAddress } = askedMain(flags, () => read);
  const config = read ?? defaultClusterConfig();
  const main = { mainAddress: address, configuredMain: configured };
  const question = { config, cluster, ...main, interfaceAddress, timeoutMs: flags.timeout };
  const machine = checkMachine(config, cuda);
  const { checks, clocks } = await checkCluster(question);
  const clock = checkClock(new Date(runtime.wallMs()), clocks);
  const model = flags.model === undefined ? [] : [await checkModel(flags.model)];
  return [...(check === null ? [] : [check]), ...model, ...machine, ...checks, clock];
}

/** A faulty configuration is reported as a check; the other checks then go without one. */
function readConfig(flags: DoctorFlags): { read: ClusterConfig | null; check: Check | null } {
  try {
    const read = configurationOf(flags);
    return { read, check: read && ok('configuration', `${read.path ?? ''} names ${read.nodes.length} nodes`) };
  } catch (thrown) {
    return { read: null, check: fail('configuration', toOdmoeError(thrown).message, 'correct the lines named') };
  }
}

function report(checks: readonly Check[]): string {
  const width = Math.max(...checks.map(({ name }) => name.length));
  const lines = checks.flatMap(({ name, status, found, advice }) => {
    const indent = ' '.repeat(width + 8);
    const indented = (text: string): string => text.replaceAll('\n', `\n${indent}`);
    const line = `${status.padEnd(4)}  ${name.padEnd(width)}  ${indented(found)}`;
    return advice === '' ? [line] : [line, `${indent}-> ${indented(advice)}`];
  });
  const count = (status: Check['status']): number => checks.filter((check) => check.status === status).length;
  return `${lines.join('\n')}\n\n${count('ok')} ok, ${count('warn')} to look at, ${count('fail')} failed\n`;
}

function timeout(value: string): number {
  const milliseconds = /^\d+$/.test(value) ? Number(value) : NaN;
  if (milliseconds >= 1 && milliseconds <= TIMEOUT_LIMIT_MS) return milliseconds;
  throw new InvalidArgumentError(`Give a whole number of milliseconds up to ${TIMEOUT_LIMIT_MS}.`);
}
