import { AUTO_API_KEYS } from './api-keys.js';
import { qualityText, type Quality } from './quality.js';
import { isIP } from 'node:net';
import { hostname, networkInterfaces } from 'node:os';
import { dirname, resolve } from 'node:path';
import { OdmoeError } from '../base/errors/odmoe-error.js';
import { stateDirectory, stateHome } from '../base/files/state-directory.js';
import { type KeptIds, keptIds } from './kept-ids.js';
import { poolsOf } from './cache-policies.js';
import { defaultPort, type ClusterConfig, type ConfiguredNode } from './cluster-config.js';
import { deviceNamed } from './device-name.js';
import { DEFAULT_HTTP_ADDRESS } from './http-address.js';
import type {
  EmulationSettings,
  HttpSettings,
  JoiningSettings,
  KnownPeer,
  NodeSettings,
  TunedSettings,
} from './node-settings.js';
import type { RoleSetting } from './setting-choices.js';
import { WORKER_BUDGET_DEFAULT_BYTES } from './setting-limits.js';
import { firstGivenFlag, valuesOfRows, type DaemonFlags, type SettingsGroup, type Values } from './settings-table.js';

/** A daemon that listens on this host listens on every network of its machine. */
export const EVERY_NETWORK = '0.0.0.0';

/** Facts about this machine. The caller passes them in, so that resolving is pure. */
export interface ThisHost {
  hostname: string;
  addresses: readonly string[];
  processId: number;
  /** Directory in which programs keep their state. */
  stateHome: string;
  /** Left out: ids follow from role, name and port alone. */
  ids?: KeptIds;
}

/** `home`: the directory in which programs keep their state. `makesMark`: that of keptIds. */
export function thisHost(home = stateHome(), makesMark = true): ThisHost {
  const addresses = Object.values(networkInterfaces()).flatMap((list) => (list ?? []).map(({ address }) => address));
  return { hostname: hostname(), addresses, processId: process.pid, stateHome: home, ids: keptIds(home, makesMark) };
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
  const given = givenValues(role, config, entry, flags);
  const { node, discovery } = given;
  const { cluster } = given.cluster;
  const listenPort = node.listenPort ?? entry?.address.port ?? defaultPort(role);
  const id = node.id ?? defaultId(role, listenPort, host);
  const tuned = tunedSettings(role, config, flags, given);
  const contradiction =
    role === 'main' ? ownWorkerContradiction(given, flags, tuned.device.memoryBudgetBytes > 0) : null;
  if (contradiction !== null) throw invalid(config, contradiction);
  if (discovery.provider === 'dns' && discovery.name === null) throw invalid(config, NAMELESS_DNS);
  return {
    role,
    id,
    cluster,
    stateDirectory: stateDirectory(cluster, host.stateHome),
    modelPath: modelPath(role, config, flags, given),
    listenHost: node.listenHost ?? defaultListenHost(discovery.provider, entry, given.cluster.lan),
    listenPort,
    advertiseHost: node.advertiseHost ?? advertisedHost(entry),
    discovery: { ...discovery, peers: knownPeers(config, id, discovery.provider) },
    joining: joiningSettings(config, flags, given),
    mainAddress: role === 'main' ? null : (node.mainAddress ?? configuredMain(config, discovery.provider)),
    ...tuned,
  };
}

type Given = ReturnType<typeof valuesOfRows>;

function joiningSettings(config: ClusterConfig, flags: DaemonFlags, { cluster, node }: Given): JoiningSettings {
  const { lan, insecure } = cluster;
  const { joinToken: token, joinTokenPath, rejoin, listenHost } = node;
  if (token !== null && joinTokenPath !== null) throw invalid(config, 'give one of --join and --join-file, not both');
  return {
    lan,
    insecure,
    token,
    tokenPath: resolvedPath(config, joinTokenPath ?? undefined, null),
    rejoin,
    isClusterGiven: config.path !== null || flags.cluster !== undefined,
    isListenHostGiven: listenHost !== undefined,
  };
}

function givenValues(
  role: RoleSetting,
  config: ClusterConfig,
  entry: ConfiguredNode | null,
  flags: DaemonFlags,
): Given {
  const named: Readonly<Record<string, unknown>> = { ...config };
  const sectionNames: Partial<Record<SettingsGroup, string>> = { device: role, http: 'main' };
  return valuesOfRows({
    flags,
    entry: entry ?? {},
    section: (group) => {
      if (group === 'cluster') return named;
      return (named[sectionNames[group] ?? group] ?? {}) as Values;
    },
  });
}

function tunedSettings(role: RoleSetting, config: ClusterConfig, flags: DaemonFlags, given: Given): TunedSettings {
  const emulation = emulationSettings(config, flags, given);
  const { device: name, memoryBudgetBytes, ...deviceRows } = given.device;
  const workerBudgetBytes = emulation === null ? WORKER_BUDGET_DEFAULT_BYTES : 0;
  const budgetBytes = memoryBudgetBytes ?? (role === 'worker' ? workerBudgetBytes : 0);
  // An expert with strict homes stays on its worker if it fits into the memory there.
  const keepsExperts = given.placement.homes === 'strict' && config.worker.pools === undefined;
  const worker = workerSettings(config, flags, given, keepsExperts ? budgetBytes : 0);
  const device = deviceNamed(name);
  if (emulation !== null && device.backend === 'cuda') throw invalid(config, EMULATED_GPU);
  checkPrediction(config, flags, given);
  checkDrafting(config, given);
  checkReplicas(config, flags, given);
  const { arithmetic } = deviceRows;
  if (role === 'main') checkVerifiable(config, given.main.verifyShare, arithmetic);
  const unsliced =
    role === 'shadow'
      ? null
      : (fastSlices(given.main.quality, arithmetic) ?? unslicedMemory(given.main.quality, worker));
  if (unsliced !== null) throw invalid(config, unsliced);
  return {
    device: { ...device, ...deviceRows, memoryBudgetBytes: budgetBytes },
    main: { ...given.main, http: httpSettings(config, flags, given) },
    batching: given.batching,
    emulation,
    prediction: given.prediction,
    align: given.align,
    drafting: given.drafting,
    placement: given.placement,
    shadow: given.shadow,
    worker,
    network: given.network,
    log: given.log,
  };
}

const EMULATED_GPU =
  'an emulated device computes on the processor: leave out device cuda (--device), or emulation (--profile, `emulation:`)';

function checkPrediction(config: ClusterConfig, flags: DaemonFlags, { prediction }: Given): void {
  if ((flags.layersAhead ?? 1) === 1 || prediction.source === 'router-ahead') return;
  throw invalid(
    config,
    'only router-ahead asks routers of later layers: add --prediction router-ahead, or leave out --layers-ahead',
  );
}

function checkReplicas(config: ClusterConfig, flags: DaemonFlags, { placement }: Given): void {
  if ((flags.replicas ?? 1) === 1 || placement.homes === 'strict') return;
  throw invalid(config, 'only strict homes have copies of experts: add --homes strict, or leave out --replicas');
}

/** Bits are compared, and tensor cores do not keep them. */
function checkVerifiable(config: ClusterConfig, share: number, arithmetic: NodeSettings['device']['arithmetic']): void {
  const { main, worker, nodes } = config;
  const isFast = [arithmetic, main.arithmetic, worker.arithmetic, ...nodes.map((node) => node.arithmetic)];
  if (share === 0 || !isFast.includes('fast')) return;
  throw invalid(
    config,
    'main.verify_share (--verify-share) compares the bits of two workers, and arithmetic fast (--arithmetic) does not keep them: leave one of the two out',
  );
}

function checkDrafting(config: ClusterConfig, { prediction: { source }, drafting }: Given): void {
  if (source === 'sep') return;
  const wanting = `prediction ${source} has no shadow that could draft`;
  if (drafting.optimistic) throw invalid(config, `${wanting}: turn drafting.optimistic (--optimistic) off`);
  if (drafting.source === 'shadow')
    throw invalid(config, `${wanting}: set drafting.source (--draft-source) to auto or lookup`);
}

function httpSettings(config: ClusterConfig, flags: DaemonFlags, { http }: Given): HttpSettings | null {
  const { address, hosts, origins, apiKeysPath } = http;
  if (address === 'off') return null;
  return {
    ...(address ?? DEFAULT_HTTP_ADDRESS),
    isAddressGiven: address !== undefined,
    hosts,
    origins,
    apiKeysPath:
      (flags.apiKeys ?? apiKeysPath) === AUTO_API_KEYS
        ? AUTO_API_KEYS
        : resolvedPath(config, flags.apiKeys, apiKeysPath),
  };
}

/** A path in a flag is relative to the working directory; one in cluster.yaml is relative to that file. */
function resolvedPath(config: ClusterConfig, flagged: string | undefined, given: string | null): string | null {
  if (flagged !== undefined) return resolve(flagged);
  return given === null ? null : resolve(directoryOf(config), given);
}

/** The directory at which relative paths of the configuration start. */
function directoryOf({ path }: ClusterConfig): string {
  return path === null ? '.' : dirname(path);
}

function emulationSettings(config: ClusterConfig, flags: DaemonFlags, { emulation }: Given): EmulationSettings | null {
  const profilePath = resolvedPath(config, flags.profile, emulation.profilePath ?? null);
  return profilePath === null ? null : { profilePath, expertStorage: emulation.expertStorage };
}

/** `residentBytes`: size of the cache if no setting gives one. */
function workerSettings(
  config: ClusterConfig,
  flags: DaemonFlags,
  { main, worker }: Given,
  residentBytes: number,
): NodeSettings['worker'] {
  const pools = flags.cache === undefined ? worker.pools : null;
  const cachePolicy = worker.cachePolicy ?? (main.quality.kind === 'exact' ? 'planned' : 'sliced');
  const cachePools = poolsOf(cachePolicy);
  const parts =
    pools === null ? [] : (['compressed', 'sign_mantissa', 'exponent'] as const).filter((pool) => pools[pool] > 0);
  if (parts.some((pool) => pool !== 'compressed' || !cachePools.includes(pool)) && cachePolicy !== 'planned') {
    const most = cachePools.includes('compressed') ? 'whole and compressed ones' : 'whole ones';
    throw invalid(
      config,
      `worker.pools keep parts of experts, and cache policy ${cachePolicy} only ${most}: leave one out`,
    );
  }
  return {
    ...worker,
    cacheBytes: worker.cacheBytes ?? residentBytes,
    cachePolicy,
    yields: false,
    pools:
      pools === null
        ? null
        : {
            full: pools.full,
            compressed: pools.compressed,
            signMantissa: pools.sign_mantissa,
            exponent: pools.exponent,
          },
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

function modelPath(role: RoleSetting, config: ClusterConfig, flags: DaemonFlags, { cluster }: Given): string | null {
  const path = resolvedPath(config, flags.model, cluster.model);
  // Workers and shadows fetch main's pack.
  if (path !== null || role !== 'main') return path;
  throw invalid(
    config,
    `the ${role} has no model: give the directory of a pack by --model, or \`model:\` in cluster.yaml`,
  );
}

const NAMELESS_DNS =
  'dns discovery needs the name whose records name the daemons: give it by --discovery-name or discovery.name, as in odmoe.default.svc.cluster.local';

/**
 * An id from role and name of the host; that of a worker also from its port. Boxes that come out of one image have one name, so workers and
 * shadows have a mark of their host, too. A daemon that has joined under an id without a mark keeps it.
 */
function defaultId(role: RoleSetting, listenPort: number, { hostname: own, processId, ids }: ThisHost): string {
  const name = (own.split('.')[0] ?? '').replaceAll(/[^A-Za-z0-9-]/g, '-').slice(0, 40) || 'host';
  const port = role === 'worker' ? `-${listenPort === 0 ? `p${processId}` : listenPort}` : '';
  const plain = `${role}-${name}${port}`;
  if (role === 'main' || ids === undefined || ids.hasJoined(plain)) return plain;
  const idWith = (mark: string): string => `${role}-${name}-${mark}${port}`;
  const mark = ids.mark({ name, idWith });
  return mark === '' ? plain : idWith(mark);
}

/**
 * The address to listen on where nobody has given one. Under static discovery: the interface that the node's address needs. Otherwise this machine
 * alone; a cluster with an authority is served on every network (engine/daemon/enter-cluster.ts).
 */
function defaultListenHost(
  provider: NodeSettings['discovery']['provider'],
  entry: ConfiguredNode | null,
  lan: boolean,
): string {
  if (lan) return EVERY_NETWORK;
  const configured = entry?.address.host ?? 'localhost';
  if (provider !== 'static' || configured === 'localhost') return '127.0.0.1';
  return isIP(configured) === 0 ? EVERY_NETWORK : configured;
}

function advertisedHost(entry: ConfiguredNode | null): string | null {
  if (entry === null || !entry.hostGiven || entry.address.host === 'localhost') return null;
  return entry.address.host;
}

/** Under mDNS and DNS, only nodes that are listed with a host: an address that the user did not write must not be dialled. */
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

/** Under a quality the same request has the same bits everywhere, which tensor cores do not keep. Null: there is no contradiction. Pure. */
function fastSlices(quality: Quality, arithmetic: NodeSettings['device']['arithmetic']): string | null {
  if (quality.kind === 'exact' || arithmetic === 'exact') return null;
  return `main.quality ${qualityText(quality)} is computed by the one arithmetic: leave out arithmetic fast (--arithmetic), or the quality`;
}

/** Names the setting by which a worker would hold experts that its quality does not compute with, and a remedy; null: there is none. Pure. */
function unslicedMemory(
  quality: Quality,
  { cachePolicy, pools, hostMemory, resident }: NodeSettings['worker'],
): string | null {
  if (quality.kind === 'exact') {
    if (cachePolicy !== 'sliced') return null;
    return 'cache policy sliced keeps slices, and main.quality exact computes without them: leave it out, or set a sliced quality (--quality)';
  }
  const without = `holds experts as they are shipped, and main.quality ${qualityText(quality)} computes with slices: leave it out`;
  if (pools !== null) return `worker.pools ${without}`;
  if (cachePolicy !== 'sliced') return `cache policy ${cachePolicy} ${without}, or set it to sliced`;
  if (hostMemory !== 0) return `worker.host_memory ${without}`;
  return resident === null ? null : `worker.resident ${without}`;
}

/** The reason why main's own worker cannot have the requested settings, with a remedy; null: it can. `hasBudget`: main has a memory budget. Pure. */
function ownWorkerContradiction({ main, worker }: Given, flags: DaemonFlags, hasBudget: boolean): string | null {
  if (main.experts === 'workers') {
    const usage = firstGivenFlag('worker', 'main', flags);
    if (usage === null) return null;
    return `${usage} is for main's own worker, and it has none: add --experts local or both, or say it to the workers`;
  }
  return hasBudget && worker.cachePolicy === 'planned' ? PLANNED_STAYS : null;
}

const PLANNED_STAYS =
  "cache policy planned divides memory that stays, and the experts of main's own worker give theirs to answers: leave the policy out " +
  "(lru there, planned on workers of the LAN) or set it to residency, or leave out main's memory budget";
