import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Context } from 'mocha';
import type { DevicePace } from '../../engine/emulation/device-pace.js';
import { openServedPack } from '../../packs/open-served-pack.js';
import type { RoleSetting } from '../../shared/settings/setting-choices.js';
import type { OperatorTime } from '../../engine/emulation/device-profile.js';
import { toOdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { Transport } from '../../shared/transport/transport.js';
import { METHODS } from '../../shared/transport/methods.js';
import type { DrainedNode, GenerateRequest, StatusReply } from '../../shared/wire/messages.js';
import { type NodeVersions, RELEASE_VERSIONS } from '../../shared/wire/versions.js';
import { SeededRandom } from '../../shared/base/runtime/seeded-random.js';
import { VirtualRuntime } from '../../shared/base/runtime/virtual-runtime.js';
import { SimulatedCluster } from '../../simulator/cluster/simulated-cluster.js';
import type { NodeWorld, SimulatedNode } from '../../simulator/cluster/simulated-node.js';
import { HANDLE_KINDS } from '../../simulator/faults/device-handles.js';
import { DEVICE_BYTES } from '../../simulator/faults/draw-budget.js';
import { DeviceFaults } from '../../simulator/faults/faulty-device.js';
import { DrawnLinks } from '../../simulator/network/link-model.js';
import { memoryTransport } from '../../simulator/network/memory-transport.js';
import { collect, type CollectedAnswer } from '../integration/harness/answers.js';
import type { ClusterPlan } from '../integration/harness/test-cluster.js';
import { TestLog } from '../integration/harness/test-log.js';
import { packOf } from '../integration/harness/test-models.js';
import { testSettings, type SettingsChanges } from '../integration/harness/test-settings.js';
import { generate, fetchStatus } from '../../shared/transport/node-clients.js';

const PORT = 7600;
const MAIN_ADDRESS = `main:${PORT}`;
/** Times are on the virtual clock. */
const POLL_MS = 5;
export const VIRTUAL_LIMIT_MS = 60_000;
/** Time after the end of an answer in which all work that is still under way ends. */
const SETTLE_MS = 200;
/** Most events of one wait. More of them mean an endless loop. */
const EVENT_LIMIT = 3_000_000;
const SEED = 1;
const LINK = { latencyMs: 0.1, jitterMs: 0, bytesPerMs: 100_000 };
const operator = (ms: number): OperatorTime => ({ overheadMs: ms, weightsMs: 0, rowMs: ms / 10 });
const timesOf = (layerMs: number): DevicePace['times'] => ({
  attendLayers: [[{ ...operator(layerMs), context: [] }]],
  layersBehind: [],
  router: operator(0),
  expert: operator(layerMs),
  lmHead: operator(layerMs / 3),
  loadMs: 1,
  exponentShare: 0.4,
  recoverMs: 0,
});
const TIMES = timesOf(0.3);
/** Times of shadow. It has all experts in its memory and is ahead of main. */
const SHADOW_TIMES = timesOf(0.03);

/**
 * A whole cluster on a virtual clock and an in-memory network. It runs the daemons' own code and real arithmetic. Virtual time passes only
 * while a test waits for one of the promises that this class returns.
 */
export class VirtualCluster {
  readonly log = new TestLog();
  readonly mainAddress = MAIN_ADDRESS;
  readonly simulated = new SimulatedCluster({
    links: () => new DrawnLinks(new SeededRandom(SEED), LINK),
    seed: SEED,
  });
  private readonly directory = mkdtempSync(join(tmpdir(), 'odmoe-virtual-'));
  private readonly devices = new Map<string, DeviceFaults>();
  private readonly client: { runtime: VirtualRuntime; transport: Transport };
  private waiting = 0;
  private settled = 0;
  private isPassing = false;
  private fail: (error: unknown) => void = () => undefined;
  private readonly failed = new Promise<never>((_, reject) => {
    this.fail = reject;
  });

  private constructor(
    private readonly packDirectory: string,
    /** Versions of the nodes of another release, by id. A change counts from the node's next start on. */
    readonly versions: Map<string, NodeVersions>,
  ) {
    this.failed.catch(() => undefined);
    this.client = this.host('client');
  }

  static async start(plan: ClusterPlan & { versions?: Map<string, NodeVersions> }): Promise<VirtualCluster> {
    const cluster = new VirtualCluster(
      plan.packDirectory ?? (await packOf(plan.model ?? 'tiny', plan.codec)),
      plan.versions ?? new Map<string, NodeVersions>(),
    );
    try {
      await cluster.add('main', 'main', plan.main);
      const indices = Array.from({ length: plan.workers }, (_, index) => index);
      await Promise.all(indices.map((index) => cluster.addWorker(`worker-${index}`, plan.worker?.(index))));
      if (plan.shadow !== undefined)
        await cluster.addShadow('shadow', { main: plan.main?.main ?? {}, precision: plan.shadow });
      await cluster.waitForRoster(plan.workers, plan.shadow === undefined ? 0 : 1);
      return cluster;
    } catch (thrown) {
      cluster.log.print();
      await cluster.dispose();
      throw thrown;
    }
  }

  /** Adds another host to this network: a client, or a peer that a test scripts. */
  host(name: string, patienceMs?: number): { runtime: VirtualRuntime; transport: Transport } {
    const runtime = new VirtualRuntime(this.simulated.clock, SEED);
    return { runtime, transport: memoryTransport(this.simulated.network, name, runtime, { patienceMs }) };
  }

  addWorker(id: string, changes: SettingsChanges = {}): Promise<void> {
    return this.add('worker', id, { mainAddress: MAIN_ADDRESS, ...changes });
  }

  addShadow(id: string, changes: SettingsChanges = {}): Promise<void> {
    return this.add('shadow', id, { mainAddress: MAIN_ADDRESS, ...changes });
  }

  /** Starts a daemon. Resolves when the daemon is ready, and rejects with the reason if it fails to start. */
  async add(role: RoleSetting, id: string, changes: SettingsChanges = {}): Promise<void> {
    const stateDirectory = join(this.directory, id, 'state');
    const settings = testSettings(role, this.packDirectory, { stateDirectory, ...changes, id });
    const node = this.simulated.add({ ...settings, listenHost: '0.0.0.0', listenPort: PORT }, this.worldOf(role, id));
    await this.startAgain(node.id);
  }

  /** Starts a node that was killed or stopped. */
  async startAgain(id: string): Promise<void> {
    const node = this.node(id);
    node.start();
    await this.waitUntil(`${id} runs`, () => {
      if (node.failure !== null) throw node.failure;
      return node.isReady;
    });
  }

  node(id: string): SimulatedNode {
    return this.simulated.node(id);
  }

  /** The open handles of the node's devices, and the faults of these devices. */
  deviceOf(id: string): DeviceFaults {
    return this.devices.get(id) ?? assert.fail(`no devices of ${id}`);
  }

  /** Stops the node in order, as SIGTERM does. */
  async stopNode(id: string): Promise<void> {
    await this.passing(this.node(id).stop());
    this.simulated.nodes.delete(id);
  }

  status(): Promise<StatusReply> {
    return this.passing(fetchStatus(this.client.transport, MAIN_ADDRESS, VIRTUAL_LIMIT_MS));
  }

  /** What `odmoe drain ID` asks main. */
  async drain(id: string, undo = false): Promise<DrainedNode | null> {
    const timeoutMs = VIRTUAL_LIMIT_MS;
    const asked = this.client.transport.call(MAIN_ADDRESS, METHODS.operator.drain, { id, undo }, { timeoutMs });
    return (await this.passing(asked)).node;
  }

  async waitForRoster(workers: number, shadows: number): Promise<void> {
    await this.waitUntil(`${workers} workers and ${shadows} shadows are connected`, async () => {
      const { nodes, placement } = await this.status();
      const connected = nodes.filter(({ identity }) => identity.role === 'ROLE_SHADOW').length;
      return (placement?.workers.length ?? 0) === workers && connected === shadows;
    });
  }

  ask(
    request: GenerateRequest,
    signal?: AbortSignal,
    onToken?: (count: number) => void | Promise<void>,
  ): Promise<CollectedAnswer> {
    return this.passing(collect(generate(this.client.transport, MAIN_ADDRESS, request, signal), onToken));
  }

  /** Asks as an HTTP client does: it waits as long as its connection is open, even if main sends nothing for a long time. */
  patiently(request: GenerateRequest, onToken?: (count: number) => void): Promise<CollectedAnswer> {
    const { transport } = this.host('patient-client', Infinity);
    return this.passing(collect(generate(transport, MAIN_ADDRESS, request), onToken));
  }

  get nowMs(): number {
    return this.simulated.clock.nowMs;
  }

  /** Polls the condition in virtual time. Rejects with an error that names the condition if it does not hold in time. */
  async waitUntil(what: string, condition: () => boolean | Promise<boolean>): Promise<void> {
    const { clock } = this.simulated;
    const deadlineMs = clock.nowMs + VIRTUAL_LIMIT_MS;
    while (!(await condition())) {
      if (clock.nowMs > deadlineMs) throw new Error(`waited ${VIRTUAL_LIMIT_MS} virtual ms in vain until ${what}`);
      await this.sleep(POLL_MS);
    }
  }

  sleep(virtualMs: number): Promise<void> {
    return this.passing(this.client.runtime.sleep(virtualMs));
  }

  /** Lets virtual time pass until the promise has settled. It may be called for several promises at the same time. */
  passing<Result>(promise: Promise<Result>): Promise<Result> {
    this.waiting += 1;
    const settles = promise.finally(() => {
      this.waiting -= 1;
      this.settled += 1;
    });
    settles.catch(() => undefined);
    void this.pass();
    return Promise.race([settles, this.failed]);
  }

  /** Stops main, then the other nodes, after work under way has ended. Fails if a node leaves anything open. Idempotent. */
  async stop(): Promise<void> {
    try {
      await this.sleep(SETTLE_MS);
      for (const { id, isAlive, runtime } of [...this.simulated.nodes.values()]) {
        if (!isAlive) continue;
        await this.stopNode(id);
        assert.deepEqual(runtime.openCounts, { timers: 0, turns: 0, works: 0 }, `${id} has left something open`);
        const { handles } = this.deviceOf(id);
        const open = HANDLE_KINDS.filter((kind) => handles[kind] > 0);
        assert.deepEqual(open, [], `${id} has left native handles`);
      }
    } finally {
      await this.dispose();
    }
  }

  private async pass(): Promise<void> {
    if (this.isPassing) return;
    this.isPassing = true;
    try {
      while (this.waiting > 0) {
        const before = this.settled;
        await this.simulated.clock.run(() => this.settled > before, { events: EVENT_LIMIT });
      }
    } catch (thrown) {
      this.fail(thrown);
    } finally {
      this.isPassing = false;
    }
  }

  private async dispose(): Promise<void> {
    for (const node of this.simulated.nodes.values()) if (node.isAlive) node.kill();
    this.simulated.nodes.clear();
    for (const device of this.devices.values()) await device.disposeAll();
    this.devices.clear();
    rmSync(this.directory, { recursive: true, force: true });
  }

  private worldOf(role: RoleSetting, id: string): NodeWorld {
    const { loadMs, ...operations } = role === 'shadow' ? SHADOW_TIMES : TIMES;
    const faults = this.devices.get(id) ?? new DeviceFaults(toOdmoeError);
    this.devices.set(id, faults);
    const times: DevicePace['times'] = {
      ...operations,
      get loadMs() {
        return loadMs * faults.readSlowness;
      },
    };
    const { versions } = this;
    return {
      get versions() {
        return versions.get(id) ?? RELEASE_VERSIONS;
      },
      devices: (runtime) =>
        faults.devices(runtime, (budgetBytes) => ({ times, memory: { bytes: DEVICE_BYTES, budgetBytes } })),
      openPack: (directory, runtime, quality) => runtime.outside(() => openServedPack(directory, quality)),
      dataDirectory: join(this.directory, id, 'data'),
      log: this.log.logger(id),
      seed: SEED,
    };
  }
}

/** Stops the cluster; call this in afterEach. The log is printed if the test has failed. */
export async function stopVirtualCluster(context: Context, cluster: VirtualCluster | null): Promise<void> {
  if (context.currentTest?.state === 'failed') cluster?.log.print();
  await cluster?.stop();
}
