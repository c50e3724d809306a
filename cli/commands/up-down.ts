import { DEFAULT_CONFIG_PATH } from '../client/asked-main.js';
import { InvalidArgumentError, type Command } from 'commander';
import { loadClusterConfig } from '../../shared/settings/load-cluster-config.js';
import type { ClusterConfig } from '../../shared/settings/cluster-config.js';
import { nodesOfThisHost } from '../../shared/settings/resolve-node-settings.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { daemonName } from '../demo/daemon-process.js';
import { withHostLock } from '../background/host-lock.js';
import { withInterrupt } from '../client/interrupt.js';
import { stateDirectory } from '../../shared/base/files/state-directory.js';
import { readRecords, type ProcessRecord } from '../background/process-records.js';
import { runtime } from '../client/process-runtime.js';
import { settingFlag } from '../client/setting-flags.js';
import { SETTINGS } from '../../shared/settings/settings-table.js';
import { readJoinTokenFile } from '../../engine/daemon/enter-cluster.js';
import { JOIN_TOKEN_VARIABLE } from '../../shared/transport/trust/operator-join.js';
import { startAll, type StartAllOptions } from '../background/start-all.js';
import type { NodeToStart, StartOutcome } from '../background/start-in-background.js';
import { snakeCaseKeys } from '../../shared/base/json/snake-case.js';
import { printableJson } from '../../shared/base/text/printable-text.js';
import { standardError, standardOutput } from '../../shared/base/text/text-output.js';
import { stopInBackground, TERMINATE_GRACE_MS, type StopOutcome } from '../background/stop-in-background.js';

const { lan, insecure } = SETTINGS.cluster;
const { joinToken, joinTokenPath } = SETTINGS.node;

/** Default time to start, because a shadow of a large model loads for minutes. */
const DEFAULT_TIMEOUT_S = 300;
const TIMEOUT_LIMIT_S = 86_400;

/** Time that `odmoe down` waits for another `odmoe down` or `odmoe up` to end; it is longer than a `down` takes. */
const DOWN_WAIT_MS = 15_000;
/** Time after which `odmoe down` reports why it waits for main. */
const SAY_WAITING_MS = 1500;

/** `odmoe up` and `odmoe down`: start and stop this host's configured daemons in the background. */
export function registerUpCommands(program: Command): void {
  program
    .command('up')
    .description('start the daemons that cluster.yaml gives this host, in the background')
    .option('--config <file>', 'the configuration of the cluster', DEFAULT_CONFIG_PATH)
    .option('--timeout <seconds>', 'how long a daemon may take to be ready', timeoutSeconds, DEFAULT_TIMEOUT_S)
    .addOption(settingFlag(lan, '', 'the daemons listen on every network; main makes the authority the first time'))
    .addOption(settingFlag(insecure, '', 'the daemons run where other machines reach them without any protection'))
    .addOption(settingFlag(joinToken, '<token>', 'join the cluster by this token, the first time'))
    .addOption(settingFlag(joinTokenPath, '<file>', 'a file with that token'))
    .addHelpText(
      'after',
      '\nDaemons that run already are left alone. When one cannot be started, or at Ctrl-C, those that this command has started are\n' +
        'stopped again; one that only takes longer than --timeout goes on. A node belongs to this host when its host in cluster.yaml is this\n' +
        "machine's name or one of its addresses (or is left out). In a cluster with an authority a machine joins the first time: its daemons show\n" +
        'codes and wait until the operator types them (odmoe accept CODE), unless there is a token. Logs and process records are kept in\n' +
        '$XDG_STATE_HOME/odmoe/CLUSTER (by default ~/.local/state/odmoe/CLUSTER).\n' +
        '\nExamples:\n  odmoe up\n  odmoe up --config /etc/odmoe/cluster.yaml\n  odmoe status\n  odmoe down\n',
    )
    .action(async (flags: UpFlags) => up(flags));
  program
    .command('down')
    .description('stop what `odmoe up` has started on this host')
    .option('--config <file>', 'the configuration of the cluster', DEFAULT_CONFIG_PATH)
    .option('--json', 'print one JSON object and nothing else', false)
    .addHelpText(
      'after',
      '\nA daemon gets SIGTERM, and SIGKILL if it does not stop: main first, which ends the answers under way within\n' +
        'main.stop_grace_ms (30 s), then the others. Only processes that `odmoe up` recorded and that still are\n' +
        'the same are touched; daemons started in the foreground are not.\n\nExample:\n  odmoe down\n',
    )
    .action(async (options: { config: string; json: boolean }) => down(options.config, options.json));
}

interface UpFlags {
  config: string;
  timeout: number;
  lan: boolean;
  insecure: boolean;
  join?: string;
  joinFile?: string;
}

/** The flags and variables of the daemons. A token goes by a variable, which other users of the host do not see. */
async function daemonStart({
  lan,
  insecure,
  join,
  joinFile,
}: UpFlags): Promise<Pick<StartAllOptions, 'flags' | 'variables'>> {
  if (join !== undefined && joinFile !== undefined) {
    throw new OdmoeError('USAGE', 'give one of --join and --join-file, not both');
  }
  const token = join ?? (joinFile === undefined ? undefined : await readJoinTokenFile(joinFile));
  return {
    flags: [...(lan ? ['--lan'] : []), ...(insecure ? ['--insecure'] : [])],
    variables: token === undefined ? process.env : { ...process.env, [JOIN_TOKEN_VARIABLE]: token },
  };
}

async function up(given: UpFlags): Promise<void> {
  const { config: configPath, timeout } = given;
  const timeoutMs = timeout * 1000;
  const start = await daemonStart(given);
  const config = loadClusterConfig(configPath);
  const nodes = nodesOfThisHost(config);
  if (nodes.length === 0) throw noNodes(config);
  const directory = stateDirectory(config.cluster);
  await withHostLock(directory, timeoutMs, sayWaiting, async () => {
    const records = await readRecords(directory, warnUnreadable);
    standardOutput.write(`cluster ${config.cluster}: logs and process records in ${directory}\n`);
    const options = {
      directory,
      configPath: config.path ?? configPath,
      timeoutMs,
      ...start,
      records,
      onNotice: (line: string) => standardOutput.write(`${line}\n`),
      onOutcome: (node: NodeToStart, outcome: StartOutcome) => {
        const text = describeStart(node, outcome);
        if (text !== null) standardOutput.write(`${text}\n`);
        if (outcome.kind === 'started') for (const line of outcome.warnings) standardError.write(`odmoe: ${line}\n`);
      },
      onStop: (outcome: StopOutcome) => standardOutput.write(`${describeStop(outcome)}\n`),
    };
    await withInterrupt((signal) => startAll(nodes, options, signal));
  });
}

async function down(configPath: string, json: boolean): Promise<void> {
  const { cluster, main } = loadClusterConfig(configPath);
  const directory = stateDirectory(cluster);
  const graceMs = main.stop_grace_ms;
  const onStop = (outcome: StopOutcome): void => {
    if (!json) standardOutput.write(`${describeStop(outcome)}\n`);
  };
  const stopped = await withHostLock(directory, DOWN_WAIT_MS + graceMs, sayWaiting, () =>
    stopRecorded(directory, graceMs, onStop),
  );
  if (json) {
    standardOutput.write(`${printableJson({ cluster, stopped: snakeCaseKeys(stopped) })}\n`);
  } else if (stopped.length === 0) {
    standardOutput.write(
      `cluster ${cluster}: nothing was started by \`odmoe up\` on this host; a daemon that was started otherwise (odmoe main, shadow or ` +
        'worker) is stopped where it was started (Ctrl-C, or SIGTERM)\n',
    );
  }
}

/**
 * Stops all recorded daemons and returns what became of each. `graceMs`: the time in which main ends the running answers; it needs the other
 * daemons for that.
 */
async function stopRecorded(
  directory: string,
  graceMs: number,
  onStop: (outcome: StopOutcome) => void,
): Promise<StopOutcome[]> {
  const records = await readRecords(directory, warnUnreadable);
  if (records.size === 0) return [];
  const mains = [...records.values()].filter(({ role }) => role === 'main');
  const others = [...records.values()].filter(({ role }) => role !== 'main');
  const patience = runtime.after(SAY_WAITING_MS, () =>
    sayWaiting(`main ends the answers under way, for ${graceMs} ms at most`),
  );
  const stoppedMains = await stopAll(directory, mains, TERMINATE_GRACE_MS + graceMs, onStop);
  patience.cancel();
  const stopped = [...stoppedMains, ...(await stopAll(directory, others, TERMINATE_GRACE_MS, onStop))];
  return stopped.map((outcome) => {
    if (outcome.status === 'rejected') throw outcome.reason;
    return outcome.value;
  });
}

function stopAll(
  directory: string,
  records: readonly ProcessRecord[],
  graceMs: number,
  onStop: (outcome: StopOutcome) => void,
): Promise<PromiseSettledResult<StopOutcome>[]> {
  return Promise.allSettled(
    records.map(async (record) => {
      const outcome = await stopInBackground(directory, record, graceMs);
      onStop(outcome);
      return outcome;
    }),
  );
}

/** Null: the outcome needs no line. */
function describeStart(node: NodeToStart, outcome: StartOutcome): string | null {
  switch (outcome.kind) {
    case 'started':
      return `${daemonName(node)} listens on ${outcome.address} (process ${outcome.pid})${servedText(outcome.url)}`;
    case 'alreadyRunning':
      return `${daemonName(node)} runs already (process ${outcome.pid})`;
    case 'failed':
      return `failed: ${outcome.error.message}`;
    case 'late':
      return `late: ${outcome.error.message}`;
    case 'notAwaited':
      return null;
  }
}

function servedText(url: string | null): string {
  return url === null ? '' : ` and serves HTTP at ${url}`;
}

function describeStop({ kind, id, pid }: StopOutcome): string {
  switch (kind) {
    case 'stopped':
      return `${id} stopped (process ${pid})`;
    case 'killed':
      return `${id} did not stop and was killed (process ${pid})`;
    case 'wasNotRunning':
      return `${id} was not running any more; its record is removed`;
  }
}

function noNodes(config: ClusterConfig): OdmoeError {
  const hosts = [...new Set(config.nodes.map((node) => node.address.host))].join(', ');
  const known = hosts === '' ? 'it lists no nodes' : `its nodes are on ${hosts}`;
  return new OdmoeError(
    'CONFIG_INVALID',
    `${config.path ?? 'the configuration'} gives this host nothing to run: ${known}; add this machine's name or address`,
  );
}

function sayWaiting(reason: string): void {
  standardError.write(`odmoe: waiting: ${reason}\n`);
}

function warnUnreadable(path: string, reason: string): void {
  standardError.write(`odmoe: ${path} is no process record and is ignored: ${reason}\n`);
}

function timeoutSeconds(text: string): number {
  const seconds = Number(text);
  if (seconds > 0 && seconds <= TIMEOUT_LIMIT_S) return seconds;
  throw new InvalidArgumentError(`expected seconds, more than 0 and at most ${TIMEOUT_LIMIT_S}`);
}
