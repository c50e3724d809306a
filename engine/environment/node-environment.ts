import type { RunningNode } from '../daemon/running-node.js';
import { createServer, type RequestListener, type Server, type ServerOptions } from 'node:http';
import { homedir } from 'node:os';
import { join } from 'node:path';
import { measureQueuedReads, waitUntil } from '../../native/index.js';
import { type Devices, NATIVE_DEVICES } from '../devices/devices.js';
import { chooseResident, type ChooseResident } from '../loading/choose-resident.js';
import type { MeasureReads } from '../planning/measure-read-depth.js';
import type { DeviceEnvironment } from '../devices/open-node-device.js';
import type { NodeSettings } from '../../shared/settings/node-settings.js';
import type { GiveUp } from '../daemon/run-daemon.js';
import type { Logger } from '../../shared/base/log/logger.js';
import type { MessageWatch } from '../../shared/transport/in-process-streams.js';
import { InlinePromptEncoder, type PromptEncoder } from '../generation/prompt-encoder.js';
import { startPromptThread, ThreadedPromptEncoder } from '../generation/threaded-prompt-encoder.js';
import { type FormatCompiler, startFormatThread, ThreadedFormatCompiler } from '../sampling/format-compiler.js';
import { openServedPack } from '../../packs/open-served-pack.js';
import { type Discovery, multicastDiscovery } from '../../shared/transport/discovery/discovery.js';
import { hostAddresses, InterfaceWatch } from '../../shared/transport/discovery/host-interfaces.js';
import { networkPaceOf } from '../emulation/network-pace.js';
import type { Pack } from '../../packs/format/open-pack.js';
import type { Tokenizer } from '../../shared/language/tokenizer/tokenizer.js';
import { GrpcTransport } from '../../shared/transport/grpc-transport.js';
import type { Transport } from '../../shared/transport/transport.js';
import { WallRuntime } from '../../shared/base/runtime/wall-runtime.js';
import type { Runtime } from '../../shared/base/runtime/runtime.js';

/** Everything that a daemon takes from the world around it. One in a process of its own has the real one; a simulated one its own. */
export interface NodeEnvironment {
  readonly runtime: Runtime;
  readonly devices: Devices;
  readonly transport: Transport;
  readonly discovery: Discovery;
  /** Of the host. */
  readonly interfaces: InterfaceWatch;
  /** Opens the pack that the daemon serves. Throws as openServedPack. */
  openPack(directory: string | null): Promise<Pack>;
  /** Makes tokens of prompts. */
  openPrompts(wanted: PromptsWanted): PromptEncoder;
  /** Compiles output formats, of which so many may wait; null: they are compiled where they are asked for. */
  openFormats(queueLimit: number): FormatCompiler | null;
  /** Makes what HTTP clients reach; null: there are none. */
  readonly createHttpServer: CreateHttpServer | null;
  /** Runs experts in main's own process (main.experts); null: nobody has handed in what does. */
  readonly ownWorker: OwnWorker | null;
  /** Where what is fetched is kept, unless the settings say otherwise. */
  readonly dataDirectory: string;
  /** How fast storage is read; null: it is emulated, and nothing is to depend on the machine's. */
  readonly measureReads: MeasureReads | null;
  /** Measures which form of weights is faster; null: devices are emulated, and nothing is to depend on the machine's. */
  readonly chooseResident: ChooseResident | null;
}

/** Nodes do not import each other: who starts a main hands in how it starts a worker of its own. */
export interface OwnWorker {
  readonly start: (
    settings: NodeSettings,
    environment: NodeEnvironment,
    log: Logger,
    giveUp: GiveUp,
    abandoned: AbortSignal,
  ) => Promise<RunningNode>;
  /** Sees what main and the worker say to each other; null: nobody does. */
  readonly watch: MessageWatch | null;
}

export type CreateHttpServer = (options: ServerOptions, handle: RequestListener) => Server;

/** Of which model, and how many prompts may wait. */
export interface PromptsWanted {
  /** Of the pack. */
  directory: string;
  /** null: the model has none; prompts then come as token ids. */
  tokenizer: Tokenizer | null;
  queueLimit: number;
}

/** The real world; under emulation its devices and network take a profiled one's time. */
export function realEnvironment(
  { emulation }: Pick<NodeSettings, 'emulation'>,
  startOwnWorker: OwnWorker['start'] | null = null,
): NodeEnvironment {
  const { runtime, devices } = realDevices();
  const interfaces = new InterfaceWatch(runtime, hostAddresses);
  return {
    runtime,
    devices,
    measureReads: emulation === null ? measureQueuedReads : null,
    chooseResident: emulation === null ? chooseResident : null,
    transport: new GrpcTransport(runtime, networkPaceOf(emulation, runtime)),
    interfaces,
    discovery: multicastDiscovery(runtime, interfaces),
    openPack: (directory) => openServedPack(directory),
    openPrompts: ({ directory, tokenizer, queueLimit }) => {
      // A model without a tokenizer has nothing that a thread could do.
      if (tokenizer === null) return new InlinePromptEncoder(tokenizer, runtime);
      return new ThreadedPromptEncoder({ startThread: () => startPromptThread(directory), queueLimit, runtime });
    },
    openFormats: (queueLimit) => new ThreadedFormatCompiler({ startThread: startFormatThread, queueLimit, runtime }),
    createHttpServer: createServer,
    ownWorker: startOwnWorker === null ? null : { start: startOwnWorker, watch: null },
    dataDirectory: dataDirectory(process.env),
  };
}

/** This machine's clocks and devices, for what uses nothing else. */
export function realDevices(): DeviceEnvironment & { runtime: Runtime } {
  return { runtime: new WallRuntime(waitUntil), devices: NATIVE_DEVICES };
}

/** $XDG_DATA_HOME/odmoe, or ~/.local/share/odmoe. */
export function dataDirectory(variables: NodeJS.ProcessEnv): string {
  const configured = variables['XDG_DATA_HOME'];
  // The XDG specification: a relative path there is to be ignored.
  const base = configured?.startsWith('/') === true ? configured : join(homedir(), '.local', 'share');
  return join(base, 'odmoe');
}
