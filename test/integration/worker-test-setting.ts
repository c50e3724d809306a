import type { RunningNode } from '../../engine/daemon/running-node.js';
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { expertShape } from '../../engine/loading/expert-shape.js';
import { allExperts } from '../../shared/model/part-sizes.js';
import { openModelSource } from '../../packs/open-model-source.js';
import { FROM_STORAGE, PLAIN_LOADER, openDevice, type Device, type ExpertSlots } from '../../native/index.js';
import { packageRoot } from '../../shared/base/files/package-root.js';
import type { ModelShape } from '../../shared/model/model-shape.js';
import type { ModelSource } from '../../shared/model/tensor-source.js';
import type { NodeIdentity, Placement } from '../../shared/wire/messages.js';
import { startWorker } from '../../worker-node/main.js';
import { TestLog } from './harness/test-log.js';
import { packOf } from './harness/test-models.js';
import { testSettings, type SettingsChanges } from './harness/test-settings.js';
import { WorkerTestClient } from './worker-test-client.js';
import { ENVIRONMENT } from '../wall.js';

export const MAX_ROWS = 64;
export const CHECKPOINT = join(packageRoot(), 'test/fixtures/mixtral');
export const placement = (epoch: number): Placement => ({
  epoch,
  layers: 4,
  experts: 8,
  expertsPerToken: 2,
  homes: 0,
  spread: false,
  workers: [{ id: 'worker', address: 'worker:1', slots: 1 }],
  groups: [{ workerIds: ['worker'] }],
});

/** Hidden states that differ from row to row. */
export function hiddenStates(rows: number, hiddenSize: number, seed = 1): Uint8Array {
  const values = Float32Array.from({ length: rows * hiddenSize }, (_, index) => Math.sin(seed + index * 0.37));
  return new Uint8Array(values.buffer);
}

/** Runs the experts of the checkpoint (not of the pack) on a separate device. A worker's outputs must equal these to the bit. */
export class ReferenceExperts {
  private constructor(
    readonly source: ModelSource,
    private readonly device: Device,
    private readonly slots: ExpertSlots,
  ) {}

  static async open(): Promise<ReferenceExperts> {
    const source = await openModelSource(CHECKPOINT);
    const device = openDevice({ backend: 'cpu', instructionSet: 'auto', threads: 1, budgetBytes: 0 });
    const shape = expertShape(source.shape, null, () => allExperts(source));
    return new ReferenceExperts(source, device, device.createExpertSlots(shape, 1, MAX_ROWS, PLAIN_LOADER));
  }

  async run(layer: number, expert: number, hidden: Uint8Array): Promise<Buffer> {
    await this.slots.load(0, this.slots.register(this.source.expert(layer, expert)), FROM_STORAGE);
    const output = Buffer.alloc(hidden.length);
    await this.slots.execute(0, hidden.length / (this.source.shape.hiddenSize * 4), hidden, output);
    return output;
  }

  close(): void {
    this.slots.dispose();
    this.device.dispose();
  }
}

/** Workers, their peers and a reference for the tests of one describe block; everything is closed after each test. */
export class WorkerSetting {
  readonly network = testSettings('worker', '/nowhere').network;
  log = new TestLog();
  pack = '';
  private readonly nodes: RunningNode[] = [];
  private readonly clients: WorkerTestClient[] = [];
  private ownReference: ReferenceExperts | null = null;

  /** Call this in a describe: it registers hooks. */
  constructor() {
    before(async () => {
      this.pack = await packOf('tiny');
      this.ownReference = await ReferenceExperts.open();
    });
    after(() => this.ownReference?.close());
    beforeEach(() => (this.log = new TestLog()));
    const closeAll = async (failed: boolean): Promise<void> => {
      for (const client of this.clients.splice(0)) await client.close();
      for (const node of this.nodes.splice(0)) await node.stop();
      if (failed) this.log.print();
    };
    afterEach(function () {
      return closeAll(this.currentTest?.state === 'failed');
    });
  }

  get reference(): ReferenceExperts {
    return this.ownReference ?? assert.fail('the reference is there only while a test runs');
  }

  get shape(): ModelShape {
    return this.reference.source.shape;
  }

  async start(changes: SettingsChanges = {}, directory = this.pack, environment = ENVIRONMENT): Promise<RunningNode> {
    const settings = testSettings('worker', directory, { id: 'worker', ...changes });
    const node = await startWorker(settings, environment, this.log.logger('worker'));
    this.nodes.push(node);
    return node;
  }

  async connect(node: RunningNode, changes: Partial<NodeIdentity> = {}): Promise<WorkerTestClient> {
    const client = await WorkerTestClient.connect(node.address, this.network, changes);
    this.clients.push(client);
    return client;
  }

  connectShadow(node: RunningNode): Promise<WorkerTestClient> {
    return this.connect(node, { id: 'shadow', role: 'ROLE_SHADOW' });
  }

  /** Connects a main and publishes a placement that is newer than all before it. The first one has epoch 1. */
  async connectMain(node: RunningNode): Promise<WorkerTestClient> {
    const main = await this.connect(node);
    main.place(placement(main.epoch + 1));
    return main;
  }
}
