import type { NodeEnvironment } from '../engine/environment/node-environment.js';
import type { NodeSettings, RunningNode } from '../shared/config/node-settings.js';
import { machineAddress } from '../shared/daemon/advertised-address.js';
import type { GiveUp } from '../shared/daemon/run-daemon.js';
import type { Discovery } from '../shared/discovery/discovery.js';
import { OdmoeError } from '../shared/errors/odmoe-error.js';
import type { Logger } from '../shared/log/logger.js';
import { formatAddress, isWildcardHost } from '../shared/rpc/addresses.js';
import { InProcessTransport } from '../shared/rpc/in-process-transport.js';
import type { Transport } from '../shared/rpc/transport.js';
import type { LoadedMain } from './load-main.js';

/** A worker in main's process, on main's device (main.experts: local, both). */
export interface RunningOwnWorker {
  readonly id: string;
  /** By which main reaches it, and everybody else. */
  readonly transport: Transport;
  /** Streams of others to it come by main's server. */
  readonly serve: InProcessTransport['serveWorker'];
  /** Main listens on the port: returns under which address the worker is placed. */
  listensOn(port: number): string;
  /** What it holds for requests, under names of its own. */
  openCounts(): Record<string, number>;
  /** Idempotent. */
  stop(): Promise<void>;
}

/** Its place in the cluster: an id that tells whose it is, within what ids may be. */
export function ownWorkerId(mainId: string): string {
  return `${mainId.slice(0, ID_LENGTH_LIMIT - OWN_SUFFIX.length)}${OWN_SUFFIX}`;
}

const ID_LENGTH_LIMIT = 63;
const OWN_SUFFIX = '-worker';

/**
 * Starts main's own worker: the worker's daemon code with main's pack and device, reached without sockets. Null: main.experts is workers.
 * Throws CONFIG_INVALID where who started main has handed in no worker, and what the start of a worker throws.
 */
export async function startOwnWorker(
  settings: NodeSettings,
  loaded: Pick<LoadedMain, 'source' | 'sharedDevice'> & { environment: NodeEnvironment },
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
  const own = ownSettings(settings, loaded.source.directory);
  const node = await start(own, ownEnvironment(loaded, inProcess), log, giveUp, abandoned);
  return {
    id: own.id,
    transport: inProcess.ofMain,
    serve: (stream, peerHost) => inProcess.serveWorker(stream, peerHost),
    listensOn: (port) => (inProcess.address = formatAddress(reachableHost(settings), port)),
    openCounts: () => ownCounts(node),
    stop: () => node.stop(),
  };
}

/**
 * The worker finds nobody and announces itself to nobody: main knows it. Its device is main's, whatever that is. Where main has a budget
 * the rows of answers have what slots leave of it, and nothing is kept of experts.
 */
function ownSettings(settings: NodeSettings, modelPath: string): NodeSettings {
  return {
    ...settings,
    ...{ role: 'worker', id: ownWorkerId(settings.id), modelPath, mainAddress: null, emulation: null },
    ...{ listenHost: '0.0.0.0', listenPort: 0, advertiseHost: null },
    discovery: { provider: 'static', interfaceAddress: null, peers: [] },
    device: { ...settings.device, backend: 'cpu', device: null },
    worker:
      settings.device.memoryBudgetBytes === 0 ? settings.worker : { ...settings.worker, cacheBytes: 0, pools: null },
  };
}

function ownEnvironment(
  { source, sharedDevice, environment }: Pick<LoadedMain, 'source' | 'sharedDevice'> & { environment: NodeEnvironment },
  inProcess: InProcessTransport,
): NodeEnvironment {
  return {
    ...environment,
    transport: inProcess.ofWorker,
    discovery: NOBODY,
    devices: sharedDevice.asDevices(environment.devices),
    openPack: async () => source,
    ...{ createHttpServer: null, ownWorker: null },
  };
}

const NOBODY: Discovery = {
  advertise: async () => ({ stop: async () => undefined }),
  watchPeers: async () => ({ stop: async () => undefined }),
};

/** A shadow reaches the worker where it reaches main. */
function reachableHost({ advertiseHost, listenHost, discovery }: NodeSettings): string {
  const host = advertiseHost ?? listenHost;
  return isWildcardHost(host) ? (discovery.interfaceAddress ?? machineAddress()) : host;
}

function ownCounts(node: RunningNode): Record<string, number> {
  return Object.fromEntries(Object.entries(node.openCounts()).map(([name, count]) => [`ownWorker.${name}`, count]));
}
