import assert from 'node:assert/strict';
import { join } from 'node:path';
import { servedHead } from '../../worker-node/loader/served-head.js';
import { headLayerOf, servableHead, withHeadLayer } from '../../engine/loading/head-layer.js';
import { HeadExperts, type HeadRoster } from '../../main-node/decode/head-experts.js';
import { openCheckpoint } from '../../packs/checkpoint/checkpoint.js';
import { packageRoot } from '../../shared/base/files/package-root.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { planPlacement } from '../../shared/decisions/placement/plan-placement.js';
import type { ModelShape } from '../../shared/model/model-shape.js';
import type { ModelSource } from '../../shared/model/tensor-source.js';
import { NO_TIMES } from '../../shared/wire/messages.js';
import type { ExecuteWork } from '../../main-node/cluster/placed-workers.js';
import { silentLog } from './worker-test-slots.js';

const FLOAT_BYTES = 4;
const source = await openCheckpoint(join(packageRoot(), 'test', 'fixtures', 'glm45'));
const { shape } = source;
const { hiddenSize, experts, expertsPerToken } = shape;

type Told = { servesDraftHead: boolean } | null;

/** A roster of workers whose output for a row is the expert's number in all places. */
class TestRoster {
  readonly asked: { id: string; work: ExecuteWork }[] = [];
  readonly ended: number[] = [];
  lost = new Set<string>();
  onExecute: (id: string) => void = () => undefined;
  private sequence = 100;

  constructor(private readonly told: Map<string, Told>) {}

  get roster(): HeadRoster {
    const workers = [...this.told.keys()].map((id) => ({ id, address: `${id}:1`, slots: 1 }));
    const placement = planPlacement({
      epoch: 3,
      workers,
      layers: shape.expertLayers,
      experts,
      expertsPerToken,
      groupSize: 1,
    });
    return {
      placement: workers.length === 0 ? null : placement,
      worker: (id) => (this.told.has(id) && !this.lost.has(id) ? this.workerOf(id) : null),
      endSequence: (sequence) => void this.ended.push(sequence),
      distrust: () => assert.fail('nobody lies'),
      outstanding: () => new Map(),
      waitForPlacement: () => Promise.reject(new OdmoeError('NO_WORKERS', 'nobody')),
      waitForChange: () => Promise.resolve(),
    };
  }

  get head(): HeadExperts {
    const nextSequence = (): number => (this.sequence += 1);
    const { roster } = this;
    return new HeadExperts({ roster, shape, spread: 'group', miniBatchRows: 4, nextSequence, log: silentLog });
  }

  private workerOf(id: string): ReturnType<HeadRoster['worker']> {
    const unused = (): never => assert.fail('nothing is announced');
    return {
      status: this.told.get(id) ?? null,
      execute: async (work, epoch, onPartialResult) => {
        assert.equal(epoch, 3);
        this.onExecute(id);
        if (this.lost.has(id)) throw new OdmoeError('WORKER_LOST', `${id} is gone`);
        this.asked.push({ id, work });
        const sent = work.hidden.byteLength / (hiddenSize * FLOAT_BYTES);
        onPartialResult(
          work.experts.map(({ expert, rows: own }) => {
            const rows = own.length === 0 ? sent : own.length;
            const output = Buffer.from(new Float32Array(rows * hiddenSize).fill(expert).buffer);
            return { expert, rows, output, failure: null, wasLoaded: true, stallUs: 0, executeUs: 0, ...NO_TIMES };
          }),
        );
      },
      sendAnnounce: unused,
      sendRelease: unused,
      sendEnd: unused,
    };
  }
}

/** Runs a layer of so many rows, of which row r chooses the experts r, r + 1 and so on. */
async function runRows(run: ReturnType<HeadExperts['begin']>['run'], rows: number): Promise<Float32Array> {
  const hidden = new Uint8Array(rows * hiddenSize * FLOAT_BYTES);
  const outputs = new Uint8Array(hidden.length * expertsPerToken);
  const chosen = Int32Array.from(
    { length: rows * expertsPerToken },
    (_, at) => (Math.floor(at / expertsPerToken) + (at % expertsPerToken)) % experts,
  );
  const weights = new Float32Array(chosen.length).fill(0.5);
  assert.equal(await run(0, { experts: chosen, weights }, { hidden, outputs }), weights);
  const values = new Float32Array(outputs.buffer);
  for (const [at, expert] of chosen.entries()) assert.equal(values[at * hiddenSize], expert);
  return values;
}

const SERVES: Told = { servesDraftHead: true };
const signal = new AbortController().signal;

describe("main: the experts of the model's own head at the workers", () => {
  it('run as those of the layer behind the last, each drafter under a number of its own and at positions that rise', async () => {
    const setting = new TestRoster(new Map(['a', 'b'].map((id) => [id, SERVES])));
    const { head } = setting;
    assert.equal(head.isServed, true);
    const runs = head.begin(signal);
    for (const rows of [7, 1, 1, 3]) await runRows(runs.run, rows);
    runs.end();
    const other = head.begin(signal);
    await runRows(other.run, 1);
    other.end();
    assert.deepEqual(setting.ended, [101, 102]);
    const passes = new Set(
      setting.asked.map(({ work: { layer, pass } }) => `${layer} ${pass.sequence} ${pass.position}`),
    );
    const layer = shape.expertLayers;
    assert.deepEqual(
      [...passes].sort(),
      [`${layer} 101 0`, `${layer} 101 7`, `${layer} 101 8`, `${layer} 101 9`, `${layer} 102 0`].sort(),
    );
  });

  it('are asked only of workers that say that they have them', async () => {
    const setting = new TestRoster(
      new Map<string, Told>([
        ['a', { servesDraftHead: false }],
        ['b', SERVES],
        ['c', null],
      ]),
    );
    await runRows(setting.head.begin(signal).run, 5);
    assert.deepEqual([...new Set(setting.asked.map(({ id }) => id))], ['b']);
  });

  it('go to another worker where one is lost, and fail at once where none is left', async () => {
    const setting = new TestRoster(new Map(['a', 'b', 'c'].map((id) => [id, SERVES])));
    const { run } = setting.head.begin(signal);
    setting.onExecute = (id) => void (id === 'c' || setting.lost.add(id));
    await runRows(run, 5);
    assert.ok(setting.asked.every(({ id }) => id === 'c'));
    setting.onExecute = (id) => void setting.lost.add(id);
    await assert.rejects(runRows(run, 1));
  });

  it('are nowhere without a worker, or without one that has them', async () => {
    for (const told of [
      new Map<string, Told>(),
      new Map<string, Told>([
        ['a', { servesDraftHead: false }],
        ['b', null],
      ]),
    ]) {
      const { head } = new TestRoster(told);
      assert.equal(head.isServed, false);
      await assert.rejects(runRows(head.begin(signal).run, 1), { code: 'NO_WORKERS' });
    }
  });
});

describe('the layer of a head that drafts', () => {
  it('is served where slots for the experts of the model hold those of the head', () => {
    const head = servableHead(source);
    assert.ok(head !== null);
    const served = withHeadLayer<ModelSource>(source, head);
    assert.equal(headLayerOf(shape), shape.expertLayers);
    assert.deepEqual(served.expert(headLayerOf(shape), 3), head.expert(0, 3));
    assert.deepEqual(served.expert(1, 3), source.expert(1, 3));
    assert.equal(withHeadLayer<ModelSource>(source, null), source);
  });

  it('is served by a worker whose settings do not leave it to main, as soon as all of the pack is there', () => {
    const pack = { source, sliced: null };
    const supply = { isPartial: true };
    for (const headExperts of ['auto', 'workers'] as const) {
      const served = servedHead(pack, supply, { headExperts });
      assert.deepEqual([served?.layer, served?.isHere], [headLayerOf(shape), false]);
    }
    assert.equal(servedHead(pack, { isPartial: false }, { headExperts: 'auto' })?.isHere, true);
    assert.equal(servedHead(pack, supply, { headExperts: 'main' }), null);
  });

  it('is not served where there is no head, or one with experts of another form', () => {
    const { draftHead } = source;
    assert.ok(draftHead !== null && draftHead !== undefined);
    const changed = (changes: Partial<ModelShape>): ModelSource => ({
      ...source,
      draftHead: { ...draftHead, shape: { ...draftHead.shape, ...changes } },
    });
    assert.equal(servableHead({ ...source, draftHead: null }), null);
    assert.equal(servableHead(changed({ experts: experts + 1 })), null);
    assert.equal(servableHead(changed({ hiddenSize: hiddenSize * 2 })), null);
    assert.equal(servableHead(changed({ expert: { ...shape.expert, intermediateSize: 8 } })), null);
    const expert: ModelSource['expert'] = (layer, index) => {
      const { gate, ...others } = draftHead.expert(layer, index);
      return { ...others, gate: { ...gate, split: 'fp32-e8-sm8-r16' } };
    };
    assert.equal(servableHead({ ...source, draftHead: { ...draftHead, expert } }), null);
  });
});
