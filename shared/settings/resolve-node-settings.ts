import { poolsOf } from './cache-policies.js';
import { isIP } from 'node:net';
import { hostname, networkInterfaces } from 'node:os';
import { dirname, resolve } from 'node:path';
import { OdmoeError } from '../base/errors/odmoe-error.js';
import { stateDirectory, stateHome } from '../base/files/state-directory.js';
import { WORKER_BUDGET_DEFAULT_BYTES, defaultPort, type ClusterConfig, type ConfiguredNode } from './cluster-config.js';
import { deviceNamed, type DeviceName } from './device-name.js';
import { DEFAULT_HTTP_ADDRESS, type HttpAddress } from './http-address.js';
import type { ExpertStorage, HttpSettings, KnownPeer, NodeSettings, Resident, RoleSetting } from './node-settings.js';

/** Values of the flags. For an absent flag, the configuration or the default decides. */
export interface DaemonFlags extends LoadingFlags {
  cluster?: string;
  id?: string;
  model?: string;
  host?: string;
  port?: number;
  advertiseHost?: string;
  main?: string;
  discovery?: 'mdns' | 'static';
  interfaceAddress?: string;
  threads?: number;
  memoryBudgetBytes?: number;
  device?: DeviceName;
  arithmetic?: NodeSettings['device']['arithmetic'];
  instructionSet?: NodeSettings['device']['instructionSet'];
  groupSize?: number | 'auto';
  alignToken?: number;
  alignKv?: number;
  streamKv?: boolean;
  prediction?: NodeSettings['prediction']['source'];
  layersAhead?: number;
  optimistic?: boolean;
  draftRows?: number | 'auto';
  spread?: NodeSettings['placement']['spread'];
  homes?: NodeSettings['placement']['homes'];
  replicas?: number;
  profile?: string;
  expertStorage?: ExpertStorage;
  precision?: NodeSettings['shadow']['precision'];
  quantize?: NodeSettings['shadow']['quantize'];
  experts?: NodeSettings['main']['experts'];
  resident?: Resident;
  maxActive?: number | 'auto';
  batching?: boolean;
  maxRows?: number;
  maxContext?: number;
  contextMemory?: number | 'auto';
  reusePrefixes?: boolean;
  http?: HttpAddress | 'off';
  apiKeys?: string;
  prefillOverlap?: boolean;
  executeTimeoutMs?: number;
  stopGraceMs?: number;
  logLevel?: NodeSettings['log']['level'];
  logFormat?: NodeSettings['log']['format'];
}

/** Facts about this machine. The caller passes them in, so that resolving is pure. */
export interface ThisHost {
  hostname: string;
  addresses: readonly string[];
  processId: number;
  /** Directory in which programs keep their state. */
  stateHome: string;
}

export function thisHost(): ThisHost {
  const addresses = Object.values(networkInterfaces()).flatMap((list) => (list ?? []).map(({ address }) => address));
  return { hostname: hostname(), addresses, processId: process.pid, stateHome: stateHome() };
}

/** The nodes that `odmoe up` starts here: their host is this machine's name or one of its addresses. */
export function nodesOfThisHost(config: ClusterConfig, host: ThisHost = thisHost()): ConfiguredNode[] {
  return config.nodes.filter((node) => isThisHost(node.address.host, host));
}

/** True if a name or an address is this machine's. */
export function isThisHost(name: string, host: ThisHost): boolean {
  const wanted = name.toLowerCase();
  const own = host.hostname.toLowerCase();
  const names = ['localhost', own, own.split('.')[0] ?? own, `${own.split('.')[0] ?? own}.local`];
  return names.includes(wanted) || wanted === '::1' || wanted.startsWith('127.') || host.addresses.includes(wanted);
}

/**
 * The settings of one daemon: defaults, then cluster.yaml, then the node's own entry in it, then flags. Throws CONFIG_INVALID if the
 * configuration does not identify the node, or if main or shadow has no model.
 */
export function resolveNodeSettings(
  role: RoleSetting,
  config: ClusterConfig,
  flags: DaemonFlags,
  host: ThisHost = thisHost(),
): NodeSettings {
  const entry = findEntry(role, config, flags, host);
  const provider = flags.discovery ?? config.discovery.provider;
  const listenPort = flags.port ?? entry?.address.port ?? defaultPort(role);
  const id = flags.id ?? entry?.id ?? defaultId(role, listenPort, host);
  const cluster = flags.cluster ?? config.cluster;
  const tuned = tuning(role, config, entry, flags);
  const contradiction =
    role === 'main' ? ownWorkerContradiction(config, flags, tuned.device.memoryBudgetBytes > 0) : null;
  if (contradiction !== null) throw invalid(config, contradiction);
  return {
    role,
    id,
    cluster,
    stateDirectory: stateDirectory(cluster, host.stateHome),
    modelPath: modelPath(role, config, entry, flags),
    listenHost: flags.host ?? entry?.listen ?? defaultListenHost(provider, entry),
    listenPort,
    advertiseHost: flags.advertiseHost ?? advertisedHost(entry),
    discovery: {
      provider,
      interfaceAddress: flags.interfaceAddress ?? config.discovery.interface ?? null,
      peers: knownPeers(config, id, provider),
    },
    mainAddress: role === 'main' ? null : (flags.main ?? configuredMain(config, provider)),
    ...tuned,
  };
}

type Tuning = Omit<
  NodeSettings,
  | 'role'
  | 'id'
  | 'cluster'
  | 'stateDirectory'
  | 'modelPath'
  | 'listenHost'
  | 'listenPort'
  | 'advertiseHost'
  | 'discovery'
  | 'mainAddress'
>;

function tuning(role: RoleSetting, config: ClusterConfig, entry: ConfiguredNode | null, flags: DaemonFlags): Tuning {
  const { network } = config;
  const emulation = emulationSettings(config, flags);
  const workerBudgetBytes = config.worker.memory_budget ?? (emulation === null ? WORKER_BUDGET_DEFAULT_BYTES : 0);
  const budgetBytes = role === 'worker' ? workerBudgetBytes : 0;
  const memoryBudgetBytes = flags.memoryBudgetBytes ?? entry?.memory_budget ?? budgetBytes;
  const homes = flags.homes ?? config.placement.homes;
  // An expert with strict homes stays on its worker if it fits into the memory there.
  const keepsExperts = homes === 'strict' && config.worker.pools === undefined;
  const worker = workerTuning(config, entry, flags, keepsExperts ? memoryBudgetBytes : 0);
  const device = deviceNamed(flags.device ?? entry?.device ?? config[role].device);
  if (emulation !== null && device.backend === 'cuda') throw invalid(config, EMULATED_GPU);
  return {
    device: {
      ...device,
      arithmetic: flags.arithmetic ?? entry?.arithmetic ?? config[role].arithmetic,
      instructionSet: flags.instructionSet ?? entry?.instruction_set ?? 'auto',
      threads: flags.threads ?? entry?.threads ?? 0,
      memoryBudgetBytes,
    },
    main: mainSettings(config, flags),
    batching: batchingSettings(config, flags),
    emulation,
    prediction: predictionSettings(config, flags),
    align: {
      tokenPeriod: flags.alignToken ?? config.align.token,
      keyValuePeriod: flags.alignKv ?? config.align.kv,
      streamKeyValues: flags.streamKv ?? config.align.stream_kv,
    },
    drafting: draftingSettings(config, flags),
    placement: {
      groupSize: flags.groupSize ?? config.placement.group_size,
      spread: flags.spread ?? config.placement.spread,
      homes,
      replicas: replicasOf(config, flags, homes),
    },
    shadow: {
      precision: flags.precision ?? config.shadow.precision,
      quantize: flags.quantize ?? config.shadow.quantize,
    },
    worker,
    network: {
      keepaliveIntervalMs: network.keepalive_interval_ms,
      keepaliveTimeoutMs: network.keepalive_timeout_ms,
      executeTimeoutMs: flags.executeTimeoutMs ?? network.execute_timeout_ms,
      reconnectDelayMs: network.reconnect_delay_ms,
    },
    log: { level: flags.logLevel ?? config.log.level, format: flags.logFormat ?? config.log.format },
  };
}

function mainSettings(config: ClusterConfig, flags: DaemonFlags): Tuning['main'] {
  const { main } = config;
  return {
    experts: flags.experts ?? main.experts,
    maxActiveSequences: flags.maxActive ?? main.max_active_sequences,
    maxQueuedRequests: main.max_queued_requests,
    prefillRows: main.prefill_rows,
    resident: flags.resident ?? main.resident ?? null,
    maxContextPositions: flags.maxContext ?? main.max_context_positions,
    contextMemoryBytes: flags.contextMemory ?? main.context_memory,
    reusePrefixes: flags.reusePrefixes ?? main.reuse_prefixes,
    miniBatchRows: main.mini_batch_rows,
    workerGraceMs: main.worker_grace_ms,
    stopGraceMs: flags.stopGraceMs ?? main.stop_grace_ms,
    prefillOverlap: flags.prefillOverlap ?? main.prefill_overlap,
    http: httpSettings(config, flags),
  };
}

function batchingSettings({ batching }: ClusterConfig, flags: DaemonFlags): NodeSettings['batching'] {
  return {
    enabled: flags.batching ?? batching.enabled,
    maxRows: flags.maxRows ?? batching.max_rows,
    maxDelayMs: batching.max_delay_ms,
  };
}

const EMULATED_GPU =
  'an emulated device computes on the processor: leave out device cuda (--device), or emulation (--profile, `emulation:`)';

function predictionSettings(config: ClusterConfig, flags: DaemonFlags): NodeSettings['prediction'] {
  const source = flags.prediction ?? config.prediction.source;
  const layersAhead = flags.layersAhead ?? config.prediction.layers_ahead;
  if ((flags.layersAhead ?? 1) === 1 || source === 'router-ahead') return { source, layersAhead };
  throw invalid(
    config,
    'only router-ahead asks routers of later layers: add --prediction router-ahead, or leave out --layers-ahead',
  );
}

function replicasOf(config: ClusterConfig, flags: DaemonFlags, homes: string): number {
  const replicas = flags.replicas ?? config.placement.replicas;
  if ((flags.replicas ?? 1) === 1 || homes === 'strict') return replicas;
  throw invalid(config, 'only strict homes have copies of experts: add --homes strict, or leave out --replicas');
}

function draftingSettings(config: ClusterConfig, flags: DaemonFlags): NodeSettings['drafting'] {
  const source = flags.prediction ?? config.prediction.source;
  const optimistic = flags.optimistic ?? config.drafting.optimistic;
  const rows = flags.draftRows ?? config.drafting.rows;
  if (source === 'sep') return { optimistic, rows };
  const wanting = `prediction ${source} has no shadow that could draft`;
  if (optimistic) throw invalid(config, `${wanting}: turn drafting.optimistic (--optimistic) off`);
  if (rows !== 'auto' && rows > 1) throw invalid(config, `${wanting}: set drafting.rows (--draft-rows) to 1 or auto`);
  return { optimistic, rows };
}

/** The path of a key file in a flag is relative to the working directory; one in cluster.yaml is relative to that file. */
function httpSettings(config: ClusterConfig, flags: DaemonFlags): HttpSettings | null {
  const { main } = config;
  const given = flags.http ?? main.http;
  if (given === 'off') return null;
  const configuredKeys = main.api_keys === undefined ? null : resolve(directoryOf(config), main.api_keys);
  return {
    ...(given ?? DEFAULT_HTTP_ADDRESS),
    isAddressGiven: given !== undefined,
    hosts: main.http_hosts,
    origins: main.http_origins,
    apiKeysPath: flags.apiKeys === undefined ? configuredKeys : resolve(flags.apiKeys),
  };
}

/** The directory at which relative paths of the configuration start. */
function directoryOf({ path }: ClusterConfig): string {
  return path === null ? '.' : dirname(path);
}

function emulationSettings(config: ClusterConfig, flags: DaemonFlags): NodeSettings['emulation'] {
  const configured = config.emulation;
  const expertStorage = flags.expertStorage ?? configured?.expert_storage ?? 'fp32';
  if (flags.profile !== undefined) return { profilePath: resolve(flags.profile), expertStorage };
  if (configured === undefined) return null;
  return { profilePath: resolve(directoryOf(config), configured.profile), expertStorage };
}

/** `residentBytes`: size of the cache if no setting gives one. */
function workerTuning(
  config: ClusterConfig,
  entry: ConfiguredNode | null,
  flags: DaemonFlags,
  residentBytes: number,
): NodeSettings['worker'] {
  const { worker } = config;
  const pools = flags.cacheBytes === undefined ? worker.pools : undefined;
  const cachePolicy = flags.cachePolicy ?? worker.cache_policy ?? 'planned';
  const kept = poolsOf(cachePolicy);
  const parts =
    pools === undefined ? [] : (['compressed', 'sign_mantissa', 'exponent'] as const).filter((pool) => pools[pool] > 0);
  if (parts.some((pool) => pool !== 'compressed' || !kept.includes(pool)) && cachePolicy !== 'planned') {
    const most = kept.includes('compressed') ? 'whole and compressed ones' : 'whole ones';
    throw invalid(
      config,
      `worker.pools keep parts of experts, and cache policy ${cachePolicy} only ${most}: leave one out`,
    );
  }
  return {
    slots: flags.slots ?? entry?.slots ?? worker.slots,
    cacheBytes: flags.cacheBytes ?? entry?.cache ?? worker.cache ?? residentBytes,
    cachePolicy,
    yields: false,
    replanPasses: worker.replan_passes,
    resident: flags.resident ?? worker.resident ?? null,
    hostMemory: flags.hostMemory ?? entry?.host_memory ?? worker.host_memory,
    pools:
      pools === undefined
        ? null
        : {
            full: pools.full,
            compressed: pools.compressed,
            signMantissa: pools.sign_mantissa,
            exponent: pools.exponent,
          },
    decompressionThreads: flags.decompressionThreads ?? worker.decompression_threads,
    directIo: flags.directIo ?? worker.direct_io,
    readDepth: worker.read_depth,
  };
}

/** The node's own entry: by --id, else the only one of the role on this host; null if the configuration lists no nodes. */
function findEntry(
  role: RoleSetting,
  config: ClusterConfig,
  flags: DaemonFlags,
  host: ThisHost,
): ConfiguredNode | null {
  const ofRole = config.nodes.filter((node) => node.role === role);
  if (flags.id !== undefined) {
    const named = config.nodes.find((node) => node.id === flags.id);
    if (named !== undefined && named.role !== role) {
      throw invalid(config, `"${named.id}" is a ${named.role} and not a ${role}: start it by \`odmoe ${named.role}\``);
    }
    return named ?? null;
  }
  const here = ofRole.filter((node) => isThisHost(node.address.host, host));
  if (here.length > 1) {
    const ids = here.map((node) => node.id).join(', ');
    throw invalid(config, `this host has several nodes of role ${role} (${ids}): choose one by --id`);
  }
  return here[0] ?? null;
}

function modelPath(
  role: RoleSetting,
  config: ClusterConfig,
  entry: ConfiguredNode | null,
  flags: DaemonFlags,
): string | null {
  if (flags.model !== undefined) return resolve(flags.model);
  const configured = entry?.model ?? config.model;
  if (configured === undefined) {
    if (role === 'worker') return null;
    throw invalid(
      config,
      `the ${role} has no model: give the directory of a pack by --model, or \`model:\` in cluster.yaml`,
    );
  }
  return resolve(directoryOf(config), configured);
}

function defaultId(role: RoleSetting, listenPort: number, host: ThisHost): string {
  const name = (host.hostname.split('.')[0] ?? '').replaceAll(/[^A-Za-z0-9-]/g, '-').slice(0, 40) || 'host';
  if (role !== 'worker') return `${role}-${name}`;
  return `worker-${name}-${listenPort === 0 ? `p${host.processId}` : listenPort}`;
}

/** Under mDNS: every interface. Under static discovery: the interface that the node's address needs; by default this machine only. */
function defaultListenHost(provider: NodeSettings['discovery']['provider'], entry: ConfiguredNode | null): string {
  if (provider === 'mdns') return '0.0.0.0';
  const configured = entry?.address.host ?? 'localhost';
  if (configured === 'localhost') return '127.0.0.1';
  return isIP(configured) === 0 ? '0.0.0.0' : configured;
}

function advertisedHost(entry: ConfiguredNode | null): string | null {
  if (entry === null || !entry.hostGiven || entry.address.host === 'localhost') return null;
  return entry.address.host;
}

/** Under mDNS, only nodes that are listed with a host: an address that the user did not write must not be dialled. */
function knownPeers(
  config: ClusterConfig,
  ownId: string,
  provider: NodeSettings['discovery']['provider'],
): KnownPeer[] {
  return config.nodes
    .filter((node) => node.id !== ownId && (provider === 'static' || node.hostGiven))
    .map((node) => ({ role: node.role, id: node.id, address: dialAddress(node) }));
}

function configuredMain(config: ClusterConfig, provider: NodeSettings['discovery']['provider']): string | null {
  const main = config.nodes.find((node) => node.role === 'main' && (provider === 'static' || node.hostGiven));
  return main === undefined ? null : dialAddress(main);
}

function dialAddress({ address }: ConfiguredNode): string {
  const host = address.host === 'localhost' ? '127.0.0.1' : address.host;
  return host.includes(':') ? `[${host}]:${address.port}` : `${host}:${address.port}`;
}

function invalid(config: ClusterConfig, message: string): OdmoeError {
  return new OdmoeError('CONFIG_INVALID', config.path === null ? message : `${config.path}: ${message}`);
}

/** Flags and settings of main that concern its own worker (main.experts: local or both). */

/** Flags for loading and caching of experts, on a worker or on main's own worker. */
interface LoadingFlags {
  slots?: number | 'auto';
  cacheBytes?: number;
  hostMemory?: number | 'auto';
  cachePolicy?: NodeSettings['worker']['cachePolicy'];
  decompressionThreads?: number;
  directIo?: boolean;
}

type MainFlags = LoadingFlags & { experts?: NodeSettings['main']['experts'] };

/** The flags as users write them. */
const OWN_WORKER_FLAGS = {
  slots: '--slots',
  cacheBytes: '--cache',
  cachePolicy: '--cache-policy',
  hostMemory: '--host-memory',
  decompressionThreads: '--decompression-threads',
  directIo: '--direct-io',
} as const satisfies Record<keyof LoadingFlags, string>;

/** The reason why main's own worker cannot have the requested settings, with a remedy; null: it can. `hasBudget`: main has a memory budget. Pure. */
function ownWorkerContradiction(config: ClusterConfig, flags: MainFlags, hasBudget: boolean): string | null {
  if ((flags.experts ?? config.main.experts) === 'workers') {
    const names = Object.keys(OWN_WORKER_FLAGS) as (keyof typeof OWN_WORKER_FLAGS)[];
    const given = names.find((name) => flags[name] !== undefined);
    if (given === undefined) return null;
    return `${OWN_WORKER_FLAGS[given]} is for main's own worker, and it has none: add --experts local or both, or say it to the workers`;
  }
  const policy = flags.cachePolicy ?? config.worker.cache_policy;
  return hasBudget && policy === 'planned' ? PLANNED_STAYS : null;
}

const PLANNED_STAYS =
  "cache policy planned divides memory that stays, and the experts of main's own worker give theirs to answers: leave the policy out " +
  "(lru there, planned on workers of the LAN) or set it to residency, or leave out main's memory budget";
