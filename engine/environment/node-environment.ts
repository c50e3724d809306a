import type { RunningNode } from '../daemon/running-node.js';
import { createServer, type RequestListener, type Server, type ServerOptions } from 'node:http';
import { homedir } from 'node:os';
import { join } from 'node:path';
import { measureQueuedReads, waitUntil } from '../../native/index.js';
import { type Devices, NATIVE_DEVICES } from '../devices/devices.js';
import { chooseWeightForm, type ChooseWeightForm } from '../loading/choose-weight-form.js';
import { type RuledSlices, slicesForQuality } from '../loading/open-for-quality.js';
import type { SlicedQuality } from '../../shared/decisions/slices/plan-readings.js';
import { type OpenRecorder, openRecorder } from '../recording/state-recorder.js';
import type { MeasureReads } from '../planning/measure-read-depth.js';
import type { DeviceEnvironment } from '../devices/open-node-device.js';
import type { NodeSettings } from '../../shared/settings/node-settings.js';
import type { GiveUp } from '../daemon/run-daemon.js';
import type { Logger } from '../../shared/base/log/logger.js';
import type { MessageWatch } from '../../shared/transport/in-process-streams.js';
import { InlinePromptEncoder, type PromptEncoder } from '../generation/prompt-encoder.js';
import { startPromptThread, ThreadedPromptEncoder } from '../generation/threaded-prompt-encoder.js';
import { type FormatCompiler, startFormatThread, ThreadedFormatCompiler } from '../sampling/format-compiler.js';
import { type Predictor, readPredictor } from '../../packs/predictor/predictor-file.js';
import { openServedPack } from '../../packs/open-served-pack.js';
import { type Discovery, multicastDiscovery } from '../../shared/transport/discovery/discovery.js';
import { discoveryByProvider, nameDiscovery } from '../daemon/name-discovery.js';
import { hostAddresses, InterfaceWatch } from '../../shared/transport/discovery/host-interfaces.js';
import { networkPaceOf } from '../emulation/network-pace.js';
import type { Pack } from '../../packs/format/open-pack.js';
import { usePack } from '../../packs/format/pack-use.js';
import type { Quality } from '../../shared/settings/quality.js';
import type { OpenSlices } from '../../packs/fetching/served-slices.js';
import { heldSlices } from '../../packs/slices/open-slices.js';
import { type OpenStoreFiles, openStoreFiles } from './store-files.js';
import type { AuthorityState } from '../trust/authority-files.js';
import type { NodeTrust } from '../trust/node-trust.js';
import type { OpenTrust } from '../trust/open-node-trust.js';
import type { Tokenizer } from '../../shared/language/tokenizer/tokenizer.js';
import { shortAuthorityDigest } from '../../shared/transport/trust/certificate.js';
import { GrpcTransport } from '../../shared/transport/grpc-transport.js';
import type { Transport } from '../../shared/transport/transport.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { NEWEST_PROTOCOL } from '../../shared/wire/limits.js';
import { type NodeVersions, RELEASE_VERSIONS } from '../../shared/wire/versions.js';
import { WallRuntime } from '../../shared/base/runtime/wall-runtime.js';
import type { Runtime } from '../../shared/base/runtime/runtime.js';

/** Everything that a daemon takes from outside its code. A daemon in its own process gets the real environment, a simulated daemon a simulated one. */
export interface NodeEnvironment {
  readonly runtime: Runtime;
  readonly devices: Devices;
  readonly transport: Transport;
  /** This node's certificate and the roster of its cluster; null: the cluster has no authority. */
  readonly trust: NodeTrust | null;
  /** Main's authority, roster and tokens; null: the cluster has no authority, or this daemon is not main. */
  readonly authority: AuthorityState | null;
  readonly discovery: Discovery;
  /** Addresses of the host. */
  readonly interfaces: InterfaceWatch;
  /** Opens the pack that the daemon serves; left out: one for exact answers. Throws the errors of openServedPack. */
  openPack(directory: string | null, quality?: Quality): Promise<Pack>;
  /** Holds the directory of the pack while the daemon serves it (usePack). Returns the function that gives it back. */
  usePack(directory: string): Promise<() => Promise<void>>;
  /** Opens the slices with which experts of a quality are computed. Throws the errors of slicesForQuality. */
  slicesForQuality(pack: Pack, quality: SlicedQuality): Promise<RuledSlices>;
  /** Opens the slices that the daemon serves beside its pack, if it has not opened them to compute with them; null: it serves none. */
  readonly openSlices: OpenSlices | null;
  /** Main's trained predictor; null: the pack has none. Throws the errors of readPredictor. */
  readPredictor(pack: Pack): Promise<Predictor | null>;
  /** Turns prompts into tokens. */
  openPrompts(wanted: PromptsWanted): PromptEncoder;
  /** Compiles output formats, of which at most this many may wait; null: they are compiled in place. */
  openFormats(queueLimit: number): FormatCompiler | null;
  /** Makes the server for HTTP clients; null: there are no HTTP clients. */
  readonly createHttpServer: CreateHttpServer | null;
  /** Runs experts in main's process (main.experts); null: the caller has provided no worker. */
  readonly ownWorker: OwnWorker | null;
  /** Directory for fetched packs, unless the settings name another one. */
  readonly dataDirectory: string;
  /** Opens the files of a store of main's. */
  readonly openStoreFiles: OpenStoreFiles;
  /** Opens the file into which main records what odmoe fit trains with. */
  readonly openRecorder: OpenRecorder;
  /** The versions that this node's identity states. */
  readonly versions: NodeVersions;
  /** Measures the speed of storage; null: storage is emulated, and results must not depend on the machine. */
  readonly measureReads: MeasureReads | null;
  /** Measures which weight form is faster; null: devices are emulated, and results must not depend on the machine. */
  readonly chooseWeightForm: ChooseWeightForm | null;
}

/** Starts main's own worker. Nodes do not import each other, so the code that starts a main passes this in. */
export interface OwnWorker {
  readonly start: (
    settings: NodeSettings,
    environment: NodeEnvironment,
    log: Logger,
    giveUp: GiveUp,
    abandoned: AbortSignal,
  ) => Promise<RunningNode>;
  /** Observes the messages between main and the worker; null: nobody does. */
  readonly watch: MessageWatch | null;
}

export type CreateHttpServer = (options: ServerOptions, handle: RequestListener) => Server;

/** The model of the prompts, and the number of prompts that may wait. */
export interface PromptsWanted {
  /** Directory of the pack. */
  directory: string;
  /** null: the model has no tokenizer; then prompts come as token ids. */
  tokenizer: Tokenizer | null;
  queueLimit: number;
}

/**
 * The real environment; under emulation its devices and network take the time of the profiled ones.
 * @param opened null: the cluster has no authority, and connections are plaintext
 */
export function realEnvironment(
  { emulation }: Pick<NodeSettings, 'emulation'>,
  startOwnWorker: OwnWorker['start'] | null = null,
  opened: Pick<OpenTrust, 'trust' | 'authority'> | null = null,
): NodeEnvironment {
  const { trust, authority } = opened ?? { trust: null, authority: null };
  const { runtime, devices } = realDevices();
  const interfaces = new InterfaceWatch(runtime, hostAddresses);
  return {
    runtime,
    devices,
    measureReads: emulation === null ? measureQueuedReads : null,
    chooseWeightForm: emulation === null ? chooseWeightForm : null,
    transport: new GrpcTransport(runtime, networkPaceOf(emulation, runtime), trust),
    trust,
    authority,
    interfaces,
    discovery: discoveryByProvider(
      multicastDiscovery(runtime, interfaces, trust && shortAuthorityDigest(trust.authority)),
      nameDiscovery(runtime),
    ),
    openPack: (directory, quality) => openServedPack(directory, quality),
    readPredictor,
    usePack,
    slicesForQuality,
    openSlices: heldSlices,
    openPrompts: ({ directory, tokenizer, queueLimit }) => {
      // Without a tokenizer there is no work for a thread.
      if (tokenizer === null) return new InlinePromptEncoder(tokenizer, runtime);
      return new ThreadedPromptEncoder({ startThread: () => startPromptThread(directory), queueLimit, runtime });
    },
    openFormats: (queueLimit) => new ThreadedFormatCompiler({ startThread: startFormatThread, queueLimit, runtime }),
    createHttpServer: createServer,
    ownWorker: startOwnWorker === null ? null : { start: startOwnWorker, watch: null },
    dataDirectory: dataDirectory(process.env),
    openStoreFiles,
    openRecorder,
    versions: versionsIn(process.env),
  };
}

/** This machine's clocks and devices, for code that needs nothing else. */
export function realDevices(): DeviceEnvironment & { runtime: Runtime } {
  return { runtime: new WallRuntime(waitUntil), devices: NATIVE_DEVICES };
}

/** Tests of two releases set it: a build then says that it speaks a newer protocol, too. It is no setting, and changes nothing else. */
export const NEWEST_PROTOCOL_VARIABLE = 'ODMOE_TEST_NEWEST_PROTOCOL';

/** Those of this release, unless a test wants another newest protocol. Throws USAGE if that is no number, or an older protocol. */
export function versionsIn(variables: NodeJS.ProcessEnv): NodeVersions {
  const wanted = variables[NEWEST_PROTOCOL_VARIABLE] ?? '';
  if (wanted === '') return RELEASE_VERSIONS;
  if (!/^\d{1,4}$/.test(wanted) || Number(wanted) < NEWEST_PROTOCOL) {
    throw new OdmoeError(
      'USAGE',
      `${NEWEST_PROTOCOL_VARIABLE} is "${wanted}" and must be a number from ${NEWEST_PROTOCOL} on: only tests of odmoe set it, so unset it`,
    );
  }
  return { ...RELEASE_VERSIONS, newestProtocol: Number(wanted) };
}

/** $XDG_DATA_HOME/odmoe, or ~/.local/share/odmoe. */
export function dataDirectory(variables: NodeJS.ProcessEnv): string {
  const configured = variables['XDG_DATA_HOME'];
  // The XDG specification demands that a relative path is ignored.
  const base = configured?.startsWith('/') === true ? configured : join(homedir(), '.local', 'share');
  return join(base, 'odmoe');
}
