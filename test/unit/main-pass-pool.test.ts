import assert from 'node:assert/strict';
import { ResidualStates, ReusablePasses, type ReusablePass } from '../../main-node/pass/reusable-passes.js';
import type { Pass } from '../../native/index.js';

const SHAPE = { hiddenSize: 4, expertsPerToken: 2 };

function poolOf(count: number) {
  const events: string[] = [];
  const pool = new ReusablePasses(
    {
      createPass: () => {
        events.push('created');
        return { dispose: () => events.push('disposed') } as unknown as Pass;
      },
    },
    SHAPE,
    1,
    count,
  );
  return { pool, events };
}

/** A use of the pool that holds its pass until the test releases it. */
function hold(pool: ReusablePasses, signal = new AbortController().signal) {
  let letGo: (failure?: Error) => void = () => undefined;
  let slot: ReusablePass | null = null;
  const done = pool.use(signal, (given) => {
    slot = given;
    return new Promise<void>((resolve, reject) => {
      letGo = (failure) => (failure === undefined ? resolve() : reject(failure));
    });
  });
  return { done, slot: () => slot, letGo: (failure?: Error) => letGo(failure) };
}

const turn = () => new Promise((resolve) => setImmediate(resolve));

describe('main: the pool of passes', () => {
  it('gives a pass to one user at a time, and the same one again', async () => {
    const { pool, events } = poolOf(1);
    const first = hold(pool);
    const second = hold(pool);
    await turn();
    assert.ok(first.slot() !== null);
    assert.equal(second.slot(), null);
    first.letGo();
    await first.done;
    await turn();
    assert.equal(second.slot(), first.slot());
    second.letGo();
    await second.done;
    assert.deepEqual(events, ['created']);
  });

  it('discards a pass that saw an error, and creates another', async () => {
    const { pool, events } = poolOf(1);
    const failing = hold(pool);
    await turn();
    failing.letGo(new Error('broken'));
    await assert.rejects(failing.done, /broken/);
    await pool.use(new AbortController().signal, async () => undefined);
    assert.deepEqual(events, ['created', 'disposed', 'created']);
  });

  it('frees a pass in use when the disposed pool gets it back', async () => {
    const { pool, events } = poolOf(2);
    const [idle, used] = [hold(pool), hold(pool)];
    await turn();
    idle.letGo();
    await idle.done;
    pool.dispose();
    assert.deepEqual(events, ['created', 'created', 'disposed']);
    used.letGo();
    await used.done;
    assert.deepEqual(events, ['created', 'created', 'disposed', 'disposed']);
  });

  it('drops a user that is cancelled while it waits, before any pass is free', async () => {
    const { pool } = poolOf(1);
    const first = hold(pool);
    const cancelled = new AbortController();
    const waiting = hold(pool, cancelled.signal);
    await turn();
    cancelled.abort();
    await assert.rejects(waiting.done, { code: 'CANCELLED' });
    first.letGo();
    await first.done;
  });

  it('passes on the turn of a user that is cancelled when its turn has just come', async () => {
    // The next turn comes some microtasks after the release of the pass. The cancellation is tried before, between and after them.
    for (let microtasks = 0; microtasks < 8; microtasks++) {
      const { pool } = poolOf(1);
      const first = hold(pool);
      const cancelled = new AbortController();
      const second = hold(pool, cancelled.signal);
      second.done.catch(() => undefined);
      const third = hold(pool);
      await turn();
      first.letGo();
      for (let passed = 0; passed < microtasks; passed++) await Promise.resolve();
      cancelled.abort();
      await turn();
      second.letGo();
      await turn();
      assert.ok(
        third.slot() !== null,
        `cancelled after ${microtasks} microtasks, the third waits though no pass is taken`,
      );
      third.letGo();
      await third.done;
    }
  });
});

describe('main: the states that layers meet', () => {
  it('are taken at once for few rows, and on another thread for more', async () => {
    const taken = async (rows: number): Promise<string[]> => {
      const calls: string[] = [];
      await new ResidualStates(1).take(
        {
          residual: async () => {
            calls.push('aside');
          },
          residualHere: () => {
            calls.push('here');
            return true;
          },
        },
        rows,
      );
      return calls;
    };
    assert.deepEqual([await taken(1), await taken(4), await taken(5)], [['here'], ['here'], ['aside']]);
  });

  it('lie in one buffer for all passes, which grows with their rows', async () => {
    const states = new ResidualStates(2);
    const pass = { residual: async (values: Float32Array) => void values.fill(values.length) };
    const first = await states.take(pass, 8);
    assert.deepEqual(first, new Float32Array(16).fill(16));
    const second = await states.take(pass, 3);
    assert.deepEqual(second, new Float32Array(6).fill(6));
    assert.equal(second.buffer, first.buffer);
    assert.equal((await states.take(pass, 9)).length, 18);
  });
});
