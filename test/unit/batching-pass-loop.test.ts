import assert from 'node:assert/strict';
import { once } from 'node:events';
import type { BatchMember, SequenceRoom } from '../../main-node/batching/batch-member.js';
import { PassLoop, type PassLoopOptions, RETURN_LEAST_MS } from '../../main-node/batching/pass-loop.js';
import { type MemberRows, RowProvenance } from '../../main-node/pass/pass-member.js';
import { ReusablePasses, type ReusablePass } from '../../main-node/pass/reusable-passes.js';
import type { Pass } from '../../native/index.js';
import { mostActiveSequences, mostSeparatePasses } from '../../shared/settings/setting-limits.js';
import type { ErrorCode } from '../../shared/base/errors/registry.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { VirtualRuntime } from '../../shared/base/runtime/virtual-runtime.js';
import { onVirtualClock } from './virtual-run.js';

const PASS_MS = 10;
const ROOM: SequenceRoom = { prepare: (rows) => [...rows] };

/** A sequence that only counts its rows. */
class CountedMember {
  readonly tokenIds: number[] = [];
  readonly abort = new AbortController();
  written = 0;
  wantedFrom = 0;
  decodeFrom: number;
  readonly sequence = { truncate: (length: number) => (this.written = length) };
  readonly provenance = new RowProvenance();
  isTainted = false;
  /** Number of written rows at each time that the sequence was computed again. */
  readonly anew: number[] = [];

  constructor(
    readonly id: number,
    promptTokens: number,
    readonly client = '',
  ) {
    this.tokenIds = Array.from({ length: promptTokens }, () => id);
    this.decodeFrom = promptTokens;
    this.wantedFrom = promptTokens - 1;
  }

  get signal(): AbortSignal {
    return this.abort.signal;
  }

  distrust(workerId: string): void {
    this.isTainted ||= this.provenance.has(workerId);
  }

  computeAnew(): void {
    if (!this.isTainted) return;
    this.isTainted = false;
    this.anew.push(this.written);
    this.written = 0;
  }

  get member(): BatchMember {
    return this as unknown as BatchMember;
  }
}

/** Records the passes that the loop ran: for each pass the ids and rows of its members. */
class TestLoop {
  readonly passes: string[] = [];
  /** The rows that each pass expected behind it while it ran, as "position:rows"; null: they were not certain. */
  readonly followed: (string | null)[] = [];
  readonly loop: PassLoop;
  /** Time that a row adds to a pass. */
  rowMs = 0;
  /** Error with which a pass of these members fails; null: it does not fail. */
  failure: (ids: readonly number[]) => ErrorCode | null = () => null;

  constructor(
    private readonly runtime: VirtualRuntime,
    changes: Partial<PassLoopOptions> = {},
  ) {
    const pool = {
      use: (_signal: AbortSignal, use: (slot: ReusablePass) => Promise<unknown>) => use({} as ReusablePass),
      dispose: () => undefined,
    } as unknown as ReusablePasses;
    this.loop = new PassLoop({
      joint: true,
      maxRows: 64,
      promptChunkRows: 16,
      maxDelayMs: 'auto',
      room: ROOM,
      passes: pool,
      promptChunkPasses: pool,
      runPass: (_slot, rows, following) => this.run(rows, following),
      runtime,
      ...changes,
    });
  }

  /** Runs the prompt, then this number of tokens. Sampling of each takes `sampleMs`. */
  async answer(member: CountedMember, tokens: number, sampleMs = 0): Promise<void> {
    this.loop.join(member.member);
    try {
      await this.loop.run(member.member, { until: member.tokenIds.length, ran: () => undefined });
      for (let token = 1; token < tokens; token++) {
        if (sampleMs > 0) await this.runtime.sleep(sampleMs);
        member.decodeFrom = member.tokenIds.length;
        member.wantedFrom = member.decodeFrom;
        member.tokenIds.push(member.id);
        let logits = 0;
        await this.loop.run(member.member, {
          until: member.tokenIds.length,
          ran: (ofRows) => (logits += ofRows.length),
        });
        assert.equal(logits, 1);
      }
    } finally {
      await this.loop.leave(member.member);
    }
  }

  private async run(
    rows: readonly MemberRows[],
    following?: () => readonly MemberRows[] | null,
  ): Promise<Float32Array[][]> {
    this.passes.push(rows.map(({ member, tokenIds }) => `${member.id}:${tokenIds.length}`).join(' '));
    const rowCount = rows.reduce((sum, { tokenIds }) => sum + tokenIds.length, 0);
    await this.runtime.sleep(PASS_MS + this.rowMs * rowCount);
    const behind = following?.()
      ?.map(({ position, tokenIds }) => `${position}:${tokenIds.length}`)
      .join(' ');
    this.followed.push(behind ?? null);
    const code = this.failure(rows.map(({ member }) => member.id));
    if (code !== null) {
      // The last layer's attention wrote these rows before its experts failed.
      for (const { member, position, tokenIds } of rows)
        (member as unknown as CountedMember).written = position + tokenIds.length;
      throw new OdmoeError(code, 'a pass of the test');
    }
    if (rows.every(({ member }) => member.signal.aborted)) throw new OdmoeError('CANCELLED', 'nobody is left');
    return rows.map(({ member, position, tokenIds, logitsFrom }) => {
      (member as unknown as CountedMember).written = position + tokenIds.length;
      return tokenIds.slice(logitsFrom).map(() => new Float32Array(1));
    });
  }
}

function withLoop(
  body: (loop: TestLoop, runtime: VirtualRuntime) => Promise<void>,
  changes: Partial<PassLoopOptions> = {},
): Promise<void> {
  return onVirtualClock(async (runtime) => {
    const loop = new TestLoop(runtime, changes);
    await body(loop, runtime);
    assert.equal(loop.loop.openCount, 0);
    assert.equal(loop.loop.isShared, false);
  });
}

/** Memory for one member at a time. A member that has it keeps it until it ends. */
function roomForOne(): SequenceRoom {
  let holder: CountedMember | null = null;
  return {
    prepare: (rows) => {
      if (holder === null || holder.abort.signal.aborted) holder = (rows[0]?.member ?? null) as CountedMember | null;
      return rows.filter(({ member }) => member.id === holder?.id);
    },
  };
}

describe('batching: the loop of passes', () => {
  for (const joint of [true, false]) {
    let isOpen = false;
    const room: SequenceRoom = { prepare: (rows) => (isOpen ? [...rows] : []) };
    it(`runs rows as soon as memory has returned that they waited for (${joint ? 'joint' : 'single'} passes)`, () =>
      withLoop(
        async (test, runtime) => {
          isOpen = false;
          const member = new CountedMember(1, 4);
          const answered = test.answer(member, 1);
          await runtime.sleep(20);
          assert.deepEqual(test.passes, []);
          isOpen = true;
          test.loop.memoryReturned();
          await runtime.sleep(PASS_MS + 1);
          assert.deepEqual(test.passes, ['1:4']);
          await answered;
          test.loop.memoryFreed(member.member);
          test.loop.dispose();
        },
        { room, joint },
      ));
  }

  for (const joint of [true, false]) {
    it(`runs who has memory, though others whose turn it is have none (${joint ? 'joint' : 'single'} passes)`, () =>
      withLoop(
        async (test) => {
          const [first, second] = [new CountedMember(1, 20), new CountedMember(2, 20)];
          const answers = [first, second].map(async (member) => {
            await test.answer(member, 3);
            member.abort.abort();
            test.loop.memoryFreed(member.member);
          });
          await Promise.all(answers);
          const members = test.passes.map((pass) => pass.slice(0, 1));
          assert.deepEqual(members, [...members].sort(), test.passes.join(', '));
          assert.equal(test.passes.at(-1), '2:1');
        },
        { room: roomForOne(), joint, maxRows: 1, promptChunkRows: 4 },
      ));
  }

  it('runs members that ask at the same time in one pass, and waits until all have returned', () =>
    withLoop(async (test) => {
      const [first, second] = [new CountedMember(1, 3), new CountedMember(2, 3)];
      await Promise.all([test.answer(first, 4), test.answer(second, 3)]);
      assert.deepEqual(test.passes, ['1:3 2:3', '1:1 2:1', '1:1 2:1', '1:1']);
      const { waiting, ...counts } = test.loop.passCounts();
      assert.deepEqual([waiting, counts], [0, { passes: 4, rows: 11, preemptions: 0 }]);
    }));

  it('takes members that arrive meanwhile into the next pass, and runs a prompt between the tokens of others', () =>
    withLoop(async (test, runtime) => {
      test.rowMs = 4 * PASS_MS;
      const late = runtime.sleep(15 * PASS_MS).then(() => test.answer(new CountedMember(2, 20), 1));
      await Promise.all([test.answer(new CountedMember(1, 3), 6), late]);
      assert.deepEqual(test.passes, ['1:3', '1:1', '1:1 2:8', '1:1 2:8', '1:1 2:4', '1:1']);
    }));

  it('waits a little for a late member, and not again until that member has been in time', () =>
    withLoop(async (test, runtime) => {
      const begunMs = runtime.nowMs();
      const slow = 3 * PASS_MS;
      await Promise.all([test.answer(new CountedMember(1, 1), 9), test.answer(new CountedMember(2, 1), 3, slow)]);
      assert.equal(test.passes.filter((pass) => pass.startsWith('1:1')).length, 9);
      // Passes 2 and 3 of the slow member are shared. Of the quick member, only the first pass after their common pass waited.
      assert.equal(test.passes.filter((pass) => pass === '1:1 2:1').length, 3);
      const passesMs = test.passes.length * PASS_MS;
      const waitedMs = runtime.nowMs() - begunMs - passesMs;
      assert.ok(waitedMs > 0 && waitedMs <= RETURN_LEAST_MS + 0.01, `${waitedMs} ms`);
    }));

  it("runs a failed pass again member by member, so that no answer ends for another one's rows", () =>
    withLoop(async (test) => {
      test.failure = (ids) => (ids.includes(2) ? 'PACK_CORRUPT' : null);
      const [first, second] = [test.answer(new CountedMember(1, 3), 2), test.answer(new CountedMember(2, 3), 2)];
      await assert.rejects(second, { code: 'PACK_CORRUPT' });
      await first;
      assert.deepEqual(test.passes, ['1:3 2:3', '1:3', '2:3', '1:1']);
    }));

  it('does not run a member that has gone again, nor a pass of one member', () =>
    withLoop(async (test, runtime) => {
      test.failure = (ids) => (ids.length > 1 || ids.includes(3) ? 'PACK_CORRUPT' : null);
      const gone = new CountedMember(2, 3);
      const answers = [test.answer(new CountedMember(1, 3), 1), test.answer(gone, 1)];
      await runtime.sleep(PASS_MS / 2);
      gone.abort.abort();
      const ended = await Promise.allSettled(answers);
      assert.deepEqual(
        [ended.map(({ status }) => status), test.passes],
        [
          ['fulfilled', 'rejected'],
          ['1:3 2:3', '1:3'],
        ],
      );
      await assert.rejects(test.answer(new CountedMember(3, 3), 1), { code: 'PACK_CORRUPT' });
      assert.deepEqual(test.passes.slice(2), ['3:3']);
    }));

  for (const code of ['NO_WORKERS', 'DEVICE_LOST'] as const) {
    it(`fails all members at once where no other pass would do better: ${code}`, () =>
      withLoop(async (test) => {
        test.failure = () => code;
        const answers = [1, 2].map((id) => test.answer(new CountedMember(id, 3), 2));
        for (const answer of answers) await assert.rejects(answer, { code });
        assert.deepEqual(test.passes, ['1:3 2:3']);
      }));
  }

  it('stops running the members one by one where no pass at all would succeed', () =>
    withLoop(async (test) => {
      test.failure = (ids) => (ids.length > 1 ? 'PACK_CORRUPT' : 'NO_WORKERS');
      const answers = [1, 2, 3].map((id) => test.answer(new CountedMember(id, 3), 2));
      for (const answer of answers) await assert.rejects(answer, { code: 'NO_WORKERS' });
      assert.deepEqual(test.passes, ['1:3 2:3 3:3', '1:3']);
    }));

  for (const joint of [true, false]) {
    it(`runs a prompt on whose client's turn it is not where the other one's has no room to begin (${joint})`, async () => {
      const [first, second] = [new CountedMember(1, 64, 'a'), new CountedMember(2, 64, 'b')];
      let firstEnded = false;
      const room: SequenceRoom = { prepare: (rows) => rows.filter(({ member }) => member.id === 1 || firstEnded) };
      await withLoop(
        async (test, runtime) => {
          const begunMs = runtime.nowMs();
          const late = runtime.sleep(PASS_MS / 2).then(() => test.answer(second, 1));
          await test.answer(first, 1);
          firstEnded = true;
          assert.ok(runtime.nowMs() - begunMs < 6 * PASS_MS, test.passes.join());
          await late;
        },
        { room, joint },
      );
    });
  }

  it('tells a leaving member at once, though a pass still works on it, and drops it after the pass', () =>
    withLoop(async (test, runtime) => {
      const gone = new CountedMember(1, 3);
      let failedMs = 0;
      const leaving = test.answer(gone, 4);
      leaving.catch(() => (failedMs = runtime.nowMs()));
      const staying = test.answer(new CountedMember(2, 3), 3);
      const begunMs = runtime.nowMs();
      await runtime.sleep(PASS_MS / 2);
      gone.abort.abort();
      await assert.rejects(leaving, { code: 'CANCELLED' });
      assert.ok(Math.abs(failedMs - begunMs - PASS_MS) < 0.01, 'no pass works on it any more');
      await staying;
      assert.deepEqual(test.passes, ['1:3 2:3', '2:1', '2:1']);
    }));

  for (const joint of [true, false]) {
    it(`says which rows of a prompt come behind a pass where that is certain (${joint ? 'joint' : 'single'} passes)`, () =>
      withLoop(
        async (test, runtime) => {
          await test.answer(new CountedMember(1, 40), 3);
          assert.deepEqual(test.passes, ['1:16', '1:16', '1:8', '1:1', '1:1']);
          assert.deepEqual(test.followed, ['16:16', '32:8', null, null, null]);
          const second = runtime.sleep(PASS_MS / 2).then(() => test.answer(new CountedMember(3, 20), 1));
          await Promise.all([test.answer(new CountedMember(2, 40), 1), second]);
          assert.deepEqual(test.followed.slice(5, 7), [null, null], 'another prompt waits');
          const [before, idle] = [test.followed.length, new CountedMember(4, 3)];
          test.loop.join(idle.member);
          await test.answer(new CountedMember(5, 40), 1);
          // The idle member may want rows of its own by then.
          assert.deepEqual(test.followed.slice(before), joint ? [null, null, null] : ['16:16', '32:8', null]);
          await test.loop.leave(idle.member);
        },
        { joint },
      ));
  }

  it('counts the members that have given their memory back', () =>
    withLoop(async (test) => {
      for (const preemptions of [1, 2]) {
        test.loop.countPreemption();
        assert.equal(test.loop.passCounts().preemptions, preemptions);
      }
    }));

  it('lets no client with many prompts delay a client with one', () =>
    withLoop(async (test, runtime) => {
      const ended: string[] = [];
      const answers = Array.from({ length: 10 }, (_, index) =>
        test.answer(new CountedMember(1 + index, 64, 'many'), 1).then(() => ended.push('many')),
      );
      await runtime.sleep(PASS_MS / 2);
      answers.push(test.answer(new CountedMember(50, 64, 'one'), 1).then(() => ended.push('one')));
      await Promise.all(answers);
      assert.ok(ended.indexOf('one') <= 1, ended.join());
    }));

  it('runs single passes side by side, and one prompt chunk at a time', () =>
    withLoop(
      async (test, runtime) => {
        const begunMs = runtime.nowMs();
        await Promise.all([1, 2].map((id) => test.answer(new CountedMember(id, 20), 3)));
        const promptChunks = test.passes.slice(0, 4).map((pass) => pass.split(':')[1]);
        // The second prompt begins when the first prompt has ended and its answer continues.
        assert.deepEqual(promptChunks, ['16', '4', '1', '16']);
        assert.ok(test.passes.every((pass) => !pass.includes(' ')));
        assert.ok(runtime.nowMs() - begunMs < 7 * PASS_MS, 'eight passes take less than one after another');
      },
      { joint: false },
    ));

  it('lets passes of one sequence take turns where many answers run', async () => {
    assert.ok(16 * mostSeparatePasses('auto') <= mostActiveSequences('auto'), 'memory is set aside for each pass');
    const model = { createPass: () => ({ dispose: () => undefined }) as unknown as Pass };
    const passes = new ReusablePasses(model, { hiddenSize: 1, expertsPerToken: 1 }, 1, 1);
    const abort = new AbortController();
    const warned = once(process, 'warning', { signal: abort.signal }).then(([warning]) => String(warning));
    await withLoop(
      async (test) => {
        const answers = Array.from({ length: 24 }, (_, id) => test.answer(new CountedMember(1 + id, 2), 8));
        await Promise.all(answers);
      },
      { joint: false, passes },
    );
    passes.dispose();
    // A warning comes in a separate turn.
    await new Promise((resolve) => setImmediate(resolve));
    abort.abort();
    await assert.rejects(
      warned.then((warning) => assert.fail(warning)),
      { name: 'AbortError' },
    );
  });

  for (const joint of [true, false]) {
    it(`computes anew who has rows of a worker that lied: at once, or when its pass has ended (${joint ? 'joint' : 'single'} passes)`, () =>
      withLoop(
        async (test, runtime) => {
          const [first, second] = [new CountedMember(1, 3), new CountedMember(2, 3)];
          first.provenance.took('liar', 0);
          second.provenance.took('honest', 0);
          const answers = Promise.all([test.answer(first, 3), test.answer(second, 3)]);
          await runtime.sleep(PASS_MS / 2);
          test.loop.distrust('liar');
          assert.deepEqual([first.isTainted, second.isTainted, first.anew], [true, false, []], 'its pass runs out');
          await answers;
          assert.deepEqual([first.anew, second.anew], [[3], []]);
          const idle = new CountedMember(3, 3);
          idle.written = 2;
          idle.provenance.took('liar', 1);
          test.loop.join(idle.member);
          test.loop.distrust('liar');
          assert.deepEqual(idle.anew, [2], 'no pass works on it');
          await test.loop.leave(idle.member);
        },
        { joint },
      ));
  }

  for (const joint of [true, false]) {
    it(`cuts back the rows of a pass that failed (${joint ? 'joint' : 'single'} passes)`, () =>
      withLoop(
        async (test) => {
          const member = new CountedMember(1, 3);
          test.failure = () => (member.tokenIds.length > 3 ? 'MODEL_CORRUPT' : null);
          await assert.rejects(test.answer(member, 2), { code: 'MODEL_CORRUPT' });
          assert.equal(member.written, 3);
        },
        { joint },
      ));
  }
});
