import { CACHE_POLICIES } from './cache-policies.js';
import { Command, CommanderError, InvalidArgumentError, Option } from 'commander';

import { isIPv4 } from 'node:net';

import { OdmoeError } from '../base/errors/odmoe-error.js';

import { formatByteSize, parseByteSize, parseContextMemory } from '../base/text/byte-size.js';

import {
  MILLISECONDS_LIMIT,
  ARITHMETICS,
  DRAFT_ROWS_LIMIT,
  EXPERTS,
  HOST_PATTERN,
  ID_PATTERN,
  INSTRUCTION_SETS,
  LAYERS_AHEAD_LIMIT,
  LOG_FORMATS,
  LOG_LEVELS,
  PRECISIONS,
  PREDICTION_SOURCES,
  PROVIDERS,
  QUANTIZED,
  HOMES,
  REPLICAS_LIMIT,
  SPREADS,
  WORKER_BUDGET_DEFAULT_BYTES,
} from './cluster-config.js';
import { deviceFlag } from './device-name.js';
import { HTTP_ADDRESS_ERROR, type HttpAddress, parseHttpAddress } from './http-address.js';

import { defaultClusterConfig, loadClusterConfig } from './load-cluster-config.js';

import { EXPERT_STORAGES, RESIDENTS, type NodeSettings, type RoleSetting } from './node-settings.js';

import { resolveNodeSettings, type DaemonFlags } from './resolve-node-settings.js';

import { wholeNumberFlag, wholeNumberOrAutoFlag } from './whole-number-flag.js';
import { MAX_ACTIVE_SEQUENCES, PASS_ROWS_LIMIT, THREADS_LIMIT } from './setting-limits.js';

const HIGHEST_PORT = 65_535;

/** The request in a daemon's arguments: to run, or only to print its help. */
export type DaemonRequest =
  { kind: 'run'; settings: NodeSettings; exitWithParent: boolean } | { kind: 'help'; text: string };

/**
 * Reads a daemon's arguments (without the interpreter and script) and the configuration that they name. Throws USAGE for a wrong flag,
 * CONFIG_INVALID for settings that contradict one another.
 */
export function parseDaemonFlags(role: RoleSetting, argv: readonly string[]): DaemonRequest {
  let help = '';
  const command = daemonCommand(role).configureOutput({
    writeOut: (text) => {
      help += text;
    },
    writeErr: () => undefined,
  });
  try {
    command.parse([...argv], { from: 'user' });
  } catch (thrown) {
    if (!(thrown instanceof CommanderError)) throw thrown;
    if (thrown.exitCode === 0) return { kind: 'help', text: help };
    const reason = thrown.message.replace(/^error: /, '');
    throw new OdmoeError('USAGE', `${reason}\n\`odmoe ${role} --help\` tells what there is`, { cause: thrown });
  }
  const {
    config: path,
    exitWithParent,
    interface: interfaceAddress,
    memoryBudget,
    executeTimeout,
    cache,
    streamKv,
    prefillOverlap,
    reusePrefixes,
    ...named
  } = command.opts<ParsedFlags>();
  const flags: DaemonFlags = {
    ...named,
    ...(interfaceAddress === undefined ? {} : { interfaceAddress }),
    ...(memoryBudget === undefined ? {} : { memoryBudgetBytes: memoryBudget }),
    ...(executeTimeout === undefined ? {} : { executeTimeoutMs: executeTimeout }),
    ...(cache === undefined ? {} : { cacheBytes: cache }),
    // Commander gives true if such a flag is absent. The configuration then decides.
    ...(streamKv === false ? { streamKv } : {}),
    ...(prefillOverlap === false ? { prefillOverlap } : {}),
    ...(reusePrefixes === false ? { reusePrefixes } : {}),
  };
  const config = path === undefined ? defaultClusterConfig() : loadClusterConfig(path);
  return {
    kind: 'run',
    settings: resolveNodeSettings(role, config, flags),
    exitWithParent: exitWithParent === true,
  };
}

/** Flags under the names that commander gives them. */
type ParsedFlags = Omit<
  DaemonFlags,
  | 'interfaceAddress'
  | 'memoryBudgetBytes'
  | 'executeTimeoutMs'
  | 'cacheBytes'
  | 'streamKv'
  | 'prefillOverlap'
  | 'reusePrefixes'
> & {
  cache?: number;
  config?: string;
  exitWithParent?: boolean;
  interface?: string;
  memoryBudget?: number;
  executeTimeout?: number;
  streamKv?: boolean;
  prefillOverlap?: boolean;
  reusePrefixes?: boolean;
};

const SUMMARIES: Record<RoleSetting, string> = {
  main: 'The daemon that answers: attention, routers and the KV cache are here; experts run on the workers.',
  shadow: 'The daemon that predicts: a quantized copy of the model runs ahead and tells workers what to load.',
  worker: 'A daemon that loads experts just in time, runs them and drops them again.',
};

const PACK_FLAG = 'the pack (made by `odmoe pack`)';
const MODEL_FLAGS: Record<RoleSetting, string> = {
  main: PACK_FLAG,
  shadow: PACK_FLAG,
  worker: "the pack, or where to fetch what is needed of main's (by default into the user's data directory)",
};

function daemonCommand(role: RoleSetting): Command {
  const command = new Command(`odmoe ${role}`)
    .description(`${SUMMARIES[role]} Runs in the foreground; Ctrl-C stops it.`)
    .exitOverride()
    .allowExcessArguments(false)
    .option('--config <file>', 'cluster.yaml to start from; flags override what it says')
    .option('--model <directory>', MODEL_FLAGS[role])
    .option('--cluster <name>', 'only nodes of the same cluster name work together', identifier)
    .option('--id <name>', "this node's name; must differ from every other's", identifier);
  addNetworkFlags(command, role);
  addDeviceFlags(command, role);
  if (role === 'main') {
    addMainFlags(command);
    addContextFlags(command);
  }
  if (role === 'worker')
    command
      .addOption(residentOption('whole BF16 experts of the cache'))
      .addOption(homesOption("as main's; strict: keeps experts of its own in what slots leave of the budget"));
  if (role !== 'shadow') addLoadingFlags(command, role === 'main' ? "main's own worker: " : '');
  if (role === 'shadow') {
    command.addOption(new Option('--precision <format>', 'how the copy is quantized').choices(PRECISIONS));
    command.addOption(
      new Option('--quantize <what>', 'projections and experts, or embedding, routers and LM head, too').choices(
        QUANTIZED,
      ),
    );
  }
  return command
    .addOption(new Option('--log-level <level>', 'info: one line an event; the default is warn').choices(LOG_LEVELS))
    .addOption(new Option('--log-format <format>', 'lines for people or for programs').choices(LOG_FORMATS))
    .option('--exit-with-parent', 'stop when standard input ends or the starting process dies')
    .addHelpText('after', examples(role));
}

function addNetworkFlags(command: Command, role: RoleSetting): void {
  command
    .option('--host <address>', 'address to listen on; 0.0.0.0: every interface', host)
    .option('--port <number>', 'port to listen on; 0: any free one', wholeNumberFlag(0, HIGHEST_PORT))
    .option('--advertise-host <address>', 'address that peers are told to dial', host)
    .addOption(new Option('--discovery <provider>', 'how nodes find each other').choices(PROVIDERS))
    .option('--interface <address>', 'IPv4 address of the interface that multicast goes through', ipv4);
  if (role !== 'main') command.option('--main <host:port>', 'where main is, when it is not to be discovered', address);
}

function addDeviceFlags(command: Command, role: RoleSetting): void {
  const budget =
    role === 'worker' ? `no limit (default: ${formatByteSize(WORKER_BUDGET_DEFAULT_BYTES)})` : 'no limit (default)';
  command
    .option('--device <name>', 'auto (default), cpu, cuda or cuda:N', deviceFlag)
    .addOption(
      new Option('--arithmetic <kind>', "of a GPU; fast: tensor cores, not to the bit what others' is").choices(
        ARITHMETICS,
      ),
    )
    .option(
      '--threads <count>',
      'processor threads; 0: as many as the process may use',
      wholeNumberFlag(0, THREADS_LIMIT),
    )
    .option(
      '--memory-budget <size>',
      `device memory it may take, a GPU's context included, such as "512 MiB"; 0: ${budget}`,
      byteSize,
    )
    .addOption(new Option('--instruction-set <name>', 'vector instructions of the processor').choices(INSTRUCTION_SETS))
    .option('--profile <file>', 'take the time and memory of the devices and network described there (bench/profiles)')
    .addOption(
      new Option('--expert-storage <form>', 'how the profiled workers store experts').choices(EXPERT_STORAGES),
    );
}

function addMainFlags(command: Command): void {
  command
    .addOption(
      new Option('--experts <where>', 'who runs experts: workers (default), this process alone, or both').choices(
        EXPERTS,
      ),
    )
    .addOption(residentOption("main's own weights, and what its own worker keeps,"))
    .option(
      '--group-size <count>',
      'workers that serve a layer; auto: by what executing, reaching and loading cost',
      wholeNumberOrAutoFlag(1, 1024),
    )
    .option('--align-token <period>', 'iterations between token alignments; 0: never', wholeNumberFlag(0, 1_000_000))
    .option('--align-kv <period>', 'iterations between KV alignments; 0: never', wholeNumberFlag(0, 1_000_000))
    .addOption(
      new Option('--prediction <source>', 'where predictions of experts come from').choices(PREDICTION_SOURCES),
    )
    .option(
      '--layers-ahead <count>',
      'with --prediction router-ahead: the router so many layers further on',
      wholeNumberFlag(1, LAYERS_AHEAD_LIMIT),
    )
    .option('--no-stream-kv', 'send key and value rows to shadow at the end of an iteration, not layer by layer')
    .option(
      '--no-prefill-overlap',
      "load a layer's experts in prefill once the router has chosen, and send rows when all are there",
    )
    .option('--optimistic', "let shadow go on from its own guess before main's token is there")
    .option(
      '--draft-rows <count>',
      `positions of one pass, drafts included, at most ${DRAFT_ROWS_LIMIT}; auto: as many as pay`,
      wholeNumberOrAutoFlag(1, DRAFT_ROWS_LIMIT),
    )
    .addOption(new Option('--spread <range>', 'workers that an expert may go to').choices(SPREADS))
    .addOption(
      homesOption('experts belong to the group of their layer, or each to a worker of its own; say it to workers, too'),
    )
    .option(
      '--replicas <count>',
      'with --homes strict: workers that have the same expert',
      wholeNumberFlag(1, REPLICAS_LIMIT),
    )
    .option(
      '--http <address>',
      'HOST:PORT where HTTP clients are served (default: 127.0.0.1:7680), or off',
      httpAddressFlag,
    )
    .option('--api-keys <file>', 'API keys of HTTP clients, one a line; needed where others can reach the address')
    .option(
      '--execute-timeout <ms>',
      'a worker that owes answers and gives none for so long is lost',
      wholeNumberFlag(1, 3_600_000),
    )
    .option(
      '--stop-grace-ms <ms>',
      'on SIGTERM or Ctrl-C: how long answers under way may go on (default: 30000); a second one ends main at once',
      wholeNumberFlag(0, MILLISECONDS_LIMIT),
    );
}

/** Flags for the number of answers that main makes at a time, and for their memory. */
function addContextFlags(command: Command): void {
  command
    .option(
      '--max-active <count>',
      'answers in progress at a time; auto: as many as memory admits',
      wholeNumberOrAutoFlag(1, MAX_ACTIVE_SEQUENCES),
    )
    .option('--batching <on|off>', 'on: one pass runs rows of all sequences; off: one sequence a pass', switchFlag)
    .option(
      '--max-rows <count>',
      'rows of one pass: of all answers, their drafts, and prompts',
      wholeNumberFlag(1, PASS_ROWS_LIMIT),
    )
    .option(
      '--max-context <positions>',
      "prompt and answer together; 0: the model's own limit",
      wholeNumberFlag(0, 2 ** 31 - 1),
    )
    .option(
      '--context-memory <size>',
      'memory for the rows of all sequences and of kept prefixes, such as "4 GiB"; auto (default): what there is',
      contextMemoryFlag,
    )
    .option('--no-reuse-prefixes', 'run every prompt whole, also where an earlier one began alike');
}

function residentOption(what: string): Option {
  const forms = 'fixed4 gives the same answers from fewer bytes, auto measures what is faster';
  return new Option('--resident <format>', `how ${what} are kept: ${forms} (default: as shipped)`).choices(RESIDENTS);
}

function homesOption(description: string): Option {
  return new Option('--homes <whose>', description).choices(HOMES);
}

/** Flags for loading and caching of experts. `whose`: text before each description. */
function addLoadingFlags(command: Command, whose: string): void {
  const rest =
    whose === '' ? '; 0: none (default)' : '; 0 (default): with a budget what answers leave of it, else none';
  command
    .option(
      '--slots <count>',
      `${whose}experts loaded or executed at a time; auto: by their size and how many a token needs`,
      wholeNumberOrAutoFlag(1, 1024),
    )
    .option('--cache <size>', `${whose}memory for experts that are used often, of the budget${rest}`, byteSize)
    .addOption(new Option('--cache-policy <name>', `${whose}what is kept`).choices(CACHE_POLICIES))
    .option(
      '--decompression-threads <count>',
      `${whose}threads that decompress experts; 0: by the machine`,
      wholeNumberFlag(0, THREADS_LIMIT),
    )
    .option(
      '--host-memory <size>',
      `${whose}host memory for experts as they are stored, or auto; 0: none (default)`,
      sizeOrAutoFlag,
    )
    .option('--direct-io', `${whose}read experts past the page cache where possible`);
}

function examples(role: RoleSetting): string {
  const pack = '--model mixtral-pack';
  const lines: Record<RoleSetting, string[]> = {
    main: [
      `odmoe main ${pack}`,
      `odmoe main ${pack} --experts local --host-memory auto`,
      `odmoe main ${pack} --discovery static --config cluster.yaml --id main`,
    ],
    shadow: [`odmoe shadow ${pack} --precision nf4`, `odmoe shadow ${pack} --main 192.168.1.20:7600`],
    worker: [
      `odmoe worker ${pack} --memory-budget "2 GiB" --slots 2`,
      `odmoe worker ${pack} --memory-budget "8 GiB" --cache "6 GiB"`,
      `odmoe worker --main 192.168.1.20:7600 --port 7610`,
    ],
  };
  return `\nExamples:\n${lines[role].map((line) => `  ${line}\n`).join('')}`;
}

function byteSize(value: string): number {
  const bytes = parseByteSize(value);
  if (bytes === null) throw new InvalidArgumentError('Give a size such as "512 MiB" or a number of bytes.');
  return bytes;
}

function sizeOrAutoFlag(value: string): number | 'auto' {
  return value === 'auto' ? value : byteSize(value);
}

function contextMemoryFlag(value: string): number | 'auto' {
  const bytes = parseContextMemory(value);
  if (bytes === null) throw new InvalidArgumentError('Give auto, or a size such as "4 GiB" or a number of bytes.');
  return bytes;
}

function switchFlag(value: string): boolean {
  if (value === 'on' || value === 'off') return value === 'on';
  throw new InvalidArgumentError('Give on or off.');
}

function identifier(value: string): string {
  if (ID_PATTERN.test(value)) return value;
  throw new InvalidArgumentError('Use letters, digits, ".", "_" and "-", at most 63 of them.');
}

function host(value: string): string {
  if (HOST_PATTERN.test(value)) return value;
  throw new InvalidArgumentError('Give a host name or an IP address, without a port.');
}

function ipv4(value: string): string {
  if (isIPv4(value)) return value;
  throw new InvalidArgumentError('Give an IPv4 address of this machine, as in 192.168.1.20.');
}

/** Parser of --http; throws commander's InvalidArgumentError. */
export function httpAddressFlag(value: string): HttpAddress | 'off' {
  const parsed = parseHttpAddress(value);
  if (parsed !== null) return parsed;
  throw new InvalidArgumentError(`Give ${HTTP_ADDRESS_ERROR}.`);
}

function address(value: string): string {
  const port = /^(?:\[[0-9a-fA-F:.%\w]+\]|[^:[\]\s/]+):(\d{1,5})$/.exec(value)?.[1];
  if (port !== undefined && Number(port) >= 1 && Number(port) <= HIGHEST_PORT) return value;
  throw new InvalidArgumentError('Give HOST:PORT, as in 192.168.1.20:7600.');
}
