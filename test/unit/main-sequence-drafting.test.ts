import assert from 'node:assert/strict';
import { DraftCostMeter } from '../../main-node/decode/draft-costs.js';
import {
  DRAFT_RECHECK_MS,
  DRAFT_SILENCE_LIMIT_MS,
  DRAFT_WAIT_LIMIT_MS,
  MAX_SILENT_WAITS,
  PASSES_UNTIL_RETRY,
  draftWaitMs,
  SequenceDrafting,
} from '../../main-node/decode/sequence-drafting.js';
import type { DraftToken } from '../../shared/wire/messages.js';
import { runtimeAt } from '../wall.js';

const PROMPT_TOKENS = 10;

const draft = (position: number, tokenId: number, passPosition = 10, branch = 0): DraftToken => ({
  epoch: 1,
  sequence: 7,
  position,
  tokenId,
  branch,
  passPosition,
  runUs: 1000,
});

const logitsOf = (tokenIds: readonly number[]): Float32Array[] => tokenIds.map((id) => Float32Array.of(id));

function draftingWith(rows: number | 'auto', optimistic = true, lastPosition = 100): SequenceDrafting {
  const options = { rows, optimistic, promptTokens: PROMPT_TOKENS, lastPosition };
  return new SequenceDrafting(
    options,
    new DraftCostMeter(),
    () => 3,
    runtimeAt(() => 0),
  );
}

describe('main: the wait of a pass for drafts', () => {
  const waiting = {
    wantedRows: 4,
    readyRows: 2,
    complete: false,
    shadowFollows: true,
    shadowTokenMs: 10,
    waitedMs: 0,
    silentMs: 0,
  };

  it('is zero when enough drafts are there, or none can be expected', () => {
    assert.equal(draftWaitMs({ ...waiting, readyRows: 4 }), null);
    assert.equal(draftWaitMs({ ...waiting, complete: true }), null);
    assert.equal(draftWaitMs({ ...waiting, shadowFollows: false }), null);
  });

  it('is bounded in total, and by the silence of shadow', () => {
    assert.equal(draftWaitMs(waiting), DRAFT_RECHECK_MS);
    assert.equal(draftWaitMs({ ...waiting, silentMs: DRAFT_SILENCE_LIMIT_MS - 1 }), 1);
    assert.equal(draftWaitMs({ ...waiting, silentMs: DRAFT_SILENCE_LIMIT_MS }), null);
    assert.equal(draftWaitMs({ ...waiting, waitedMs: DRAFT_WAIT_LIMIT_MS - 1 }), 1);
    assert.equal(draftWaitMs({ ...waiting, waitedMs: DRAFT_WAIT_LIMIT_MS }), null);
    const slow = { ...waiting, shadowTokenMs: 1000, silentMs: 3999 };
    assert.equal(draftWaitMs(slow), 1);
    assert.equal(draftWaitMs({ ...slow, silentMs: 4000 }), null);
  });
});

describe('main: the drafting of a sequence', () => {
  it('gives out no stored logits, and no draft, once they are not reliable', () => {
    const drafting = draftingWith(4);
    drafting.settle(10, 1);
    drafting.passed({ position: 10, tokenIds: [1, 2], logits: logitsOf([1, 2]) });
    drafting.arrive(draft(12, 3));
    drafting.forgetPass();
    assert.equal(drafting.rememberedCount, 0);
    assert.equal(drafting.settle(11, 2), null, 'the row is run anew');
  });

  it('stores the logits of every row and gives them out for tokens that prove right', () => {
    const drafting = draftingWith(4);
    assert.equal(drafting.settle(10, 1), null);
    drafting.passed({ position: 10, tokenIds: [1, 2, 3], logits: logitsOf([1, 2, 3]) });
    assert.deepEqual(drafting.settle(11, 2), Float32Array.of(2));
    assert.deepEqual(drafting.settle(12, 3), Float32Array.of(3));
    assert.equal(drafting.settle(13, 4), null);
    assert.deepEqual(drafting.counts, { proposed: 2, accepted: 2 });
    assert.equal(drafting.branch, 0);
  });

  it('gives out no logits from the first wrong draft on, even where a later one would fit', () => {
    const drafting = draftingWith(4);
    drafting.settle(10, 1);
    drafting.passed({ position: 10, tokenIds: [1, 2, 3], logits: logitsOf([1, 2, 3]) });
    assert.equal(drafting.settle(11, 9), null);
    assert.equal(drafting.branch, 1);
    assert.equal(drafting.settle(12, 3), null, 'its row stood on a wrong draft');
    assert.equal(drafting.branch, 1);
    assert.deepEqual(drafting.counts, { proposed: 2, accepted: 0 });
  });

  it('counts a wrong draft as one branch, run or not', () => {
    const drafting = draftingWith(4);
    drafting.arrive(draft(10, 5));
    assert.equal(drafting.settle(10, 1), null);
    assert.equal(drafting.branch, 1, 'what follows a wrong first position is void');
    drafting.arrive(draft(11, 2, 10, 1));
    assert.deepEqual(drafting.following(10, 4).tokenIds, [2]);
    drafting.passed({ position: 10, tokenIds: [1, 2], logits: logitsOf([1, 2]) });
    assert.equal(drafting.settle(11, 9), null);
    assert.equal(drafting.branch, 2);
  });

  it('requests at most one row per remaining token, and one row without drafting', () => {
    assert.equal(draftingWith(4).rowsAt(10), 4);
    assert.equal(draftingWith('auto').rowsAt(10), 3);
    assert.equal(draftingWith(1).rowsAt(10), 1);
    assert.equal(draftingWith(4, true, 12).rowsAt(11), 2);
    assert.equal(draftingWith(4, true, 12).rowsAt(13), 1);
  });

  it('waits for the drafts of a pass until they arrive', async () => {
    const drafting = draftingWith(3, false);
    drafting.settle(10, 1);
    let over = false;
    const waiting = drafting.wait(10, 3, () => true, new AbortController().signal).then(() => (over = true));
    drafting.arrive(draft(11, 2));
    await new Promise(setImmediate);
    assert.equal(over, false);
    drafting.arrive(draft(12, 3));
    await waiting;
    assert.deepEqual(drafting.following(10, 3).tokenIds, [2, 3]);
  });

  it('stops waiting for a lost shadow, for drafts of a later pass, or for a cancelled request', async () => {
    const drafting = draftingWith(3, false);
    drafting.settle(10, 1);
    const never = new AbortController().signal;
    await drafting.wait(10, 3, () => false, never);
    const waiting = drafting.wait(10, 3, () => true, never);
    drafting.arrive(draft(11, 2, 11));
    await waiting;
    const abort = new AbortController();
    const cancelled = drafting.wait(11, 3, () => true, abort.signal);
    abort.abort();
    await cancelled;
  });

  it('stops waiting for a shadow that never drafts, tries once when it does, and again after many passes', async () => {
    let nowMs = 0;
    const options = { rows: 4, optimistic: false, promptTokens: PROMPT_TOKENS, lastPosition: 100 };
    const drafting = new SequenceDrafting(
      options,
      new DraftCostMeter(),
      () => 4,
      runtimeAt(() => (nowMs += DRAFT_SILENCE_LIMIT_MS)),
    );
    for (let wait = 0; wait < MAX_SILENT_WAITS; wait++) {
      assert.equal(drafting.rowsAt(10), 4);
      await drafting.wait(10, 4, () => true, new AbortController().signal);
    }
    assert.equal(drafting.rowsAt(10), 1);
    drafting.arrive(draft(11, 2));
    assert.equal(drafting.rowsAt(11), 4);
    await drafting.wait(20, 4, () => true, new AbortController().signal);
    drafting.arrive(draft(21, 2, 21));
    assert.equal(drafting.rowsAt(20), 1, 'a draft that no pass can use is believed once');
    for (let pass = 0; pass < PASSES_UNTIL_RETRY; pass++) {
      assert.equal(drafting.rowsAt(20 + pass), 1);
      drafting.passed({ position: 20 + pass, tokenIds: [1], logits: logitsOf([1]) });
    }
    assert.equal(drafting.rowsAt(60), 4);
  });

  it('counts only drafts that the waiting pass can use: others neither lengthen nor end its wait', async () => {
    let nowMs = 0;
    const options = { rows: 4, optimistic: false, promptTokens: PROMPT_TOKENS, lastPosition: 100 };
    const drafting = new SequenceDrafting(
      options,
      new DraftCostMeter(),
      () => 4,
      runtimeAt(() => nowMs),
    );
    drafting.settle(10, 1);
    let over = false;
    const waiting = drafting.wait(10, 4, () => true, new AbortController().signal).then(() => (over = true));
    for (; nowMs < DRAFT_SILENCE_LIMIT_MS; nowMs += DRAFT_SILENCE_LIMIT_MS / 4) drafting.arrive(draft(50, 2, 50));
    drafting.shadowLost();
    await waiting;
    assert.ok(over);
    for (let wait = 1; wait < MAX_SILENT_WAITS; wait++) {
      assert.equal(drafting.rowsAt(10), 4);
      const complete = drafting.wait(10, 4, () => true, new AbortController().signal);
      drafting.arrive(draft(11, 2, 11));
      await complete;
    }
    assert.equal(drafting.rowsAt(10), 1);
  });

  it('waits for the drafts behind one that arrived, and forgets the earlier silence', async () => {
    let nowMs = 0;
    const options = { rows: 3, optimistic: false, promptTokens: PROMPT_TOKENS, lastPosition: 100 };
    const drafting = new SequenceDrafting(
      options,
      new DraftCostMeter(),
      () => 3,
      runtimeAt(() => nowMs),
    );
    drafting.settle(10, 1);
    for (let wait = 0; wait < 2 * MAX_SILENT_WAITS; wait++) {
      const waiting = drafting.wait(10, 3, () => true, new AbortController().signal);
      if (wait % MAX_SILENT_WAITS === 0) drafting.arrive(draft(11, 2));
      else drafting.restart(11);
      nowMs += DRAFT_SILENCE_LIMIT_MS;
      drafting.shadowLost();
      await waiting;
      assert.equal(drafting.rowsAt(10), 3);
    }
  });

  it('stops the wait where shadow is lost', async () => {
    const drafting = draftingWith(3, false);
    drafting.settle(10, 1);
    let follows = true;
    const waiting = drafting.wait(10, 3, () => follows, new AbortController().signal);
    follows = false;
    drafting.shadowLost();
    const first = await Promise.race([waiting.then(() => 'woken'), new Promise((resolve) => setImmediate(resolve))]);
    assert.equal(first, 'woken');
  });

  it('measures shadow by accepted drafts, each position once', () => {
    const meter = new DraftCostMeter();
    const options = { rows: 4, optimistic: true, promptTokens: PROMPT_TOKENS, lastPosition: 100 };
    const drafting = new SequenceDrafting(
      options,
      meter,
      () => 4,
      runtimeAt(() => 0),
    );
    drafting.settle(10, 1);
    drafting.arrive({ ...draft(11, 2, 10, 1), runUs: 9000 });
    drafting.arrive({ ...draft(5, 2), runUs: 9000 });
    assert.equal(meter.shadowTokenMs, 0);
    drafting.arrive({ ...draft(11, 2), runUs: 3000 });
    drafting.arrive({ ...draft(11, 2), runUs: 9000 });
    assert.equal(meter.shadowTokenMs, 3);
  });
});
