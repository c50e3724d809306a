import assert from 'node:assert/strict';
import fc from 'fast-check';
import { planRoom, type RoomMember, type RoomState } from '../../main-node/room/plan-room.js';

const ROW_BLOCK_POSITIONS = 16;

/** Drawn sequences on a device that gives memory in row blocks of one byte. */
interface Drawn {
  /** promptTokens: positions of the prompt. tokens: positions of prompt and answer together. */
  promptTokens: number;
  tokens: number;
}

class World {
  readonly limitBytes: number;
  readonly running: { id: number; tokens: number; last: number; written: number }[] = [];
  prefixes: number[];
  passes = 0;
  preemptions = 0;

  constructor(
    private readonly waiting: (Drawn & { id: number })[],
    spareBytes: number,
    prefixes: readonly number[],
    private readonly maxRows: number,
  ) {
    this.limitBytes = spareBytes + Math.max(...waiting.map(({ tokens }) => rowBlocks(tokens)));
    this.prefixes = [...prefixes];
    while (this.heldBytes > this.limitBytes) this.prefixes.pop();
  }

  get heldBytes(): number {
    const ofPrefixes = this.prefixes.reduce((sum, bytes) => sum + bytes, 0);
    return ofPrefixes + this.running.reduce((sum, { written }) => sum + rowBlocks(written), 0);
  }

  /** Runs one pass with all due rows of each sequence, if there is room. */
  pass(joins: number, silent: ReadonlySet<number>): void {
    for (const { id, promptTokens, tokens } of this.waiting.splice(0, joins)) {
      this.running.push({ id, tokens: promptTokens, last: tokens, written: 0 });
    }
    const named = new Map(
      this.running
        .filter(({ id }) => !silent.has(id))
        .map(({ id, written, tokens }) => [id, Math.min(tokens, written + this.maxRows)]),
    );
    const oldest = this.running[0]?.id;
    for (;;) {
      const step = planRoom(this.state(named));
      if (step.kind === 'drop') {
        this.prefixes.shift();
      } else if (step.kind === 'preempt') {
        assert.notEqual(step.id, oldest, 'the oldest keeps its memory');
        const member = this.running.find(({ id }) => id === step.id);
        assert.ok(member !== undefined && member.written > 0);
        member.written = 0;
        named.delete(step.id);
        this.preemptions += 1;
      } else {
        assert.ok(oldest === undefined || !named.has(oldest) || step.ids.includes(oldest), 'the oldest gets on');
        this.run(new Set(step.ids), named);
        return;
      }
    }
  }

  private run(ids: ReadonlySet<number>, ends: ReadonlyMap<number, number>): void {
    for (const member of [...this.running]) {
      if (!ids.has(member.id)) continue;
      member.written = ends.get(member.id) ?? 0;
      if (member.written < member.tokens) continue;
      member.tokens += 1;
      if (member.tokens > member.last) this.running.splice(this.running.indexOf(member), 1);
    }
    this.passes += 1;
    assert.ok(this.heldBytes <= this.limitBytes, 'the limit holds');
  }

  private state(ends: ReadonlyMap<number, number>): RoomState {
    const members = this.running.map(({ id, written, tokens }): RoomMember => {
      const end = ends.get(id);
      return {
        id,
        holds: written > 0,
        isBusy: false,
        needBytes: end === undefined ? null : rowBlocks(end) - rowBlocks(written),
        dueBytes: rowBlocks(tokens) - rowBlocks(written),
      };
    });
    const prefixBytes = this.prefixes.reduce((sum, bytes) => sum + bytes, 0);
    const { limitBytes, heldBytes } = this;
    return {
      limitBytes,
      heldBytes,
      prefixBytes,
      returningBytes: 0,
      prefixes: this.prefixes.length,
      rowBlockBytes: 1,
      mayTakeFromIdle: false,
      members,
    };
  }

  get isDone(): boolean {
    return this.running.length + this.waiting.length === 0;
  }
}

function rowBlocks(positions: number): number {
  return Math.ceil(positions / ROW_BLOCK_POSITIONS);
}

const drawn = fc
  .record({ promptTokens: fc.integer({ min: 1, max: 100 }), answer: fc.integer({ min: 1, max: 60 }) })
  .map(({ promptTokens, answer }) => ({ promptTokens, tokens: promptTokens + answer }));

describe('memory for the rows of passes', () => {
  const member = (id: number, of: Partial<RoomMember>): RoomMember => ({
    id,
    holds: true,
    isBusy: false,
    needBytes: 1,
    dueBytes: 0,
    ...of,
  });
  const state = (of: Partial<RoomState>): RoomState => ({
    limitBytes: 10,
    heldBytes: 10,
    prefixBytes: 0,
    returningBytes: 0,
    prefixes: 0,
    rowBlockBytes: 1,
    mayTakeFromIdle: false,
    members: [],
    ...of,
  });

  it('lets every sequence end, keeps the limit, and is never taken from the oldest', () => {
    fc.assert(
      fc.property(
        fc.array(drawn, { minLength: 1, maxLength: 8 }),
        fc.integer({ min: 0, max: 8 }),
        fc.array(fc.integer({ min: 1, max: 4 }), { maxLength: 5 }),
        fc.integer({ min: 1, max: 64 }),
        fc.array(fc.record({ joins: fc.integer({ min: 0, max: 2 }), silent: fc.integer({ min: 0, max: 15 }) })),
        (requests, spareBytes, prefixes, maxRows, drawnTurns) => {
          const turns = [...drawnTurns, { joins: 1, silent: 15 }];
          const world = new World(
            requests.map((request, id) => ({ ...request, id })),
            spareBytes,
            prefixes,
            maxRows,
          );
          // The oldest sequence takes part in at least one turn of each round.
          const most = 2 * turns.length * requests.reduce((sum, { tokens }) => sum + tokens, 8);
          while (!world.isDone && world.passes < most) {
            const { joins, silent } = turns[world.passes % turns.length] ?? { joins: 1, silent: 15 };
            world.pass(joins, new Set([silent]));
          }
          assert.ok(world.isDone, `not all have ended after ${most} passes`);
        },
      ),
      { numRuns: 50 },
    );
  });

  it('is freed from prefixes before any sequence gives memory back', () => {
    const members = [member(1, {}), member(2, {})];
    assert.deepEqual(planRoom(state({ members, prefixes: 1 })), { kind: 'drop' });
    assert.deepEqual(planRoom(state({ members })), { kind: 'preempt', id: 2 });
  });

  it('is taken from the youngest, also without rows in the pass, and never from one in a running pass', () => {
    const members = [member(1, {}), member(2, {}), member(3, { needBytes: null })];
    assert.deepEqual(planRoom(state({ members })), { kind: 'preempt', id: 3 });
    const busy = [member(1, {}), member(2, {}), member(3, { needBytes: null, isBusy: true })];
    assert.deepEqual(planRoom(state({ members: busy })), { kind: 'preempt', id: 2 });
  });

  it('stays with the youngest that waits while no other sequence needs it', () => {
    const members = [member(1, { needBytes: 0 }), member(2, {}), member(3, { holds: false })];
    assert.deepEqual(planRoom(state({ members })), { kind: 'run', ids: [1] });
  });

  it('is waited for where it comes back by itself, and taken from others only as far as that does not do', () => {
    const members = [member(1, { needBytes: 2 }), member(2, {})];
    assert.deepEqual(planRoom(state({ members, prefixes: 1, returningBytes: 2 })), { kind: 'run', ids: [] });
    assert.deepEqual(planRoom(state({ members, prefixes: 1, returningBytes: 1 })), { kind: 'drop' });
    assert.deepEqual(planRoom(state({ members, returningBytes: 1 })), { kind: 'preempt', id: 2 });
    const oldest = [member(1, { needBytes: 2 })];
    assert.deepEqual(planRoom(state({ members: oldest, returningBytes: 1 })), { kind: 'run', ids: [] });
    assert.deepEqual(planRoom(state({ members: oldest })), { kind: 'run', ids: [1] });
  });

  it('is taken from sequences idle for long, the younger first, where none could run otherwise', () => {
    const members = [member(1, { needBytes: null }), member(2, {})];
    assert.deepEqual(planRoom(state({ members })), { kind: 'run', ids: [] });
    assert.deepEqual(planRoom(state({ members, mayTakeFromIdle: true })), { kind: 'preempt', id: 1 });
    const others = [...members, member(3, { needBytes: 0 })];
    assert.deepEqual(planRoom(state({ members: others, mayTakeFromIdle: true })), { kind: 'preempt', id: 3 });
  });

  it('is given to a new sequence only where it need not leave again at once', () => {
    const begins = member(2, { holds: false, needBytes: 1, dueBytes: 4 });
    const room = (heldBytes: number, dueBytes: number, prefixBytes = 0) =>
      planRoom(
        state({
          heldBytes,
          prefixBytes,
          prefixes: prefixBytes > 0 ? 1 : 0,
          members: [member(1, { needBytes: 0, dueBytes }), begins],
        }),
      );
    // The four row blocks that it has, and one more.
    assert.deepEqual(room(5, 0), { kind: 'run', ids: [1, 2] });
    assert.deepEqual(room(6, 0), { kind: 'run', ids: [1] });
    assert.deepEqual(room(5, 1), { kind: 'run', ids: [1] });
    assert.deepEqual(room(7, 0, 2), { kind: 'drop' });
    assert.deepEqual(room(8, 0, 2), { kind: 'run', ids: [1] });
  });
});
