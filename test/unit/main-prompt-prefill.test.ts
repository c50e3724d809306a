import assert from 'node:assert/strict';
import type { Pass, Sequence } from '../../native/index.js';
import { ExpertDispatcher } from '../../main-node/pass/expert-dispatcher.js';
import { RequestCounters } from '../../main-node/pass/pass-engine.js';
import { PassPool } from '../../main-node/pass/pass-pool.js';
import { PromptPrefill } from '../../main-node/prefill/prompt-prefill.js';
import type { LayerWork, PlacedWorkers, WorkerOrders } from '../../main-node/cluster/placed-workers.js';
import { planPlacement } from '../../shared/placement/plan-placement.js';
import { rowCount } from '../../shared/rpc/pass-rows.js';
import { plainShape } from './plain-shape.js';
import { ToldWorkers } from './told-workers.js';
import { silentLog } from './worker-test-slots.js';

const SHAPE = plainShape({ expertLayers: 2, vocabSize: 4 });
/** So many rows are expected to use 15 of 16 experts; one row less, 7 of 8. */
const PREFILL_ROWS = 4;
const FEWER_ROWS = 3;

/** Workers that run whatever they are sent, at once. */
class RunningWorkers extends ToldWorkers implements PlacedWorkers {
  readonly works: [id: string, work: LayerWork][] = [];
  /** Experts that a worker was asked for before it was told of them. */
  readonly untold: number[] = [];

  override worker(id: string): WorkerOrders {
    return {
      ...super.worker(id),
      execute: async (work, _epoch, onPart) => {
        this.works.push([id, work]);
        const told = this.predictions.filter(
          ([to, { pass, layer }]) => to === id && pass.position === work.pass.position && layer === work.layer,
        );
        const known = told.flatMap(([, { experts }]) => experts);
        this.untold.push(...work.experts.map(({ expert }) => expert).filter((expert) => !known.includes(expert)));
        const results = work.experts.map(({ expert, rows: indexes }) => {
          const rows = indexes.length === 0 ? rowCount(work.rows) : indexes.length;
          const times = { wasLoaded: true, stallUs: 0, executeUs: 0 };
          return { expert, rows, ...times, output: new Uint8Array(4 * rows), failure: null };
        });
        onPart(results);
      },
    };
  }

  outstanding(): Map<string, number> {
    return new Map();
  }

  waitForPlacement(): Promise<never> {
    return Promise.reject(new Error('there is a placement'));
  }

  waitForChange(): Promise<void> {
    return Promise.reject(new Error('no worker has failed'));
  }
}

/** A pass whose router chooses experts 0 and 1 for every row. */
function passOf(): Pass {
  let rows = 0;
  return {
    begin: async (_sequences: Sequence[], owners: Int32Array) => void (rows = owners.length),
    attend: async () => ({
      experts: Int32Array.from({ length: 2 * rows }, (_, index) => index % 2),
      weights: new Float32Array(2 * rows),
    }),
    combine: async () => undefined,
    logits: async () => new Float32Array(SHAPE.vocabSize),
    dispose: () => undefined,
  } as unknown as Pass;
}

async function prefill(
  tokens: number,
  prefillOverlap: boolean,
  prefillRows = PREFILL_ROWS,
): Promise<{ workers: RunningWorkers; written: string[] }> {
  const ids = ['a', 'b', 'c', 'd'].map((id) => ({ id, address: '', slots: 1 }));
  const { expertLayers: layers, experts, expertsPerToken } = SHAPE;
  const workers = new RunningWorkers(
    planPlacement({ epoch: 1, workers: ids, layers, experts, expertsPerToken, groupSize: 'auto' }),
  );
  const written: string[] = [];
  const pool = new PassPool({ createPass: passOf }, SHAPE, prefillRows, 1);
  const run = new PromptPrefill(
    {
      ...{ shape: SHAPE, roster: workers, dispatcher: new ExpertDispatcher(workers, 10, silentLog), prefillOverlap },
      ...{ prefillPasses: pool, prefillRows, miniBatchRows: 2 },
    },
    {
      ...{ id: 7, sequence: {} as Sequence, counters: new RequestCounters(), signal: new AbortController().signal },
      onPrefill: () => undefined,
      feed: {
        layerWritten: (layer, end) => void written.push(`${layer} to ${end}`),
        allWritten: (end) => void written.push(`all to ${end}`),
      },
    },
  );
  await run.run(Array.from({ length: tokens }, (_, index) => index));
  return { workers, written };
}

describe("main: a prompt's prefill", () => {
  it('announces each layer of each pass as it executes it, and nothing behind the last', async () => {
    const { workers, written } = await prefill(9, true);
    const announced = new Set(
      workers.predictions.map(([, { pass, rows, layer }]) => JSON.stringify([pass, rows, layer])),
    );
    const executed = new Set(workers.works.map(([, { pass, layer }]) => JSON.stringify([pass.position, layer])));
    assert.deepEqual(
      [...announced],
      [
        [0, 4],
        [4, 4],
        [8, 1],
      ].flatMap(([position, rows]) =>
        [0, 1].map((layer) => JSON.stringify([{ sequence: 7, position }, [{ sequence: 7, position, rows }], layer])),
      ),
    );
    assert.equal(executed.size, announced.size);
    const passes = [4, 8, 9].flatMap((end) => [`0 to ${end}`, `1 to ${end}`, `all to ${end}`]);
    assert.deepEqual(written, passes);
  });

  it('releases what was announced and no row asks for, at the worker that was told', async () => {
    const { workers } = await prefill(4, true);
    const told = workers.predicted.flatMap((text) => {
      const [worker, place, experts] = text.split(' ');
      return (experts ?? '').split(',').map((expert) => `${worker} ${place} ${expert}`);
    });
    const asked = workers.works.flatMap(([id, { pass, layer, experts }]) =>
      experts.map(({ expert }) => `${id} ${pass.position}/${layer} ${expert}`),
    );
    const unused = told.filter((expert) => !asked.includes(expert)).sort();
    assert.ok(unused.length > 0);
    assert.deepEqual([...workers.released].sort(), unused);
  });

  it('announces what rows use, and that before it is asked for, where a pass is not expected to use nearly all experts', async () => {
    const { workers } = await prefill(6, true, FEWER_ROWS);
    const told = workers.predicted.flatMap((text) => {
      const [worker, place, experts] = text.split(' ');
      return (experts ?? '').split(',').map((expert) => `${worker} ${place} ${expert}`);
    });
    const asked = workers.works.flatMap(([id, { pass, layer, experts }]) =>
      experts.map(({ expert }) => `${id} ${pass.position}/${layer} ${expert}`),
    );
    assert.ok(asked.length > 0);
    assert.deepEqual([...told].sort(), [...new Set(asked)].sort());
    assert.deepEqual(workers.released, []);
    assert.deepEqual(workers.untold, []);
  });

  it('says with the last message for an expert that it is the last', async () => {
    for (const overlap of [true, false]) {
      const { workers } = await prefill(3, overlap);
      const messages = workers.works.flatMap(([id, { layer, experts }]) =>
        experts.map(({ expert, last }) => ({ key: `${id} ${layer} ${expert}`, last })),
      );
      for (const [index, { key, last }] of messages.entries()) {
        const followed = messages.slice(index + 1).some((later) => later.key === key);
        assert.equal(last, !followed, key);
      }
    }
  });

  it('without overlap announces nothing', async () => {
    const { workers } = await prefill(7, false);
    assert.deepEqual([workers.predictions, workers.releases], [[], []]);
  });
});
