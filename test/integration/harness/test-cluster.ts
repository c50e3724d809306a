import type { ShadowPrecision } from '../../../shared/settings/setting-choices.js';
import type { RunningNode } from '../../../engine/daemon/running-node.js';
import type { Context } from 'mocha';
import { startMain } from '../../../main-node/main.js';
import type { RunningMain } from '../../../main-node/main.js';
import type { PackCodec } from '../../../packs/format/pack-codec.js';
import type { GenerateRequest, StatusReply } from '../../../shared/wire/messages.js';
import { startShadow } from '../../../shadow-node/main.js';
import { startWorker } from '../../../worker-node/main.js';
import { collect, type CollectedAnswer } from './answers.js';
import { TestLog } from './test-log.js';
import { packOf, type TestModel } from './test-models.js';
import { testSettings, type SettingsChanges } from './test-settings.js';
import { waitUntil } from './wait-until.js';
import { ENVIRONMENT, fetchStatus, generate } from '../../wall.js';

const STATUS_TIMEOUT_MS = 20_000;

export interface ClusterPlan {
  model?: TestModel;
  /** Codec of the model's pack. */
  codec?: PackCodec;
  /** Directory of another pack, which replaces the model's pack. */
  packDirectory?: string;
  workers: number;
  /** Precision of shadow's copy of the model. Absent: there is no shadow. */
  shadow?: ShadowPrecision;
  main?: SettingsChanges;
  /** Changes for worker number i. */
  worker?: (index: number) => SettingsChanges;
}

/** A whole cluster in this process, over real sockets. */
export class TestCluster {
  private readonly nodes = new Map<string, RunningNode>();

  private constructor(
    private readonly packDirectory: string,
    readonly main: RunningMain,
    readonly log: TestLog,
  ) {}

  get mainAddress(): string {
    return this.main.address;
  }

  /** Number of things that all nodes together hold open for requests. */
  openCount(): number {
    const counts = [...this.nodes.values()].flatMap((node) => Object.values(node.openCounts()));
    return counts.reduce((sum, count) => sum + count, 0);
  }

  static async start(plan: ClusterPlan): Promise<TestCluster> {
    const pack = plan.packDirectory ?? (await packOf(plan.model ?? 'tiny', plan.codec));
    const log = new TestLog();
    const main = await startMain(testSettings('main', pack, plan.main), ENVIRONMENT, log.logger('main'));
    const cluster = new TestCluster(pack, main, log);
    cluster.nodes.set('main', main);
    try {
      for (let index = 0; index < plan.workers; index++) {
        await cluster.addWorker(`worker-${index}`, plan.worker?.(index));
      }
      if (plan.shadow !== undefined) await cluster.addShadow('shadow', { precision: plan.shadow });
      await cluster.waitForRoster(plan.workers, plan.shadow === undefined ? 0 : 1);
      return cluster;
    } catch (thrown) {
      log.print();
      await cluster.stop();
      throw thrown;
    }
  }

  async addWorker(id: string, changes: SettingsChanges = {}): Promise<void> {
    const settings = testSettings('worker', this.packDirectory, { mainAddress: this.mainAddress, ...changes, id });
    this.nodes.set(id, await startWorker(settings, ENVIRONMENT, this.log.logger(id)));
  }

  async addShadow(id: string, changes: SettingsChanges = {}): Promise<void> {
    const settings = testSettings('shadow', this.packDirectory, { mainAddress: this.mainAddress, ...changes, id });
    this.nodes.set(id, await startShadow(settings, ENVIRONMENT, this.log.logger(id)));
  }

  async stopNode(id: string): Promise<void> {
    await this.nodes.get(id)?.stop();
    this.nodes.delete(id);
  }

  status(): Promise<StatusReply> {
    return fetchStatus(this.mainAddress, STATUS_TIMEOUT_MS);
  }

  async waitForRoster(workers: number, shadows: number): Promise<void> {
    await waitUntil(`${workers} workers and ${shadows} shadows are connected`, async () => {
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
    return collect(generate(this.mainAddress, request, signal), onToken);
  }

  /** Stops main, then the other nodes. Idempotent. */
  async stop(): Promise<void> {
    const nodes = [...this.nodes.values()];
    this.nodes.clear();
    for (const node of nodes) await node.stop();
  }
}

/** Stops the cluster; call this in afterEach. The log is printed if the test has failed. */
export async function stopCluster(context: Context, cluster: TestCluster | null): Promise<void> {
  if (context.currentTest?.state === 'failed') cluster?.log.print();
  await cluster?.stop();
}
