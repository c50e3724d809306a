import type { RunningNode, YieldingMemory } from '../engine/daemon/running-node.js';
import type { NodeEnvironment } from '../engine/environment/node-environment.js';
import type { NodeSettings } from '../shared/settings/node-settings.js';
import { machineAddress } from '../engine/daemon/advertised-address.js';
import type { GiveUp } from '../engine/daemon/run-daemon.js';
import type { HostAddress } from '../shared/transport/discovery/host-interfaces.js';
import type { Discovery } from '../shared/transport/discovery/discovery.js';
import { OdmoeError } from '../shared/base/errors/odmoe-error.js';
import type { Logger } from '../shared/base/log/logger.js';
import { formatAddress, isWildcardHost } from '../shared/wire/addresses.js';
import { InProcessTransport } from '../shared/transport/in-process-transport.js';
import type { Transport } from '../shared/transport/transport.js';
import type { Timer } from '../shared/base/runtime/runtime.js';
import { bytesForAnswers } from './assemble-main.js';
import type { LoadedMain } from './load-main.js';

/** A worker in main's process, on main's device (main.experts: local, both). */
export interface RunningOwnWorker {
  readonly id: string;
  /** The transport by which main and all other nodes reach the worker. */
  readonly transport: Transport;
  /** Takes streams of other nodes to the worker, which come through main's server. */
  readonly serve: InProcessTransport['serveWorker'];
  /** Main listens on the port. Returns the address at which the worker is placed. */
  listensOn(port: number): string;
  /** Memory of its slots on main's device, which yields to rows of answers. Null: the device has no budget. */
  readonly memory: YieldingMemory | null;
  /** Counts of what it holds for requests, under names of its own. */
  openCounts(): Record<string, number>;
  /** Objects that lead to all its collections, as RunningNode describes it. */
  components(): readonly object[];
  /** Idempotent. */
  stop(): Promise<void>;
}

/** The worker's id in the cluster: main's id, cut so that the whole is no longer than ids may be, with a suffix. */
export function ownWorkerId(mainId: string): string {
  return `${mainId.slice(0, ID_LENGTH_LIMIT - OWN_SUFFIX.length)}${OWN_SUFFIX}`;
}

const ID_LENGTH_LIMIT = 63;
const OWN_SUFFIX = '-worker';

/**
 * Starts main's own worker: the worker's daemon code with main's pack and device, reached without sockets. Null: main.experts is workers. Throws
 * CONFIG_INVALID if main was started without a worker's code, and the errors of a worker's start.
 */
export async function startOwnWorker(
  settings: NodeSettings,
  loaded: LoadedMain & { environment: NodeEnvironment },
  { giveUp, abandoned }: { giveUp: GiveUp; abandoned: AbortSignal },
  log: Logger,
): Promise<RunningOwnWorker | null> {
  const { environment } = loaded;
  if (settings.main.experts === 'workers') return null;
  if (environment.ownWorker === null) {
    throw new OdmoeError(
      'CONFIG_INVALID',
      `main.experts is ${settings.main.experts}, and this main was started without a worker's code: start it by \`odmoe main\``,
    );
  }
  const { start, watch } = environment.ownWorker;
  const inProcess = new InProcessTransport(environment.runtime, environment.transport, watch);
  const own = ownSettings(settings, loaded);
  if (own.worker.pools !== settings.worker.pools) {
    const { cachePolicy } = own.worker;
    log.warn("main's own worker keeps whole experts only, as it shares memory with answers; pools are left aside", {
      cachePolicy,
    });
  }
  const reservedBytes = bytesForAnswers(settings, loaded);
  const node = await start(own, ownEnvironment(loaded, inProcess, reservedBytes), log, giveUp, abandoned);
  const memory = settings.device.memoryBudgetBytes === 0 ? null : (node.memory ?? null);
  const taking = memory === null ? null : takeBack(memory, loaded, reservedBytes);
  return {
    id: own.id,
    transport: inProcess.ofMain,
    serve: (stream, peer) => inProcess.serveWorker(stream, peer),
    listensOn: (port) =>
      (inProcess.address = formatAddress(reachableHost(settings, environment.interfaces.addresses), port)),
    memory,
    openCounts: () => ownCounts(node),
    components: () => [inProcess, ...node.components()],
    stop: () => {
      taking?.cancel();
      return node.stop();
    },
  };
}

/**
 * The settings of main's own worker. It neither finds nor advertises anything, because main knows it. Its device is main's, whatever that is. If main
 * has a budget, the worker caches experts, or their slices, in all memory that answers leave, or in as much as worker.cache says. Main has decided where the
 * experts of the model's own head run.
 */
function ownSettings(
  settings: NodeSettings,
  { source, headAtWorkers }: Pick<LoadedMain, 'source' | 'headAtWorkers'>,
): NodeSettings {
  const { memoryBudgetBytes: budgetBytes } = settings.device;
  return {
    ...settings,
    role: 'worker',
    id: ownWorkerId(settings.id),
    modelPath: source.directory,
    mainAddress: null,
    emulation: null,
    listenHost: '0.0.0.0',
    listenPort: 0,
    advertiseHost: null,
    discovery: { provider: 'static', interfaceAddress: null, name: null, peers: [] },
    device: { ...settings.device, backend: 'cpu', device: null },
    drafting: { ...settings.drafting, headExperts: headAtWorkers ? 'workers' : 'main' },
    worker: budgetBytes > 0 ? keepingExperts(settings.worker, budgetBytes) : settings.worker,
  };
}

/** Whole experts or slices only, because slots give their memory back one by one. `planned` can only be the default here: a plan needs memory that stays. */
function keepingExperts(worker: NodeSettings['worker'], budgetBytes: number): NodeSettings['worker'] {
  const cacheBytes = worker.cacheBytes === 0 ? budgetBytes : worker.cacheBytes;
  const cachePolicy = worker.cachePolicy === 'planned' ? 'lru' : worker.cachePolicy;
  return { ...worker, cacheBytes, cachePolicy, pools: null, yields: true };
}

/** Lets experts take memory that has been free in the budget for a while, except for what the next answer needs to begin. */
function takeBack(
  memory: YieldingMemory,
  { device, environment }: LoadedMain & { environment: NodeEnvironment },
  reservedBytes: number,
): Timer {
  return environment.runtime.every(TAKE_BACK_INTERVAL_MS, () => {
    const { budgetBytes, usedBytes } = device.info();
    memory.takeBack(Math.max(0, budgetBytes - usedBytes - reservedBytes));
  });
}

/** Interval at which experts look for memory that is free again. */
const TAKE_BACK_INTERVAL_MS = 1000;

function ownEnvironment(
  { source, sharedDevice, environment }: Pick<LoadedMain, 'source' | 'sharedDevice'> & { environment: NodeEnvironment },
  inProcess: InProcessTransport,
  reservedBytes: number,
): NodeEnvironment {
  return {
    ...environment,
    transport: inProcess.ofWorker,
    discovery: NOBODY,
    devices: sharedDevice.asDevices(environment.devices, reservedBytes),
    openPack: async () => source,
    chooseWeightForm: sharedDevice.choosing(environment.chooseWeightForm),
    createHttpServer: null,
    ownWorker: null,
  };
}

const NOBODY: Discovery = {
  advertise: async () => ({ stop: async () => undefined }),
  watchPeers: async () => ({ stop: async () => undefined }),
};

/** A shadow reaches the worker at the host where it reaches main. */
function reachableHost(
  { advertiseHost, listenHost, discovery }: NodeSettings,
  addresses: readonly HostAddress[],
): string {
  const host = advertiseHost ?? listenHost;
  return isWildcardHost(host) ? machineAddress(addresses, discovery.interfaceAddress) : host;
}

function ownCounts(node: RunningNode): Record<string, number> {
  return Object.fromEntries(Object.entries(node.openCounts()).map(([name, count]) => [`ownWorker.${name}`, count]));
}
