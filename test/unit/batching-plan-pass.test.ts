import assert from 'node:assert/strict';
import fc from 'fast-check';
import { ClientShares } from '../../main-node/batching/pass-loop.js';
import { LEAST_PROMPT_CHUNK_ROWS, planMainPass, type ReadyMember } from '../../main-node/batching/plan-pass.js';

const NOTHING = new Map<string, number>();

function member(changes: Partial<ReadyMember> = {}): ReadyMember {
  return { client: '', written: 0, end: 1, decodeFrom: 0, lastPass: 0, ...changes };
}

/** An answer whose next token is due, with drafts behind it. */
function answer(rows = 1, lastPass = 0): ReadyMember {
  return member({ written: 10, end: 10 + rows, decodeFrom: 10, lastPass });
}

function prompt(rows: number, client = '', lastPass = 0): ReadyMember {
  return member({ client, end: rows, decodeFrom: rows, lastPass });
}

function rowsOf(
  ready: readonly ReadyMember[],
  budget: { maxRows: number; promptChunkRows: number },
  served: ReadonlyMap<string, number> = NOTHING,
): number[] {
  const planned = planMainPass(ready, served, budget);
  return ready.map((one) => planned.find((plan) => plan.member === one)?.rows ?? 0);
}

describe('batching: the rows of a pass', () => {
  it('are those of all answers with their drafts, then a prompt chunk', () => {
    const ready = [prompt(100), answer(1), answer(4)];
    assert.deepEqual(rowsOf(ready, { maxRows: 64, promptChunkRows: 16 }), [16, 1, 4]);
    assert.deepEqual(rowsOf(ready, { maxRows: 20, promptChunkRows: 64 }), [15, 1, 4]);
  });

  it('lose drafts before tokens where they are too many, and the rest is dealt one by one', () => {
    assert.deepEqual(rowsOf([answer(4), answer(1), answer(4)], { maxRows: 5, promptChunkRows: 8 }), [2, 1, 2]);
    assert.deepEqual(rowsOf([answer(4), answer(4)], { maxRows: 2, promptChunkRows: 8 }), [1, 1]);
  });

  it('are taken in turns where there are more answers than rows', () => {
    assert.deepEqual(rowsOf([answer(1, 3), answer(1, 1), answer(1, 2)], { maxRows: 2, promptChunkRows: 8 }), [0, 1, 1]);
  });

  it('include some for prompts, however many answers and drafts there are', () => {
    const answers = Array.from({ length: 32 }, () => answer(4));
    const rows = rowsOf([...answers, prompt(100)], { maxRows: 32, promptChunkRows: LEAST_PROMPT_CHUNK_ROWS });
    assert.equal(rows.at(-1), LEAST_PROMPT_CHUNK_ROWS);
    assert.deepEqual(rowsOf([answer(1, 5), prompt(9, '', 4)], { maxRows: 1, promptChunkRows: 8 }), [0, 1]);
    assert.deepEqual(rowsOf([answer(1, 4), prompt(9, '', 5)], { maxRows: 1, promptChunkRows: 8 }), [1, 0]);
  });

  it('come from the first prompt of the least served client, then from the next where there is room', () => {
    const ready = [prompt(100, 'a'), prompt(5, 'b'), prompt(7, 'b')];
    assert.deepEqual(rowsOf(ready, { maxRows: 64, promptChunkRows: 20 }, new Map([['a', 50]])), [8, 5, 7]);
    assert.deepEqual(rowsOf(ready, { maxRows: 64, promptChunkRows: 20 }, new Map([['b', 50]])), [20, 0, 0]);
  });

  it('stay within the budget, each at most once, at least one, and no draft without its token', () => {
    const ready = fc.array(
      fc
        .record({
          client: fc.constantFrom('a', 'b', 'c'),
          written: fc.nat(20),
          rows: fc.integer({ min: 1, max: 40 }),
          decodeFrom: fc.nat(40),
          lastPass: fc.nat(9),
        })
        .map(({ rows, ...drawn }) => ({ ...drawn, end: drawn.written + rows })),
      { minLength: 1, maxLength: 20 },
    );
    const budget = fc.record({
      maxRows: fc.integer({ min: 1, max: 64 }),
      promptChunkRows: fc.integer({ min: 1, max: 64 }),
    });
    fc.assert(
      fc.property(ready, budget, (members, { maxRows, promptChunkRows }) => {
        const planned = planMainPass(members, NOTHING, { maxRows, promptChunkRows });
        assert.ok(planned.length > 0);
        assert.equal(new Set(planned.map((plan) => plan.member)).size, planned.length);
        for (const { member: one, rows } of planned) assert.ok(rows >= 1 && rows <= one.end - one.written);
        const sum = (of: readonly { rows: number }[]): number => of.reduce((total, { rows }) => total + rows, 0);
        const promptChunks = planned.filter(({ member: one }) => one.written < one.decodeFrom);
        assert.ok(sum(planned) <= maxRows && sum(promptChunks) <= promptChunkRows);
      }),
    );
  });

  it('reach every client, however many requests others send', () => {
    const waiting = fc.array(
      fc.record({ client: fc.constantFrom('a', 'b', 'c'), rows: fc.integer({ min: 1, max: 30 }) }),
      {
        minLength: 1,
        maxLength: 8,
      },
    );
    const budget = fc.record({
      maxRows: fc.integer({ min: 1, max: 12 }),
      promptChunkRows: fc.integer({ min: 1, max: 12 }),
    });
    fc.assert(
      fc.property(waiting, fc.nat(20), budget, (prompts, answers, limits) => {
        assert.deepEqual(unfinishedAfter(prompts, answers, limits), []);
      }),
      { numRuns: 50 },
    );
  });
});

/** Prompts that have not run after many passes, while answers never end and one client always sends another prompt. */
function unfinishedAfter(
  prompts: readonly { client: string; rows: number }[],
  answers: number,
  limits: { maxRows: number; promptChunkRows: number },
): unknown[] {
  const shares = new ClientShares();
  let ready = [
    ...Array.from({ length: answers }, () => ({ ...answer(3), isGreedy: true })),
    ...prompts.map(({ client, rows }) => ({ ...prompt(rows, client), isGreedy: false })),
  ];
  const work = prompts.reduce((sum, { rows }) => sum + rows, 0);
  // The greedy client and three others take turns, and answers take turns with prompts where a pass has one row.
  const passes = 8 * work * (answers + 2) + 100;
  for (let pass = 1; pass <= passes; pass++) {
    ready.push({ ...prompt(50, 'greedy'), isGreedy: true });
    const waiting = ready.filter(({ written, decodeFrom }) => written < decodeFrom);
    const planned = planMainPass(ready, shares.enter(waiting.map(({ client }) => client)), limits);
    const ran = new Map(planned.map((plan) => [plan.member, plan.rows]));
    ready = ready.flatMap((one) => {
      const rows = ran.get(one) ?? 0;
      if (rows === 0) return [one];
      if (one.written >= one.decodeFrom) return [{ ...one, lastPass: pass }];
      shares.took(one.client, rows);
      return one.written + rows === one.end ? [] : [{ ...one, written: one.written + rows, lastPass: pass }];
    });
    if (ready.every(({ isGreedy }) => isGreedy)) return [];
  }
  return ready.filter(({ isGreedy }) => !isGreedy);
}

describe("batching: a client's share of the rows for prompts", () => {
  it('is neither reduced nor saved up by service while nobody else waited', () => {
    const shares = new ClientShares();
    shares.enter(['a']);
    shares.took('a', 1000);
    const had = shares.enter(['a', 'b']);
    assert.equal(had.get('b'), 0);
    shares.took('b', 1000);
    shares.enter(['a', 'b']);
    assert.equal(shares.enter(['a', 'b', 'c']).get('c'), 1000);
  });

  it('is forgotten when the client waits no more and others have had as much', () => {
    const shares = new ClientShares();
    for (let client = 0; client < 100; client++) {
      shares.enter([`c${client}`, 'steady']);
      shares.took(`c${client}`, 10);
      shares.took('steady', 10);
    }
    shares.enter(['steady']);
    assert.deepEqual([...shares.enter(['steady']).keys()], ['steady']);
  });
});
