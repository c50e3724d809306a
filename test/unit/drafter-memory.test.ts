import assert from 'node:assert/strict';
import fc from 'fast-check';
import type { BatchMember, DrafterRows } from '../../main-node/batching/batch-member.js';
import type { MemberRows } from '../../main-node/pass/pass-member.js';
import { ContextRoom } from '../../main-node/room/context-room.js';
import {
  drafterBytes,
  drafterBytesDue,
  type HeadMemory,
  pendingBytes,
  returningBytes,
} from '../../main-node/room/drafter-memory.js';
import { ROW_BLOCK_POSITIONS } from '../../main-node/room/sequence-memory.js';
import { RUNTIME } from '../wall.js';

const PASS_BYTES = 5;
const ROW_BYTES = 10;
const blocks = (positions: number): number => Math.ceil(positions / ROW_BLOCK_POSITIONS);

function headWith(members: readonly Pick<BatchMember, 'drafterRows'>[] = []): HeadMemory {
  const bytesOf = ({ drafterRows }: Pick<BatchMember, 'drafterRows'>): number => {
    const held = drafterRows?.held ?? null;
    return held === null ? 0 : PASS_BYTES + blocks(held);
  };
  return {
    heldBytes: members.reduce((sum, member) => sum + bytesOf(member), 0),
    passBytes: PASS_BYTES,
    rowBytesOf: blocks,
  };
}

const NONE: DrafterRows = { first: Infinity, held: null, isLeaving: false };

describe('memory of a drafter', () => {
  it('is promised with the rows that it is to follow, whether it holds them already or not', () => {
    const head = headWith();
    const position = fc.nat(2000);
    fc.assert(
      fc.property(position, position, position, fc.boolean(), (shared, own, more, isFed) => {
        const written = shared + own;
        const first = own > 0 ? shared : Infinity;
        const before = { written, drafterRows: { ...NONE, first } };
        const after = { written, drafterRows: { ...before.drafterRows, held: isFed && own > 0 ? own : null } };
        assert.equal(pendingBytes(head, before), own > 0 ? PASS_BYTES + blocks(own) : 0);
        if (isFed) assert.equal(pendingBytes(head, after), 0);
        const held = isFed && own > 0 ? PASS_BYTES + blocks(own) : 0;
        const due = drafterBytesDue(head, after, written + more);
        assert.equal(held + pendingBytes(head, after) + due, drafterBytes(head, own + more));
      }),
    );
  });

  it('comes back behind a preemption, and is due anew with the rows', () => {
    const head = headWith();
    const leaving = { written: 0, drafterRows: { first: Infinity, held: 300, isLeaving: true } };
    assert.equal(returningBytes(head, leaving), PASS_BYTES + 2);
    assert.equal(pendingBytes(head, leaving), 0);
    assert.equal(drafterBytesDue(head, leaving, 300), PASS_BYTES + 2);
    assert.equal(returningBytes(head, { written: 300, drafterRows: { first: 0, held: 300, isLeaving: false } }), 0);
  });

  it('is none where a sequence has no drafter', () => {
    const head = headWith();
    for (const member of [{ written: 300 }, { written: 300, drafterRows: null }])
      assert.deepEqual(
        [pendingBytes(head, member), drafterBytesDue(head, member, 600), returningBytes(head, member)],
        [0, 0, 0],
      );
  });
});

interface Wanted {
  readonly id: number;
  readonly written: number;
  readonly tokens: number;
  readonly drafterRows: DrafterRows | null;
}

describe('memory for sequences with drafters', () => {
  const memberOf = ({ id, written, tokens, drafterRows }: Wanted): BatchMember => {
    const sequence = { bytesToWrite: (position: number, end: number) => ROW_BYTES * (blocks(end) - blocks(position)) };
    const tokenIds = new Array<number>(tokens).fill(1);
    const counts = { preemptions: 0 };
    const preempt = (): void => {
      counts.preemptions += 1;
      member.written = 0;
    };
    const member = { id, tokenIds, written, sequence, drafterRows, preempt, counts };
    return member as unknown as BatchMember;
  };
  const preemptionsOf = (member: BatchMember): number =>
    (member as unknown as { counts: { preemptions: number } }).counts.preemptions;
  const roomOf = (
    limitBytes: number,
    members: readonly BatchMember[],
    device?: { budgetBytes: number; usedBytes: number },
    yielded: number[] = [],
  ): ContextRoom => {
    const room = new ContextRoom({
      runtime: RUNTIME,
      model: {
        get sequenceBytes() {
          return members.reduce((sum, { written }) => sum + ROW_BYTES * blocks(written), 0);
        },
      },
      ...(device === undefined ? {} : { device: { info: () => device as never } }),
      experts: {
        yieldableBytes: 100,
        yieldBytes: (bytes) => {
          yielded.push(bytes);
          return bytes;
        },
        takeBack: () => undefined,
      },
      limitBytes,
      limitSetBy: 'context_memory',
      bytesOf: (positions) => ROW_BYTES * blocks(positions),
      head: headWith(members),
      maxPositions: 4096,
      isRecurrent: false,
      reusesPrefixes: false,
    });
    for (const member of members) room.enter(member);
    return room;
  };
  const runs = (room: ContextRoom, member: BatchMember, tokens: number): number => {
    const tokenIds = new Array<number>(tokens).fill(1);
    return room.prepare([{ member, position: member.written, tokenIds } as unknown as MemberRows], () => false).length;
  };
  const BLOCK = ROW_BLOCK_POSITIONS;

  it('counts the passes of a drafter that begins behind rows of another sequence', () => {
    const oldest = memberOf({ id: 1, written: BLOCK, tokens: BLOCK, drafterRows: { ...NONE, first: 0, held: BLOCK } });
    const heir = memberOf({ id: 2, written: BLOCK, tokens: 2 * BLOCK, drafterRows: NONE });
    // Both hold a block; the oldest has a drafter; the heir needs one block, and a drafter with its passes and one block of rows.
    const needed = 2 * ROW_BYTES + (PASS_BYTES + 1) + ROW_BYTES + (PASS_BYTES + 1);
    assert.equal(runs(roomOf(needed, [oldest, heir]), heir, BLOCK), 1);
    assert.equal(runs(roomOf(needed - 1, [oldest, heir]), heir, BLOCK), 0);
    // One that is admitted takes a block and its drafter, and one more block with drafter's rows to go on with.
    const beside = needed + (ROW_BYTES + PASS_BYTES + 1) + (ROW_BYTES + 1);
    assert.deepEqual(
      [beside, beside - 1].map((limitBytes) => roomOf(limitBytes, [oldest, heir]).admits(BLOCK)),
      [true, false],
    );
  });

  it('counts the drafter of rows that have run, before it takes its memory', () => {
    const first = memberOf({ id: 1, written: BLOCK, tokens: BLOCK, drafterRows: { ...NONE, first: 0 } });
    const second = memberOf({ id: 2, written: BLOCK, tokens: 2 * BLOCK, drafterRows: null });
    const needed = 2 * ROW_BYTES + (PASS_BYTES + 1) + ROW_BYTES;
    const room = roomOf(needed, [first, second]);
    assert.equal(runs(room, second, BLOCK), 1);
    assert.equal(room.counts().keyValueBytes, 2 * ROW_BYTES, 'it is told as held once it is');
    assert.equal(runs(roomOf(needed - 1, [first, second]), second, BLOCK), 0);
  });

  it('waits for the drafter of a preempted sequence, and takes nothing from others meanwhile', () => {
    const oldest = memberOf({ id: 1, written: BLOCK, tokens: 2 * BLOCK, drafterRows: null });
    const holder = memberOf({ id: 2, written: BLOCK, tokens: BLOCK, drafterRows: null });
    const drafterRows = { first: Infinity, held: 6 * BLOCK, isLeaving: true };
    const preempted = memberOf({ id: 3, written: 0, tokens: 6 * BLOCK, drafterRows });
    const members = [oldest, holder, preempted];
    const needed = 2 * ROW_BYTES + ROW_BYTES;
    assert.equal(runs(roomOf(needed, members), oldest, BLOCK), 0);
    assert.deepEqual(members.map(preemptionsOf), [0, 0, 0]);
    // The drafter alone does not make room enough.
    runs(roomOf(needed - 1, members), oldest, BLOCK);
    assert.ok(preemptionsOf(holder) > 0);
    const returned = [oldest, holder, memberOf({ id: 3, written: 0, tokens: 6 * BLOCK, drafterRows: NONE })];
    assert.equal(runs(roomOf(needed, returned), oldest, BLOCK), 1);
    assert.ok(
      roomOf(needed + 6 * ROW_BYTES + PASS_BYTES + 6 + ROW_BYTES + PASS_BYTES + 1 + ROW_BYTES + 1, members).admits(
        BLOCK,
      ),
      'a request is admitted beside what comes back',
    );
  });

  it('is yielded by experts with the memory of rows, and for drafters that are behind', () => {
    const behind = memberOf({ id: 1, written: BLOCK, tokens: BLOCK, drafterRows: { ...NONE, first: 0 } });
    const begins = memberOf({ id: 2, written: 0, tokens: BLOCK, drafterRows: NONE });
    const yielded: number[] = [];
    const device = { budgetBytes: 100, usedBytes: 97 };
    assert.equal(runs(roomOf(1000, [behind, begins], device, yielded), begins, BLOCK), 1);
    assert.deepEqual(yielded, [ROW_BYTES + (PASS_BYTES + 1) + (PASS_BYTES + 1) - 3]);
  });
});
