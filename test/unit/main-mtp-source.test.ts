import { DraftTrial } from '../../main-node/drafting/draft-trial.js';
import assert from 'node:assert/strict';
import fc from 'fast-check';
import { type EngineHead, MtpSource } from '../../main-node/decode/mtp-source.js';
import type { Drafter } from '../../main-node/decode/mtp-drafts.js';
import { OwnDrafts } from '../../main-node/decode/own-drafts.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { DraftAcceptance } from '../../main-node/drafting/draft-acceptance.js';
import { LEAST_UNTIL_RETRY, MakingCosts } from '../../main-node/drafting/making-costs.js';

const SIGNAL = new AbortController().signal;

/** A head that always drafts 7, and fails from some time on. */
class ScriptedHead implements Drafter {
  readonly asked: number[] = [];
  onDraft: (most: number) => void = () => undefined;
  failure: Error | null = null;
  creationFailure: Error | null = null;
  created = 0;
  disposed = 0;

  readonly fed: string[] = [];

  async feed(position: number, states: Float32Array): Promise<void> {
    if (this.failure !== null) throw this.failure;
    this.fed.push(`${position}: ${states.join()}`);
  }

  async draft(most: number): Promise<number[]> {
    this.asked.push(most);
    this.onDraft(most);
    return Array<number>(most).fill(7);
  }

  dispose(): void {
    this.disposed += 1;
  }
}

/** A source whose prompt has been run up to its last token. */
function begun(assumed = 0.7, workers: EngineHead['workers'] = null, prompt: readonly number[] = [1, 2]) {
  const head = new ScriptedHead();
  const createDrafter = (): ScriptedHead => {
    if (head.creationFailure !== null) throw head.creationFailure;
    head.created += 1;
    return head;
  };
  const engineHead: EngineHead = {
    head: { createDrafter },
    workers,
    acceptance: new DraftAcceptance([assumed]),
    costs: new MakingCosts(),
  };
  const warnings: string[] = [];
  const log = { warn: (text: string) => void warnings.push(text) };
  const freed: number[] = [];
  const clock = { ms: 0 };
  const onFreed = (): void => void freed.push(head.disposed);
  const source = new MtpSource(engineHead, { hiddenSize: 1, mostRows: 4 }, { log, onFreed, nowMs: () => clock.ms });
  source.begin(prompt);
  if (prompt.length === 2) source.takeStates(0, Float32Array.of(0.5, 1.5));
  const { acceptance, costs } = engineHead;
  return { head, source, warnings, freed, clock, acceptance, costs };
}

/** One pass: main's token at `position`, drafts, and the state of its row. */
async function pass(source: MtpSource, position: number, tokenId: number): Promise<readonly number[]> {
  source.settled(position, tokenId);
  const { tokenIds } = await source.propose(position, 8, SIGNAL);
  source.takeStates(position, Float32Array.of(position));
  source.passed();
  return tokenIds;
}

const PASS_MS = 10;
const TOKENS = 2000;

/** An answer whose passes have drafts of the head where they pay: the time that it takes, and the number of drafts that the head made. */
async function answerAtCost({ draftMs, rightShare, rowMs }: Record<'draftMs' | 'rightShare' | 'rowMs', number>) {
  const { head, source, clock } = begun();
  head.onDraft = (most) => void (clock.ms += draftMs * most);
  const line = { passMs: PASS_MS, rowMs };
  const drafts = new OwnDrafts([source], { rows: 'auto', lastPosition: 2 * TOKENS }, new DraftTrial(), () => line);
  // Tokens that the head says are spread evenly over the answer.
  const tokenAt = (position: number): number => ((position * 0.618034) % 1 < rightShare ? 7 : 3);
  let position = 2;
  while (position < TOKENS) {
    const begunMs = clock.ms;
    drafts.settled(position, tokenAt(position), false);
    const proposed = await drafts.propose(position, 15, 0, SIGNAL);
    clock.ms += PASS_MS + rowMs * proposed.length;
    const ran = [tokenAt(position), ...proposed.map(({ tokenId }) => tokenId)];
    drafts.takeStates?.(position, new Float32Array(ran.length));
    drafts.passed(position, ran, { drafts: proposed.length, passMs: clock.ms - begunMs });
    for (let row = 1; row < ran.length && ran[row] === tokenAt(position + 1); row += 1)
      drafts.settled((position += 1), tokenAt(position), true);
    position += 1;
  }
  await drafts.end();
  return { ms: clock.ms, tokens: position - 2, asked: head.asked.reduce((sum, most) => sum + most, 0) };
}

describe('main: the source of drafts that is the head', () => {
  it('drafts on while the drafts before are probably right', async () => {
    const { head, source } = begun();
    source.settled(2, 3);
    const { tokenIds, chances } = await source.propose(2, 8, SIGNAL);
    assert.deepEqual(tokenIds, [7, 7, 7]);
    assert.deepEqual(chances, [0.7, 0.7, 0.7]);
    assert.deepEqual((await source.propose(2, 2, SIGNAL)).tokenIds, [7, 7]);
    await source.end();
    assert.equal(head.disposed, 1);
  });

  it('makes no draft that is reached and right less often than one in four', async () => {
    for (const [assumed, drafts] of [
      [0.45, 1],
      [0.51, 2],
      [0.6, 2],
      [0.64, 3],
      [0.76, 5],
      [1, 8],
    ] as const) {
      const { head, source } = begun(assumed);
      source.settled(2, 3);
      assert.equal((await source.propose(2, 8, SIGNAL)).tokenIds.length, drafts, `${assumed}`);
      assert.deepEqual(head.asked, [drafts]);
      await source.end();
    }
  });

  it('drafts more where its drafts prove right, and hardly any more where they prove wrong', async () => {
    const right = begun();
    for (let position = 2; position < 200; position += 9) {
      await pass(right.source, position, 7);
      // All drafts are accepted: their rows have run in the same pass.
      for (let next = position + 1; next < position + 9; next += 1) {
        right.source.takeStates(next, Float32Array.of(next));
        right.source.settled(next, 7);
      }
    }
    assert.deepEqual([right.head.asked[0], right.head.asked.at(-1)], [3, 8]);
    const wrong = begun();
    const drafts = new OwnDrafts([wrong.source], { rows: 9, lastPosition: 100 }, new DraftTrial(), () => null);
    const asked: number[] = [];
    for (let position = 2; position < 82; position += 1) {
      drafts.settled(position, 3, false);
      asked.push((await drafts.propose(position, 8, 0, SIGNAL)).length);
      wrong.source.takeStates(position, Float32Array.of(position));
    }
    assert.deepEqual(
      asked.slice(-2 * LEAST_UNTIL_RETRY).filter((count) => count > 0),
      [1, 1],
    );
    assert.ok(wrong.acceptance.chance(0, 0) < 0.25, 'other answers know of it');
    assert.deepEqual(wrong.source.effort.expected(8), []);
  });

  it('says what its drafts cost, but for those before which a prompt was fed', async () => {
    const { head, source, clock, costs } = begun();
    head.onDraft = (most) => void (clock.ms += 4 * most);
    source.settled(2, 3);
    await source.propose(2, 2, SIGNAL);
    assert.equal(costs.draftMs, 0);
    source.takeStates(2, Float32Array.of(2));
    source.settled(3, 7);
    await source.propose(3, 2, SIGNAL);
    assert.deepEqual([source.effort.draftMs, costs.draftMs], [4, 4]);
    assert.deepEqual(head.asked, [2, 2], 'expectations are told without a draft');
    assert.ok(source.effort.expected(1).length === 1 && head.asked.length === 2);
    await source.end();
  });

  it('costs little, however slow it is and however seldom its drafts are right', async () => {
    const cost = fc.double({ min: 0, max: 40, noNaN: true });
    const share = fc.double({ min: 0, max: 1, noNaN: true });
    const rowCost = fc.double({ min: 0, max: 10, noNaN: true });
    await fc.assert(
      fc.asyncProperty(cost, share, rowCost, async (draftMs, rightShare, rowMs) => {
        const { ms, tokens } = await answerAtCost({ draftMs, rightShare, rowMs });
        assert.ok(ms / tokens <= 1.05 * PASS_MS, `${ms / tokens} ms for a token`);
      }),
      { numRuns: 12 },
    );
  });

  it('is asked for nothing once its drafts are known to cost more than they save, but for one now and then', async () => {
    const { asked, tokens } = await answerAtCost({ draftMs: 20, rightShare: 0.9, rowMs: 0.5 });
    assert.ok(asked < tokens / 50, `${asked} drafts in ${tokens} tokens`);
    const pays = await answerAtCost({ draftMs: 1, rightShare: 0.9, rowMs: 0.5 });
    assert.ok(pays.ms < 0.7 * PASS_MS * pays.tokens, `${pays.ms / pays.tokens} ms for a token`);
  });

  it('says what its drafter holds, and when that has come back behind a preemption', async () => {
    const { source, freed } = begun();
    assert.deepEqual(source.drafterRows, { first: 0, held: null, isLeaving: false });
    await pass(source, 2, 3);
    assert.deepEqual(source.drafterRows, { first: 0, held: 2, isLeaving: false });
    source.preempted();
    assert.deepEqual(source.drafterRows, { first: Infinity, held: 2, isLeaving: true });
    source.takeStates(1, Float32Array.of(1.5));
    assert.deepEqual(freed, []);
    await new Promise(setImmediate);
    assert.deepEqual(freed, [1]);
    assert.deepEqual(source.drafterRows, { first: 1, held: null, isLeaving: false });
    source.preempted();
    await source.end();
    assert.deepEqual(freed, [1], 'it had nothing to give back');
  });

  it('needs no memory once its head has failed', async () => {
    const { head, source, freed } = begun();
    await pass(source, 2, 3);
    head.failure = new Error('no memory');
    await pass(source, 3, 3);
    assert.equal(source.drafterRows, null);
    assert.deepEqual(freed, [1]);
  });

  it('drafts no more once its head has failed, and says so once', async () => {
    const { head, source, warnings } = begun();
    head.failure = new Error('no memory');
    for (let position = 2; position < 5; position += 1) assert.deepEqual(await pass(source, position, 3), []);
    assert.equal(warnings.length, 1);
    await source.end();
    assert.equal(head.disposed, 1);
  });

  it('drafts no more where its head takes more memory than there is, and the answer goes on', async () => {
    const { head, source, warnings } = begun();
    head.creationFailure = new OdmoeError('DEVICE_OUT_OF_MEMORY', 'no room for a head');
    for (let position = 2; position < 5; position += 1) assert.deepEqual(await pass(source, position, 3), []);
    assert.equal(warnings.length, 1);
    await source.end();
    assert.deepEqual([head.created, head.disposed, head.asked], [0, 0, []]);
  });

  it('begins anew where workers that run its experts have failed, and says so once', async () => {
    const { head, source, warnings } = begun(0.7, { isServed: true });
    head.failure = new OdmoeError('WORKER_LOST', 'gone');
    const drafts: number[] = [];
    for (let position = 2; position < 60; position += 1) {
      if (position === 30) head.failure = null;
      drafts.push((await pass(source, position, 3)).length);
    }
    assert.equal(drafts.findIndex((count) => count > 0) < 40, true, 'it drafts again');
    assert.ok(drafts.slice(0, 28).every((count) => count === 0));
    assert.deepEqual(warnings, ["the model's own head could not run: it drafts again later"]);
    await source.end();
  });

  it('drafts nothing while no worker has its experts, and says nothing of an answer that is cancelled', async () => {
    const workers = { isServed: false };
    const { head, source, warnings } = begun(0.7, workers);
    for (let position = 2; position < 5; position += 1) assert.deepEqual(await pass(source, position, 3), []);
    assert.deepEqual([head.created, head.asked], [0, []]);
    workers.isServed = true;
    assert.deepEqual(await pass(source, 5, 3), [], 'the state of the row before has not come');
    assert.notDeepEqual(await pass(source, 6, 3), []);
    head.failure = new OdmoeError('CANCELLED', 'cancelled');
    for (let position = 7; position < 9; position += 1) assert.deepEqual(await pass(source, position, 3), []);
    assert.deepEqual(warnings, []);
    await source.end();
  });

  it('is fed the last rows of a prompt alone where workers run its experts, and only when drafts are asked for', async () => {
    const prompt = Array.from({ length: 40 }, (_, token) => token);
    const states = (from: number, to: number): Float32Array =>
      Float32Array.from({ length: to - from }, (_, row) => from + row);
    for (const workers of [{ isServed: true }, null]) {
      const { head, source } = begun(0.7, workers, prompt);
      assert.equal(source.statesWanted, workers === null ? Infinity : 16);
      for (const from of [0, 20]) source.takeStates(from, states(from, from + 20));
      await new Promise((resolve) => setImmediate(resolve));
      assert.deepEqual(head.fed.length > 0, workers === null, 'no pass of the head in the way of a prompt');
      source.settled(40, 3);
      assert.notDeepEqual((await source.propose(40, 8, SIGNAL)).tokenIds, []);
      if (workers !== null) assert.deepEqual(head.fed, [`0: ${states(24, 40).join()}`]);
      await pass(source, 41, 3);
      await source.end();
    }
  });

  it('goes on where it was fed, though it was not asked for some passes', async () => {
    const { head, source } = begun(0.7, { isServed: true });
    for (let position = 2; position < 22; position += 1) {
      source.settled(position, 3);
      source.takeStates(position, Float32Array.of(position));
      if (position === 3) await source.propose(position, 1, SIGNAL);
    }
    source.settled(22, 3);
    await source.propose(22, 1, SIGNAL);
    assert.equal(head.fed[0], '0: 0.5,1.5,2');
    assert.equal(head.fed[1]?.split(' ')[0], '3:');
    assert.equal(head.fed[1]?.split(',').length, 19);
    await source.end();
  });

  it('wants no states while nobody runs it', async () => {
    const workers = { isServed: false };
    const { head, source } = begun(0.7, workers);
    const drafts = new OwnDrafts([source], { rows: 3, lastPosition: 100 }, new DraftTrial(), () => null);
    assert.deepEqual([source.statesWanted, drafts.statesWanted], [0, 0]);
    workers.isServed = true;
    assert.deepEqual([source.statesWanted, drafts.statesWanted], [16, 16]);
    source.takeStates(0, Float32Array.of(0.5, 1.5));
    head.failure = new OdmoeError('WORKER_LOST', 'gone');
    assert.deepEqual(await pass(source, 2, 3), []);
    assert.equal(source.statesWanted, 0, 'it pauses');
    head.failure = new OdmoeError('DEVICE_LOST', 'gone');
    for (let position = 3; position < 40; position += 1) await pass(source, position, 3);
    assert.equal(source.statesWanted, 0);
    const lookup = new OwnDrafts([], { rows: 3, lastPosition: 100 }, new DraftTrial(), () => null);
    assert.equal(lookup.statesWanted, 0);
    await source.end();
  });

  it('is not asked for a pass that runs no drafts', async () => {
    const { head, source } = begun();
    const drafts = new OwnDrafts([source], { rows: 'auto', lastPosition: 100 }, new DraftTrial(), () => null);
    drafts.settled(2, 3, false);
    assert.deepEqual(await drafts.propose(2, 8, 0, SIGNAL), []);
    assert.deepEqual([head.asked, head.created], [[], 0]);
    const wanted = new OwnDrafts([source], { rows: 3, lastPosition: 100 }, new DraftTrial(), () => null);
    const proposed = await wanted.propose(2, 8, 0, SIGNAL);
    assert.deepEqual(
      proposed.map(({ tokenId, maker }) => [tokenId, maker]),
      [
        [7, 'mtp'],
        [7, 'mtp'],
      ],
    );
    assert.ok(wanted.takeStates !== undefined);
    assert.equal(new OwnDrafts([], { rows: 3, lastPosition: 100 }, new DraftTrial(), () => null).takeStates, undefined);
    await wanted.end();
  });
});
