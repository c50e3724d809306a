import assert from 'node:assert/strict';
import fc from 'fast-check';
import type { BatchMember } from '../../main-node/batching/batch-member.js';
import { type MemberRows, RequestCounters, RowProvenance } from '../../main-node/pass/pass-member.js';
import { ContextRoom, IDLE_MEMORY_LIMIT_MS } from '../../main-node/room/context-room.js';
import { HASH_BLOCK_TOKENS } from '../../main-node/room/prefix-index.js';
import { createContextRoom } from '../../main-node/room/create-context-room.js';
import { cudaStatus, type Device, type Model, type Pass, type Sequence, wrapHandle } from '../../native/index.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { isRecurrent, type ModelShape } from '../../shared/model/model-shape.js';
import { ROW_BLOCK_POSITIONS, sequenceMemoryBytes } from '../../main-node/room/sequence-memory.js';
import { RUNTIME, runtimeAt } from '../wall.js';
import { RandomWeights } from './native-random-model.js';
import { bits, openTestDevice } from './native-test-model.js';
import { RANDOM_SHAPES } from './random-model-shapes.js';

const PASS_ROWS = 64;

/** A request with a known answer. */
class Member implements BatchMember {
  readonly client = '';
  readonly counters = new RequestCounters();
  readonly signal = new AbortController().signal;
  readonly predictions = {
    arrive: () => null,
    foretell: () => undefined,
    know: () => undefined,
    foretold: () => null,
    isSpoken: () => false,
    expected: () => null,
    decide: () => null,
    upcoming: () => null,
  };
  readonly feed = { fed: false, layerWritten: nothing, allWritten: nothing, passEnded: nothing };
  readonly wantedFrom: number;
  readonly decodeFrom: number;
  readonly lastPosition: number;
  sequence: Sequence;
  logits: Float32Array | null = null;
  preemptions = 0;
  provenance = new RowProvenance();
  isTainted = false;

  constructor(
    readonly id: number,
    readonly tokenIds: readonly number[],
    private readonly model: Model,
  ) {
    this.sequence = model.createSequence();
    this.wantedFrom = tokenIds.length - 1;
    this.decodeFrom = tokenIds.length;
    this.lastPosition = tokenIds.length - 1;
  }

  get written(): number {
    return this.sequence.length;
  }

  distrust(workerId: string): void {
    this.isTainted ||= this.provenance.has(workerId);
  }

  computeAnew(): void {
    if (this.isTainted) this.preempt();
  }

  preempt(): void {
    this.sequence.dispose();
    this.sequence = this.model.createSequence();
    this.preemptions += 1;
  }

  rows(most: number): MemberRows {
    const { written: position, tokenIds } = this;
    const count = Math.min(most, tokenIds.length - position);
    const part = tokenIds.slice(position, position + count);
    return { member: this, position, tokenIds: part, decodeFrom: count, logitsFrom: this.wantedFrom - position };
  }
}

function nothing(): void {
  // This test does not listen to the calls.
}

const nobody = (): boolean => false;

async function run(pass: Pass, { member, position, tokenIds }: MemberRows): Promise<Float32Array> {
  const row = (value: (index: number) => number): Int32Array => Int32Array.from(tokenIds, (_, i) => value(i));
  await pass.begin(
    [member.sequence],
    row(() => 0),
    row((i) => position + i),
    Int32Array.from(tokenIds),
  );
  await pass.forward(null);
  return pass.logits(Int32Array.of(tokenIds.length - 1));
}

describe('memory for sequences while one is idle', () => {
  it('is taken from the idle one only where nobody could otherwise run for long', () => {
    let nowMs = 0;
    const rowBlocksOf = (positions: number): number => Math.ceil(positions / ROW_BLOCK_POSITIONS);
    const member = (id: number, written: number): BatchMember => {
      const tokenIds = new Array<number>(2 * ROW_BLOCK_POSITIONS).fill(1);
      const sequence = { bytesToWrite: (position: number, end: number) => rowBlocksOf(end) - rowBlocksOf(position) };
      const one = { id, tokenIds, written, sequence, preempt: () => (one.written = 0) };
      return one as unknown as BatchMember;
    };
    const [holder, waiting] = [member(1, 2 * ROW_BLOCK_POSITIONS), member(2, 0)];
    const model = {
      get sequenceBytes(): number {
        return rowBlocksOf(holder.written);
      },
    };
    const room = new ContextRoom({
      runtime: runtimeAt(() => nowMs),
      model,
      limitBytes: 4,
      limitSetBy: 'context_memory',
      bytesOf: rowBlocksOf,
      maxPositions: 4096,
      isRecurrent: false,
      reusesPrefixes: false,
    });
    for (const one of [holder, waiting]) room.enter(one);
    const runs = (one: BatchMember, position: number, tokens: number): number =>
      room.prepare(
        [{ member: one, position, tokenIds: new Array<number>(tokens).fill(1) } as unknown as MemberRows],
        nobody,
      ).length;
    const waits = (): boolean => runs(waiting, 0, 2 * ROW_BLOCK_POSITIONS) === 0;
    assert.ok(waits());
    nowMs = IDLE_MEMORY_LIMIT_MS - 1;
    assert.equal(runs(holder, holder.written, 1), 1);
    nowMs = IDLE_MEMORY_LIMIT_MS;
    assert.ok(waits());
    nowMs = 2 * IDLE_MEMORY_LIMIT_MS - 1;
    assert.ok(waits(), 'somebody has run meanwhile');
    nowMs = 2 * IDLE_MEMORY_LIMIT_MS;
    assert.ok(!waits());
    assert.equal(holder.written, 0);
  });
});

describe('memory for what sequences decide', () => {
  const blocks = (positions: number): number => Math.ceil(positions / ROW_BLOCK_POSITIONS);
  const member = (id: number, written: number, bytes: number): BatchMember => {
    const sequence = { bytesToWrite: (position: number, end: number) => 10 * (blocks(end) - blocks(position)) };
    const tokenIds = new Array<number>(Math.max(written, ROW_BLOCK_POSITIONS)).fill(1);
    return { id, tokenIds, written, sequence, decisions: { bytes } } as unknown as BatchMember;
  };
  const roomOf = (limitBytes: number, decides: boolean, members: readonly BatchMember[] = []): ContextRoom => {
    const room = new ContextRoom({
      runtime: RUNTIME,
      model: { sequenceBytes: members.reduce((sum, { written }) => sum + 10 * blocks(written), 0) },
      limitBytes,
      limitSetBy: 'context_memory',
      bytesOf: (positions) => 10 * blocks(positions),
      decisionBytesOf: decides ? blocks : null,
      maxPositions: 4096,
      isRecurrent: false,
      reusesPrefixes: false,
    });
    for (const one of members) room.enter(one);
    return room;
  };

  it('counts with rows for the longest request', () => {
    const positions = 4 * ROW_BLOCK_POSITIONS;
    assert.equal(roomOf(44, true).mostPositions, positions);
    assert.equal(roomOf(43, true).mostPositions, positions - ROW_BLOCK_POSITIONS);
    assert.equal(roomOf(43, false).mostPositions, positions);
    assert.throws(() => roomOf(43, true).requireFits(positions), { code: 'DEVICE_OUT_OF_MEMORY' });
    assert.equal(roomOf(43, true).leastBytes, 11);
  });

  it('counts with rows that are held, also by a sequence that was preempted', () => {
    const preempted = member(1, 0, 3);
    const holder = member(2, 2 * ROW_BLOCK_POSITIONS, 2);
    const waiting = member(3, 0, 0);
    // Two blocks are held. The one that waits needs a block and one more to go on with, and so does the one that was preempted.
    const held = [20, 3 + 2, 10, 11, 11];
    const needed = held.reduce((sum, bytes) => sum + bytes, 0);
    for (const [limitBytes, isAdmitted] of [
      [needed, true],
      [needed - 1, false],
    ] as const) {
      const room = roomOf(limitBytes, true, [preempted, holder]);
      assert.equal(room.counts().decisionBytes, 5);
      assert.equal(room.admits(waiting.tokenIds.length), isAdmitted);
    }
    assert.equal(roomOf(needed, false, [preempted, holder]).counts().decisionBytes, 0);
    assert.ok(roomOf(50, false, [preempted, holder]).admits(waiting.tokenIds.length));
  });

  it('lets rows run only where it holds what they decide, too', () => {
    const holder = member(1, 2 * ROW_BLOCK_POSITIONS, 2);
    const waiting = member(2, 0, 0);
    const runs = (limitBytes: number): number => {
      const room = roomOf(limitBytes, true, [holder, waiting]);
      const rows = { member: waiting, position: 0, tokenIds: waiting.tokenIds } as unknown as MemberRows;
      return room.prepare([rows], nobody).length;
    };
    // The block that it writes, and one more to go on with.
    assert.deepEqual([runs(22 + 11 + 11), runs(22 + 11 + 11 - 1)], [1, 0]);
  });
});

/** Prompts with common beginnings: each hash block repeats one of two tokens. */
const prompts = fc.array(
  fc
    .record({
      hashBlocks: fc.array(fc.integer({ min: 1, max: 2 }), { minLength: 1, maxLength: 20 }),
      tail: fc.integer({ min: 3, max: 9 }),
    })
    .map(({ hashBlocks, tail }) => [
      ...hashBlocks.flatMap((token) => Array.from({ length: HASH_BLOCK_TOKENS }, (_, i) => token + (i % 3))),
      tail,
    ]),
  { minLength: 2, maxLength: 8 },
);

for (const [name, shape] of Object.entries(RANDOM_SHAPES)) {
  describe(`room for sequences of a model with ${name}`, () => {
    let device: Device;
    let weights: RandomWeights;
    let model: Model;
    let pass: Pass;
    const bytesOf = (positions: number): number => sequenceMemoryBytes(shape, positions, PASS_ROWS);
    const roomOf = (limitBytes: number): ContextRoom =>
      new ContextRoom({
        runtime: RUNTIME,
        model,
        limitBytes,
        limitSetBy: 'context_memory',
        bytesOf,
        maxPositions: shape.maxPositions,
        isRecurrent: recurrent(shape),
        reusesPrefixes: true,
      });

    before(async () => {
      device = openTestDevice();
      weights = new RandomWeights(shape);
      model = await weights.load(device, true);
      pass = model.createPass(PASS_ROWS);
    });

    after(() => {
      for (const handle of [pass, model, device, weights]) handle.dispose();
    });

    const begin = (room: ContextRoom, id: number, tokenIds: readonly number[]): { member: Member; shared: number } => {
      const member = new Member(id, tokenIds, model);
      const shared = room.share(member, member.wantedFrom, nobody);
      if (shared !== null) {
        member.sequence.dispose();
        member.sequence = shared.sequence;
        member.provenance = shared.provenance;
      }
      room.enter(member);
      return { member, shared: shared?.positions ?? 0 };
    };

    it('is refused where not even one row block fits, and the error says what to do', () => {
      const parts = { device, model, runtime: RUNTIME, devices: { cudaStatus } };
      const create = (contextMemoryBytes: number): ContextRoom =>
        createContextRoom({ main: { contextMemoryBytes, reusePrefixes: true } }, parts, [
          { rows: PASS_ROWS, count: 1 },
        ]);
      const leastBytes = bytesOf(Math.min(ROW_BLOCK_POSITIONS, shape.maxPositions));
      assert.ok(create(leastBytes).mostPositions > 0);
      assert.throws(
        () => create(leastBytes - 1),
        (error) => error instanceof OdmoeError && error.code === 'CONFIG_INVALID' && /raise main/.test(error.message),
      );
    });

    it('counts the rows and passes of the drafters of a head', () => {
      const head = { model, drafters: 0 };
      const parts = { device, model, runtime: RUNTIME, devices: { cudaStatus }, head };
      const main = { contextMemoryBytes: bytesOf(shape.maxPositions) * 8 + 1e8, reusePrefixes: true };
      const room = createContextRoom({ main }, parts, [{ rows: PASS_ROWS, count: 1 }]);
      assert.equal(room.counts().keyValueBytes, 0);
      head.drafters = 2;
      const passBytes = room.counts().keyValueBytes / 2;
      assert.ok(passBytes > 0);
      // The head of this test has the rows of the whole model.
      assert.equal(room.leastBytes, 2 * bytesOf(Math.min(ROW_BLOCK_POSITIONS, shape.maxPositions)) + passBytes);
    });

    it('is the smaller of the set size and the rest of the budget, and the error names that one', () => {
      const rowBlockBytes = bytesOf(Math.min(ROW_BLOCK_POSITIONS, shape.maxPositions));
      const spareBytes = device.info().usedBytes + 64 * rowBlockBytes;
      const budgeted = wrapHandle(device, { info: () => ({ ...device.info(), budgetBytes: spareBytes }) });
      const parts = { device: budgeted, model, runtime: RUNTIME, devices: { cudaStatus } };
      const create = (contextMemoryBytes: number | 'auto'): ContextRoom =>
        createContextRoom({ main: { contextMemoryBytes, reusePrefixes: true } }, parts, [{ rows: 1, count: 1 }]);
      const left = create('auto').limitBytes;
      assert.ok(left > 0 && left < 64 * rowBlockBytes);
      const large = create(spareBytes * 2);
      assert.deepEqual([large.limitBytes, large.limitSetBy], [left, 'memory_budget']);
      const small = create(rowBlockBytes);
      assert.deepEqual([small.limitBytes, small.limitSetBy], [rowBlockBytes, 'context_memory']);
      const tooMany = shape.maxPositions * 1e6;
      assert.throws(() => large.requireFits(tooMany), { code: 'DEVICE_OUT_OF_MEMORY', message: /--memory-budget/ });
      assert.throws(() => small.requireFits(tooMany), { message: /raise main\.context_memory/ });
    });

    it('gives each sequence the logits that it would have alone, within the limit', async () => {
      await fc.assert(
        fc.asyncProperty(prompts, fc.integer({ min: 0, max: 600 }), async (drawn, sparePositions) => {
          const longest = Math.max(...drawn.map(({ length }) => length));
          const room = roomOf(bytesOf(longest) + bytesOf(sparePositions));
          const waiting = drawn.map((tokenIds, id) => ({ tokenIds, id }));
          const running: Member[] = [];
          for (let passes = 0; waiting.length + running.length > 0; passes += 1) {
            assert.ok(passes < 40 * drawn.length, 'somebody gets on');
            for (const { id, tokenIds } of waiting.splice(0, 2)) running.push(begin(room, id, tokenIds).member);
            for (const rows of room.prepare(
              running.map((member) => member.rows(PASS_ROWS)),
              nobody,
            )) {
              const member = running.find(({ id }) => id === rows.member.id);
              assert.ok(member !== undefined);
              const logits = await run(pass, rows);
              if (member.written === member.tokenIds.length) member.logits = logits;
            }
            assert.ok(room.counts().keyValueBytes <= bytesOf(longest) + bytesOf(sparePositions));
            for (const member of running.filter((one) => one.logits !== null)) {
              running.splice(running.indexOf(member), 1);
              room.leave(member, member.tokenIds, true);
              const alone = new Member(99, member.tokenIds, model);
              let logits = await run(pass, alone.rows(PASS_ROWS));
              while (alone.written < alone.tokenIds.length) logits = await run(pass, alone.rows(PASS_ROWS));
              alone.sequence.dispose();
              assert.deepEqual(member.logits === null ? null : bits(member.logits), bits(logits));
            }
          }
          room.dispose();
          assert.equal(model.sequenceBytes, 0);
        }),
        { numRuns: 8 },
      );
    });

    it('is reused: rows of ended sequences and of running ones', async () => {
      const room = roomOf(bytesOf(640) * 6);
      const tokenIds = Array.from({ length: 600 }, (_, i) => (i * 7) % 50);
      const { member } = begin(room, 1, tokenIds);
      while (member.written < 600) {
        const [rows] = room.prepare([member.rows(PASS_ROWS)], nobody);
        assert.ok(rows !== undefined);
        await run(pass, rows);
      }
      const turn = [...tokenIds, 1, 2, 3];
      assert.equal(begin(room, 2, turn).shared, 600);
      room.leave(member, member.tokenIds, true);
      assert.equal(begin(room, 3, turn).shared, 600);
      // A shorter prefix can be shared only if the rows can be cut there, or at an earlier saved fork.
      const other = begin(room, 4, [...tokenIds.slice(0, 400), 5, 5]);
      assert.equal(other.shared, recurrent(shape) ? 256 : 400);
      assert.equal(begin(room, 5, tokenIds.slice(0, 10)).shared, 0);
      const { cachedTokens, prefixes } = room.counts();
      assert.equal(cachedTokens, 1200 + other.shared);
      assert.ok(prefixes > 0);
      room.dispose();
    });

    it('drops the rows that a lying worker touched, and keeps no rows of an answer that failed', async () => {
      const room = roomOf(bytesOf(640) * 8);
      const tokenIds = Array.from({ length: 300 }, (_, i) => (i * 7) % 50);
      const prompts = { liar: tokenIds, honest: tokenIds.map((id) => id + 1), failed: tokenIds.map((id) => id + 2) };
      const runs = async (id: number, prompt: readonly number[], workerId: string): Promise<Member> => {
        const { member } = begin(room, id, prompt);
        member.provenance.took(workerId, member.written);
        while (member.written < prompt.length) {
          const [rows] = room.prepare([member.rows(PASS_ROWS)], nobody);
          assert.ok(rows !== undefined);
          await run(pass, rows);
        }
        return member;
      };
      const shares = (prompt: readonly number[]): number => {
        const { member, shared } = begin(room, 90, [...prompt, 3]);
        room.leave(member, [], true);
        return shared;
      };
      const [liars, honest] = [await runs(1, prompts.liar, 'liar'), await runs(2, prompts.honest, 'honest')];
      room.leave(liars, prompts.liar, true);
      room.leave(honest, prompts.honest, true);
      const heir = await runs(3, [...prompts.liar, 4], 'honest');
      assert.ok(heir.provenance.has('liar'), 'a fork inherits who took part');
      assert.ok(shares(prompts.liar) > 0);
      room.distrust('liar');
      heir.distrust('liar');
      assert.equal(shares(prompts.liar), 0, 'neither of what is kept nor of what runs');
      assert.ok(shares(prompts.honest) > 0);
      room.leave(heir, heir.tokenIds, true);
      assert.equal(shares(prompts.liar), 0);
      room.leave(await runs(4, prompts.failed, 'honest'), prompts.failed, false);
      assert.equal(shares(prompts.failed), 0);
      assert.deepEqual([...room.retainedFrom], ['honest']);
      room.dispose();
    });

    it('is refused to a sequence that can never fit', () => {
      const room = roomOf(bytesOf(600));
      room.requireFits(600);
      assert.throws(() => room.requireFits(2000), { code: 'DEVICE_OUT_OF_MEMORY' });
      assert.ok(room.mostPositions >= 512 && bytesOf(room.mostPositions) <= bytesOf(600));
      assert.ok(bytesOf(room.mostPositions + ROW_BLOCK_POSITIONS) > bytesOf(600), 'no row block more would fit');
    });

    it('admits a sequence that fits beside the present and future rows of the others', async () => {
      const room = roomOf(model.sequenceBytes + bytesOf(600));
      assert.ok(room.admits(300), 'alone');
      const tokenIds = Array.from({ length: 500 }, (_, i) => i % 40);
      const { member } = begin(room, 1, tokenIds);
      assert.ok(!room.admits(300));
      member.sequence.dispose();
    });
  });
}

function recurrent({ layers }: ModelShape): boolean {
  return layers.some(({ mixer }) => isRecurrent(mixer));
}
