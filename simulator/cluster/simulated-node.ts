import type { RunningNode } from '../../engine/daemon/running-node.js';
import type { Devices } from '../../engine/devices/devices.js';
import { slicesForQuality } from '../../engine/loading/open-for-quality.js';
import type { NodeTrust } from '../../engine/trust/node-trust.js';
import type { NodeEnvironment } from '../../engine/environment/node-environment.js';
import { openRecorder } from '../../engine/recording/state-recorder.js';
import { type OpenStoreFiles, openStoreFiles } from '../../engine/environment/store-files.js';
import { InlinePromptEncoder } from '../../engine/generation/prompt-encoder.js';
import { startMain } from '../../main-node/main.js';
import { ownWorkerId } from '../../main-node/own-worker.js';
import type { NodeSettings } from '../../shared/settings/node-settings.js';
import type { Quality } from '../../shared/settings/quality.js';
import { type OdmoeError, toOdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { Logger } from '../../shared/base/log/logger.js';
import type { OpenSlices } from '../../packs/fetching/served-slices.js';
import type { Pack } from '../../packs/format/open-pack.js';
import { LIVING_KINDS } from '../../shared/base/runtime/living.js';
import type { PeerMessage } from '../../shared/transport/stream-pace.js';
import type { RpcServerOptions, Transport } from '../../shared/transport/transport.js';
import { SeededRandom } from '../../shared/base/runtime/seeded-random.js';
import { VirtualRuntime, WALL_ZERO_MS } from '../../shared/base/runtime/virtual-runtime.js';
import type { VirtualClock } from '../../shared/base/runtime/virtual-clock.js';
import { readPredictor } from '../../packs/predictor/predictor-file.js';
import { startShadow } from '../../shadow-node/main.js';
import { startWorker } from '../../worker-node/main.js';
import { type NodeVersions, RELEASE_VERSIONS } from '../../shared/wire/versions.js';
import { InterfaceWatch } from '../../shared/transport/discovery/host-interfaces.js';
import { memoryDiscovery, memoryTransport } from '../network/memory-transport.js';
import type { MemoryNetwork } from '../network/memory-network.js';

export type PackHandlers = NonNullable<RpcServerOptions['pack']>;

/** The environment of a simulated process, beside clock and network. */
export interface NodeWorld {
  /** The devices of one start of the process. */
  devices(runtime: VirtualRuntime): Devices;
  openPack(directory: string | null, runtime: VirtualRuntime, quality?: Quality): Promise<Pack>;
  /** As in NodeEnvironment; left out: that of the opened pack. */
  readPredictor?: NodeEnvironment['readPredictor'];
  /** As in NodeEnvironment; left out: those of the opened pack. */
  slicesForQuality?: NodeEnvironment['slicesForQuality'];
  /** Opens the slices that the node serves beside its pack; left out: it serves none. */
  openSlices?: (pack: Pack, runtime: VirtualRuntime) => ReturnType<OpenSlices>;
  /** Wraps the service by which peers read the node's pack; left out: it is not wrapped. */
  wrapPack?: (pack: PackHandlers) => PackHandlers;
  /** The part of one start of the process in the trust of its cluster; left out: the cluster has no authority. */
  trust?: (runtime: VirtualRuntime) => NodeTrust | null;
  dataDirectory: string;
  /** As in NodeEnvironment; left out: those of the real disk. */
  openStoreFiles?: OpenStoreFiles;
  /** As in NodeEnvironment; left out: the file beside the opened pack. */
  openRecorder?: NodeEnvironment['openRecorder'];
  /** As in NodeEnvironment; left out: those of this release. */
  versions?: NodeVersions;
  log: Logger;
  /** Seed for the random numbers of the process, with the process's id and the number of its starts. */
  seed: number;
}

const START = { main: startMain, shadow: startShadow, worker: startWorker };

/** One daemon of a simulated cluster, which can be killed, stopped and started again. Its host keeps its name. */
export class SimulatedNode {
  runtime: VirtualRuntime;
  /** The reason why it does not run: it could not start, or has given up. Null: it runs, or was stopped from outside. */
  failure: OdmoeError | null = null;
  /** Names of living things that had not ended when the latest stop reported that all was closed. */
  leftAtStop: readonly string[] = [];
  private node: RunningNode | null = null;
  private starting: Promise<void> = Promise.resolve();
  private starts = 0;

  constructor(
    private readonly clock: VirtualClock,
    private readonly network: MemoryNetwork,
    readonly settings: NodeSettings,
    private readonly world: NodeWorld,
  ) {
    this.runtime = new VirtualRuntime(clock, world.seed);
    this.runtime.kill();
    const { id, role, main } = settings;
    if (role === 'main' && main.experts !== 'workers') network.setOwnWorker(id, ownWorkerId(id));
  }

  /** The id of the node, which is also the name of its host. */
  get id(): string {
    return this.settings.id;
  }

  /** The address by which others reach it. */
  get address(): string {
    return `${this.id}:${this.settings.listenPort}`;
  }

  get isAlive(): boolean {
    return !this.runtime.isDead;
  }

  /** True if it has started and nobody has stopped it since. */
  get isReady(): boolean {
    return this.node !== null && this.isAlive;
  }

  /** Numbers of resources held for requests, by name (RunningNode); null while it does not run. */
  openCounts(): Readonly<Record<string, number>> | null {
    return this.isReady ? (this.node?.openCounts() ?? null) : null;
  }

  /** Objects that lead to all its collections; empty while it does not run. */
  components(): readonly object[] {
    return this.isReady ? (this.node?.components() ?? []) : [];
  }

  /** Native sequences that no request uses and that are retained for later prompts. */
  retainedSequences(): number {
    return this.isReady ? (this.node?.retainedSequences?.() ?? 0) : 0;
  }

  /** Main only: its metrics in Prometheus' text format. */
  async metrics(): Promise<string> {
    return (await this.node?.metrics?.()) ?? '';
  }

  /** A running main only: the events of GET /cluster/events from now on. */
  events(wantsPasses: boolean): ReturnType<NonNullable<RunningNode['events']>> | null {
    return this.node?.events?.(wantsPasses) ?? null;
  }

  /** Begins to start; isReady and failure show the result. `wallSkewMs`: its machine's wall clock minus that of the first machine. */
  start(wallSkewMs = 0): void {
    const { seed, log } = this.world;
    this.starts += 1;
    // Every process has a different seed: otherwise their boot ids would be equal.
    const ownSeed = new SeededRandom(seed).fork(`${this.id} ${this.starts}`).int(MOST_SEEDS);
    const runtime = new VirtualRuntime(this.clock, ownSeed, WALL_ZERO_MS + wallSkewMs);
    this.runtime = runtime;
    this.node = null;
    this.failure = null;
    const giveUp = (error: OdmoeError): void => {
      this.failure = error;
      void this.stop().catch((thrown: unknown) => {
        this.failure = toOdmoeError(thrown);
      });
    };
    const start = START[this.settings.role];
    this.starting = runtime
      .within(() => start(this.settings, this.environment(runtime), log, giveUp))
      .then(
        (node) => {
          if (this.runtime === runtime) this.node = node;
        },
        (thrown: unknown) => {
          if (this.runtime !== runtime) return;
          this.failure = toOdmoeError(thrown);
          this.kill();
        },
      );
  }

  /** Like SIGTERM: work under way ends first. Resolves when everything is closed. */
  async stop(): Promise<void> {
    const { runtime } = this;
    await this.starting;
    await this.inEventOf(runtime);
    if (this.runtime !== runtime || runtime.isDead) return;
    const { node } = this;
    await node?.drain?.(new AbortController().signal);
    await node?.stop();
    if (this.runtime !== runtime) return;
    this.leftAtStop = runtime.living.names(OWN_KINDS);
    this.node = null;
    this.kill();
  }

  /** Continues in an event of the process, so that its registry records the things that begin there. */
  private inEventOf(runtime: VirtualRuntime): Promise<void> {
    return new Promise((resolve) => {
      this.clock.schedule(this.clock.nowMs, () => runtime.within(resolve));
    });
  }

  /** Like SIGKILL. */
  kill(): void {
    this.runtime.kill();
    this.node = null;
    this.network.processGone(this.runtime);
  }

  /** Like SIGSTOP. */
  pause(): void {
    this.runtime.pause();
    this.network.processPaused(this.id);
  }

  /** Like SIGCONT. */
  resume(): void {
    this.runtime.resume();
    this.network.processPaused(this.id);
  }

  /** Reports messages within main's process like those between processes, under the id of main's own worker. */
  private watchOwnWorker(way: 'sent' | 'arrived', to: 'opener' | 'server', message: PeerMessage): void {
    const own = ownWorkerId(this.id);
    const [from, at] = to === 'server' ? [this.id, own] : [own, this.id];
    this.network.tap?.(way, from, at, message);
  }

  private transport(runtime: VirtualRuntime, trust: NodeTrust | null): Transport {
    const transport = memoryTransport(this.network, this.id, runtime, { trust });
    const { wrapPack } = this.world;
    if (wrapPack === undefined) return transport;
    const withWrappedPack = (options: RpcServerOptions): RpcServerOptions =>
      options.pack === undefined ? options : { ...options, pack: wrapPack(options.pack) };
    return { ...transport, serve: (options) => transport.serve(withWrappedPack(options)) };
  }

  private environment(runtime: VirtualRuntime): NodeEnvironment {
    const { world, network, id } = this;
    const interfaces = new InterfaceWatch(runtime, () => [
      { name: 'eth0', address: network.addressOf(id), internal: false },
    ]);
    const { openSlices: slices } = this.world;
    const trust = world.trust?.(runtime) ?? null;
    return {
      runtime,
      transport: this.transport(runtime, trust),
      trust,
      authority: null,
      interfaces,
      discovery: memoryDiscovery(network, id, runtime, interfaces),
      devices: world.devices(runtime),
      openPack: (directory, quality) => world.openPack(directory, runtime, quality),
      usePack: () => Promise.resolve(() => Promise.resolve()),
      readPredictor: world.readPredictor ?? readPredictor,
      slicesForQuality: world.slicesForQuality ?? slicesForQuality,
      openSlices: slices === undefined ? null : (pack) => slices(pack, runtime),
      openPrompts: ({ tokenizer }) => new InlinePromptEncoder(tokenizer, runtime),
      openFormats: () => null,
      createHttpServer: null,
      measureReads: null,
      chooseWeightForm: null,
      ownWorker: { start: startWorker, watch: (...said) => this.watchOwnWorker(...said) },
      dataDirectory: world.dataDirectory,
      openStoreFiles: world.openStoreFiles ?? openStoreFiles,
      openRecorder: world.openRecorder ?? openRecorder,
      versions: world.versions ?? RELEASE_VERSIONS,
    };
  }
}

/** Real work opens files at a time that the system decides, so a file may be recorded for a wrong process. */
const OWN_KINDS = LIVING_KINDS.filter((kind) => kind !== 'file');

const MOST_SEEDS = 2 ** 48;
