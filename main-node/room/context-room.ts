import type { YieldingMemory } from '../../engine/daemon/running-node.js';
import type { Device, Model } from '../../native/index.js';
import { formatByteSize } from '../../shared/base/text/byte-size.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { ROW_BLOCK_POSITIONS } from './sequence-memory.js';
import type { BatchMember, SequenceRoom } from '../batching/batch-member.js';
import type { MemberRows, PassMember } from '../pass/pass-member.js';
import type { Runtime } from '../../shared/base/runtime/runtime.js';
import { drafterBytes, drafterBytesDue, type HeadMemory, pendingBytes, returningBytes } from './drafter-memory.js';
import { planRoom, type RoomMember, type RoomState } from './plan-room.js';
import { PrefixStore, type SharedRows } from './prefix-store.js';
import { PositionTime } from '../stored-rows/plan-read.js';
import type { RowStore, RowStoreCounts } from '../stored-rows/row-store.js';
import { type RestoredRows, restoreRows } from './restore-rows.js';

/** A sequence that has wanted no rows for so long is preempted if no other sequence could run. */
export const IDLE_MEMORY_LIMIT_MS = 2000;

/** The setting or the memory that limits main's memory for rows. */
export type LimitSetBy = 'context_memory' | 'memory_budget' | 'free_memory';

/** Advice to the operator: how to raise the limit. */
export const TO_RAISE: Readonly<Record<LimitSetBy, string>> = {
  context_memory: 'raise main.context_memory, or leave it out',
  memory_budget: "raise main's memory budget (--memory-budget)",
  free_memory: 'free memory where main runs, or say by main.context_memory how much it may take',
};

export interface ContextRoomOptions {
  readonly runtime: Pick<Runtime, 'nowMs' | 'nextTurn'>;
  readonly model: Pick<Model, 'sequenceBytes'>;
  /** The device that holds the rows; left out: nothing else uses its memory. */
  readonly device?: Pick<Device, 'info'>;
  /** Memory of experts on the same device; null: there are none. Experts yield before any sequence does. */
  readonly experts?: YieldingMemory | null;
  /** Most memory for the rows of all sequences and of retained prefixes. */
  readonly limitBytes: number;
  readonly limitSetBy: LimitSetBy;
  /** Most bytes that a sequence of so many positions takes if it shares nothing. */
  readonly bytesOf: (positions: number) => number;
  /** Most bytes of the decisions of so many rows, which count as memory for rows; left out: sequences decide nothing, or these bytes do not count. */
  readonly decisionBytesOf?: ((rows: number) => number) | null;
  /** The head of which each sequence has a drafter, in the same memory; null, or left out: there is none. */
  readonly head?: HeadMemory | null;
  /** Most positions of a sequence, given by the model. */
  readonly maxPositions: number;
  /** The model is recurrent: its sequences cannot be forked far before their end. */
  readonly isRecurrent: boolean;
  /** Rows are used again if a prompt begins like an earlier one. */
  readonly reusesPrefixes: boolean;
  /** Rows of earlier requests on disk; null, or left out: there are none. */
  readonly stored?: RowStore | null;
}

/** Counts of the room's work, and of the memory that it holds. */
export interface RoomCounts extends RowStoreCounts {
  /** Bytes of sequences, prefixes and the head's drafters together. */
  readonly keyValueBytes: number;
  readonly prefixBytes: number;
  /** Bytes of what sequences and prefixes have decided by their logical caches. They are not on the device, and count within the same limit. */
  readonly decisionBytes: number;
  readonly prefixes: number;
  /** Tokens of prompts that were not run, because their rows existed. */
  readonly cachedTokens: number;
  /** Prefixes that were dropped because memory was short. */
  readonly droppedPrefixes: number;
}

const NOTHING_STORED: RowStoreCounts = { storedBytes: 0, storedBlocks: 0, storedHits: 0, storedTokens: 0 };

interface HeldBytes extends Pick<RoomCounts, 'keyValueBytes' | 'prefixBytes' | 'decisionBytes'> {
  /** With the bytes that drafters take for rows that are written already. */
  readonly heldBytes: number;
  readonly freeableBytes: number;
  /** Bytes of drafters whose sequences were preempted, which come back by themselves. */
  readonly returningBytes: number;
}

interface Tenant {
  readonly member: BatchMember;
  /** Its number of positions when the room last looked for forks to save. */
  seen: number;
}

/** Main's memory for rows: shares it among sequences, and retains rows of earlier requests. */
export class ContextRoom implements SequenceRoom {
  private readonly prefixes = new PrefixStore();
  /** Running members, in the order of their admission. */
  private readonly tenants = new Map<number, Tenant>();
  /** Time of a position of prompts that ran. */
  private readonly runTime = new PositionTime();
  private cachedTokens = 0;
  private droppedPrefixes = 0;
  /** Time since which no sequence that wants to run can; null: one could. */
  private stuckSinceMs: number | null = null;

  constructor(private readonly options: ContextRoomOptions) {}

  counts(): RoomCounts {
    const { cachedTokens, droppedPrefixes, prefixes } = this;
    const { keyValueBytes, prefixBytes, decisionBytes } = this.held();
    const stored = this.options.stored?.counts() ?? NOTHING_STORED;
    const counts = {
      keyValueBytes,
      prefixBytes,
      decisionBytes,
      prefixes: prefixes.size,
      cachedTokens,
      droppedPrefixes,
    };
    return { ...counts, ...stored };
  }

  get limitBytes(): number {
    return this.options.limitBytes;
  }

  get limitSetBy(): LimitSetBy {
    return this.options.limitSetBy;
  }

  /** Bytes of the shortest answer. */
  get leastBytes(): number {
    return this.bytesOfAll(Math.min(ROW_BLOCK_POSITIONS, this.options.maxPositions));
  }

  /** Most positions that a request can have at all; 0: not even a row block fits. */
  get mostPositions(): number {
    const { limitBytes, maxPositions } = this.options;
    if (this.bytesOfAll(maxPositions) <= limitBytes) return maxPositions;
    // More positions never take fewer bytes. `fits` row blocks fit, and `tooMany` do not.
    let [fits, tooMany] = [0, Math.ceil(maxPositions / ROW_BLOCK_POSITIONS)];
    while (tooMany - fits > 1) {
      const rowBlocks = Math.floor((fits + tooMany) / 2);
      if (this.bytesOfAll(rowBlocks * ROW_BLOCK_POSITIONS) <= limitBytes) fits = rowBlocks;
      else tooMany = rowBlocks;
    }
    return fits * ROW_BLOCK_POSITIONS;
  }

  /** @throws DEVICE_OUT_OF_MEMORY if a request of so many positions could not run even as the only one */
  requireFits(positions: number): void {
    const { limitBytes, limitSetBy } = this.options;
    const neededBytes = this.bytesOfAll(positions);
    if (neededBytes <= limitBytes) return;
    throw new OdmoeError(
      'DEVICE_OUT_OF_MEMORY',
      `prompt and answer may take ${positions} positions, which need ${formatByteSize(neededBytes)} of main's memory for rows, and ` +
        `it has ${formatByteSize(limitBytes)}: ask for fewer tokens (max_tokens) or shorten the prompt, or ${TO_RAISE[limitSetBy]}`,
    );
  }

  /** True if a request could begin now: its prompt's rows and one more row block fit beside the memory that others hold and are going to need. */
  admits(promptTokens: number): boolean {
    const { heldBytes, freeableBytes, returningBytes: ofLeavers } = this.held();
    const dueBytes = this.members.reduce((sum, member) => sum + this.dueBytes(member), 0);
    const neededBytes = this.bytesOfAll(promptTokens) + this.rowBlockBytes;
    return heldBytes - freeableBytes - ofLeavers + dueBytes + neededBytes <= this.options.limitBytes;
  }

  /** The member runs from now on. Members come in the order of their admission. */
  enter(member: BatchMember): void {
    this.tenants.set(member.id, { member, seen: 0 });
  }

  /**
   * The member has ended, and no pass works on it. Its rows are retained for others if they are worth it. Takes the sequence over. `isSound`: the
   * answer has not failed.
   */
  leave(
    { id, client, sequence, provenance, decisions = null, isTainted }: BatchMember,
    tokenIds: readonly number[],
    isSound: boolean,
  ): void {
    this.tenants.delete(id);
    if (this.options.reusesPrefixes && isSound && !isTainted) {
      this.options.stored?.keep({ id, client, sequence, tokenIds, provenance });
      this.prefixes.keep({ id, sequence, tokenIds, provenance, decisions });
    } else sequence.dispose();
    if (!isSound) this.prefixes.forget(id);
  }

  /** The worker gave wrong values: no rows that it took part in are retained or stored. */
  distrust(workerId: string): void {
    this.prefixes.distrust(workerId);
    this.options.stored?.distrust(workerId);
  }

  /** Number of sequences that no request uses and whose rows are held: for later prompts, or until they are on the disk. */
  get heldSequences(): number {
    return this.prefixes.size + (this.options.stored?.held ?? 0);
  }

  /** Workers that took part in retained rows. */
  get retainedFrom(): Set<string> {
    return this.prefixes.workerIds;
  }

  /**
   * Forks rows of another sequence, running or retained, that begins with the same tokens as the member, up to its first `most` tokens; null: there
   * are none. `isRunning`: a pass works on that sequence, which is then left alone.
   */
  share(wanting: BatchMember, most: number, isRunning: (member: PassMember) => boolean): SharedRows | null {
    if (!this.options.reusesPrefixes) return null;
    const others = [...this.tenants.values()].flatMap(({ member }) =>
      member.id === wanting.id || isRunning(member) || member.isTainted ? [] : [member],
    );
    const shared = this.prefixes.fork(wanting.tokenIds, most, others);
    this.cachedTokens += shared?.positions ?? 0;
    return shared;
  }

  /**
   * Writes rows that lie on the disk into the member's memory, up to its first `most` tokens, if that is more than it has. Null: none have come. No
   * rows of the member may wait for a pass.
   */
  async restore(wanting: BatchMember, most: number): Promise<RestoredRows | null> {
    const { stored: store = null, runtime } = this.options;
    if (store === null) return null;
    const makeRoom = (end: number): boolean => this.makesRoomUpTo(wanting, end);
    const restored = await restoreRows(wanting, most, { store, runtime, runMs: this.runTime.ms, makeRoom });
    this.cachedTokens += restored?.positions ?? 0;
    return restored;
  }

  /** A prompt has run so many positions within this time. */
  notePrompt(positions: number, ms: number): void {
    this.runTime.note(positions, ms);
  }

  /** Writes what the store is to have. Resolves when nothing of it is under way; before dispose(). */
  async closeStore(): Promise<void> {
    await this.options.stored?.close();
  }

  prepare(rows: readonly MemberRows[], isRunning: (member: PassMember) => boolean): MemberRows[] {
    const wanted = new Map(rows.map((row) => [row.member.id, row]));
    for (const { member } of rows) this.passBy(member.id);
    for (;;) {
      const step = planRoom(this.state(wanted, isRunning));
      if (step.kind === 'run') {
        if (!this.expertsYield(this.deviceBytesOf(wanted, step.ids))) return [];
        this.noteRunning(step.ids.length > 0);
        return rows.filter(({ member }) => wanted.has(member.id) && step.ids.includes(member.id));
      }
      if (step.kind === 'drop') {
        this.dropFirst();
      } else {
        wanted.delete(step.id);
        this.tenants.get(step.id)?.member.preempt();
      }
    }
  }

  /** The device has refused memory although the room expected enough: experts yield, or else all prefixes go. Returns false if there was neither. */
  makeRoom(): boolean {
    if ((this.options.experts?.yieldBytes(this.rowBlockBytes) ?? 0) > 0) return true;
    const held = this.heldSequences;
    while (this.dropFirst());
    return held > 0;
  }

  dispose(): void {
    this.prefixes.dispose();
  }

  /**
   * Lets experts on the same device yield to rows that are to run. Returns false if the memory of these experts is in use at present, so that the
   * rows wait for it. If experts have nothing more to yield, the device decides.
   */
  private expertsYield(neededBytes: number): boolean {
    const { experts, device } = this.options;
    const { budgetBytes = 0, usedBytes = 0 } = device?.info() ?? {};
    if (experts === null || experts === undefined || budgetBytes === 0) return true;
    const lackedBytes = neededBytes - (budgetBytes - usedBytes);
    if (lackedBytes <= 0 || experts.yieldableBytes <= 0) return true;
    return experts.yieldBytes(lackedBytes) >= lackedBytes || experts.yieldableBytes <= 0;
  }

  /** Bytes that the rows of these members newly take on the device, with those that drafters are about to take. */
  private deviceBytesOf(wanted: ReadonlyMap<number, MemberRows>, ids: readonly number[]): number {
    return ids.reduce((sum, id) => {
      const [rows, member] = [wanted.get(id), this.tenants.get(id)?.member];
      if (rows === undefined || member === undefined) return sum;
      return sum + bytesToWrite(rows) + this.drafterBytesDue(member, endOf(rows));
    }, this.pendingBytes);
  }

  /** Bytes of one more row block for a sequence that goes on. */
  private get rowBlockBytes(): number {
    return this.bytesOfAll(2 * ROW_BLOCK_POSITIONS) - this.bytesOfAll(ROW_BLOCK_POSITIONS);
  }

  private dropFirst(): boolean {
    // Rows that go are on the disk soon if they wait to be written: their memory goes last.
    if (!this.prefixes.dropFirst()) return this.options.stored?.giveUpOne() === true;
    this.droppedPrefixes += 1;
    return true;
  }

  /** Makes room for stored rows. As for a prompt that begins, all its tokens and those of the others have to fit; only prefixes go for it. */
  private makesRoomUpTo({ sequence, written }: BatchMember, end: number): boolean {
    const { limitBytes } = this.options;
    const neededBytes = sequence.bytesToWrite(written, end);
    const dueBytes = this.members.reduce((sum, member) => sum + this.dueBytes(member), 0);
    const { heldBytes, freeableBytes } = this.held();
    if (heldBytes - freeableBytes + dueBytes + this.rowBlockBytes > limitBytes) return false;
    while (this.held().heldBytes + neededBytes > limitBytes) if (!this.dropFirst()) return false;
    return this.expertsYield(neededBytes + this.pendingBytes);
  }

  private noteRunning(somebodyRuns: boolean): void {
    if (somebodyRuns) this.stuckSinceMs = null;
    else this.stuckSinceMs ??= this.options.runtime.nowMs();
  }

  private get isStuckForLong(): boolean {
    const { stuckSinceMs } = this;
    return stuckSinceMs !== null && this.options.runtime.nowMs() - stuckSinceMs >= IDLE_MEMORY_LIMIT_MS;
  }

  private passBy(id: number): void {
    const tenant = this.tenants.get(id);
    if (tenant === undefined || !this.options.isRecurrent || !this.options.reusesPrefixes) return;
    const { member, seen } = tenant;
    tenant.seen = member.written;
    if (member.written > seen) this.prefixes.passBy(member, seen);
  }

  private state(wanted: ReadonlyMap<number, MemberRows>, isRunning: (member: PassMember) => boolean): RoomState {
    const { limitBytes } = this.options;
    const { heldBytes, freeableBytes: prefixBytes, returningBytes: ofLeavers } = this.held();
    const members = this.members.map((member): RoomMember => {
      const rows = wanted.get(member.id);
      return {
        id: member.id,
        holds: member.written > 0,
        isBusy: isRunning(member),
        needBytes: rows === undefined ? null : this.needBytes(member, rows),
        dueBytes: this.dueBytes(member),
      };
    });
    return {
      limitBytes,
      heldBytes,
      prefixBytes,
      returningBytes: ofLeavers,
      prefixes: this.heldSequences,
      rowBlockBytes: this.rowBlockBytes,
      mayTakeFromIdle: this.isStuckForLong,
      members,
    };
  }

  private needBytes(member: BatchMember, rows: MemberRows): number {
    return bytesToWrite(rows) + this.decisionBytesDue(member, endOf(rows)) + this.drafterBytesDue(member, endOf(rows));
  }

  private dueBytes(member: BatchMember): number {
    const { tokenIds, written } = member;
    const { bytesOf } = this.options;
    const begin = Math.min(written, tokenIds.length);
    const rowBytes = bytesOf(tokenIds.length) - bytesOf(begin) + this.drafterBytesDue(member, tokenIds.length);
    return rowBytes + this.decisionBytesDue(member, tokenIds.length);
  }

  /** Most bytes of a sequence of so many positions that shares nothing: its rows, what they decide, and the rows of its drafter. */
  private bytesOfAll(positions: number): number {
    const { bytesOf, decisionBytesOf, head = null } = this.options;
    const ofDrafter = head === null ? 0 : drafterBytes(head, positions);
    return bytesOf(positions) + (decisionBytesOf?.(positions) ?? 0) + ofDrafter;
  }

  private drafterBytesDue(member: BatchMember, end: number): number {
    const { head = null } = this.options;
    return head === null ? 0 : drafterBytesDue(head, member, end);
  }

  /** Bytes that drafters are about to take for rows that are written. */
  private get pendingBytes(): number {
    const { head = null } = this.options;
    return head === null ? 0 : this.members.reduce((sum, member) => sum + pendingBytes(head, member), 0);
  }

  private get members(): BatchMember[] {
    return [...this.tenants.values()].map(({ member }) => member);
  }

  /** Bytes that the decisions of so many rows take beyond those that the member has. It keeps these while it is preempted. */
  private decisionBytesDue({ decisions }: BatchMember, rows: number): number {
    const { decisionBytesOf } = this.options;
    return Math.max(0, (decisionBytesOf?.(rows) ?? 0) - (decisions?.bytes ?? 0));
  }

  /** Bytes that are held, and those of them that go when all prefixes are dropped. */
  private held(): HeldBytes {
    const { model, decisionBytesOf, head = null } = this.options;
    const counts = decisionBytesOf !== undefined && decisionBytesOf !== null;
    const { members } = this;
    const ofMembers = members.reduce((sum, { decisions }) => sum + (decisions?.bytes ?? 0), 0);
    const [ofRunning, ofPrefixes] = counts ? [ofMembers, this.prefixes.decisionBytes] : [0, 0];
    const keyValueBytes = model.sequenceBytes + (head?.heldBytes ?? 0);
    const prefixBytes = this.prefixBytes(members);
    const decisionBytes = ofRunning + ofPrefixes;
    return {
      keyValueBytes,
      prefixBytes,
      decisionBytes,
      heldBytes: keyValueBytes + decisionBytes + this.pendingBytes,
      freeableBytes: prefixBytes + ofPrefixes,
      returningBytes: head === null ? 0 : members.reduce((sum, member) => sum + returningBytes(head, member), 0),
    };
  }

  /** Bytes of rows of prefixes alone. Rows that sequences share count for each of them, so that the share of sequences is never too low. */
  private prefixBytes(members: readonly BatchMember[]): number {
    if (this.heldSequences === 0) return 0;
    const { model, bytesOf } = this.options;
    const ofSequences = members.reduce((sum, { written }) => sum + bytesOf(written), 0);
    return Math.max(0, model.sequenceBytes - ofSequences);
  }
}

/** The number of rows that the sequence has after these. */
function endOf({ position, tokenIds }: MemberRows): number {
  return position + tokenIds.length;
}

/** Bytes that writing these rows newly takes. */
function bytesToWrite(rows: MemberRows): number {
  return rows.member.sequence.bytesToWrite(rows.position, endOf(rows));
}
