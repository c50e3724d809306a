import { setMaxListeners } from 'node:events';
import { assertInvariant } from '../../shared/base/errors/assert-invariant.js';
import { toOdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { ErrorCode } from '../../shared/base/errors/registry.js';
import type { PassCounts } from '../../shared/wire/messages.js';
import type { Runtime, Timer } from '../../shared/base/runtime/runtime.js';
import type { MemberRows, RunPass } from '../pass/pass-member.js';
import type { ReusablePasses } from '../pass/reusable-passes.js';
import type { BatchMember, SequenceRoom } from './batch-member.js';
import { PromptChunkSizer } from './prompt-chunk-rows.js';
import { LoopMember, type RowsWanted } from './loop-member.js';
import { isAnswer, planMainPass, type PassBudget, type PlannedRows } from './plan-pass.js';

/** Time that the loop waits for members of the last pass: a share of that pass's time, within these bounds. */
const RETURN_SHARE = 0.1;
export const RETURN_LEAST_MS = 5;
const RETURN_LIMIT_MS = 50;

/**
 * The reason why a pass that could begin waits. 'return': for members of the last pass. 'turn': for one turn of the event loop and no more, in which
 * other members that ask at the same time come, or members that were late before.
 */
type WaitFor = 'return' | 'turn';

/** The wait of a loop whose next pass could begin. */
class PassWait {
  /** The wait has been long enough. */
  isOver = false;
  private what: WaitFor | null = null;
  private timer: Timer | null = null;

  constructor(
    private readonly runtime: Pick<Runtime, 'after' | 'nextTurn'>,
    private readonly onOver: () => void,
  ) {}

  /** Waits for this reason from now on; a wait for the same reason goes on. */
  begin(what: WaitFor, lastPassMs: number): void {
    if (what === this.what) return;
    this.timer?.cancel();
    this.what = what;
    const over = (): void => {
      this.isOver = true;
      this.timer = null;
      this.onOver();
    };
    this.timer = what === 'turn' ? this.runtime.nextTurn(over) : this.runtime.after(returnLimitMs(lastPassMs), over);
  }

  /** Ends the wait: a pass begins, or no member is left that could. */
  end(): void {
    this.timer?.cancel();
    this.timer = null;
    this.what = null;
    this.isOver = false;
  }
}

function returnLimitMs(lastPassMs: number): number {
  return Math.min(RETURN_LIMIT_MS, Math.max(RETURN_LEAST_MS, RETURN_SHARE * lastPassMs));
}

/**
 * Counts the prompt rows that each client has had, so that the client with the fewest comes first. A client that begins to wait is raised to the
 * level of those that wait already. So time without a prompt is not saved up, and rows of long ago do not count against any client.
 */
export class ClientShares {
  private readonly rows = new Map<string, number>();
  private waiting: ReadonlySet<string> = new Set();
  /** Rows of the client that had had the fewest when the last pass was planned. */
  private level = 0;

  /** Takes the clients whose prompts wait, before a pass is planned. Returns the rows that each client has had. */
  enter(clients: Iterable<string>): ReadonlyMap<string, number> {
    const waiting = new Set(clients);
    for (const [client, rows] of this.rows) if (!waiting.has(client) && rows <= this.level) this.rows.delete(client);
    for (const client of waiting) {
      if (!this.waiting.has(client)) this.rows.set(client, Math.max(this.rows.get(client) ?? 0, this.level));
    }
    this.waiting = waiting;
    if (waiting.size > 0) this.level = Math.min(...[...waiting].map((client) => this.rows.get(client) ?? 0));
    return this.rows;
  }

  took(client: string, rows: number): void {
    this.rows.set(client, (this.rows.get(client) ?? 0) + rows);
  }
}

/** Failures that concern all members: every other pass would meet them, too. */
const EVERYBODYS_FAILURES: ReadonlySet<ErrorCode> = new Set(['NO_WORKERS', 'DEVICE_LOST']);

/** Time after which room is looked for again when there is none for any rows. */
const ROOM_RETRY_MS = 250;

export interface PassLoopOptions {
  /** True: one joint pass after another; false: one sequence a pass, passes side by side. */
  readonly joint: boolean;
  /** Most rows of a joint pass; without joint passes, most rows of an answer in a pass. */
  readonly maxRows: number;
  /** Rows of a prompt chunk while no answer waits for its next token. */
  readonly promptChunkRows: number;
  /** Longest time that a prompt chunk may delay a token; `auto`: see longestPassMs. */
  readonly maxDelayMs: number | 'auto';
  readonly runPass: RunPass;
  readonly room: SequenceRoom;
  /** Passes of maxRows rows: one if passes are joint, else as many as answers run at a time. */
  readonly passes: ReusablePasses;
  /** Passes for prompt chunks: the same ones if passes are joint, else one of promptChunkRows rows. */
  readonly promptChunkPasses: ReusablePasses;
  readonly runtime: Runtime;
}

interface PlannedMember {
  member: LoopMember;
  rows: MemberRows;
}

/**
 * Runs the rows of all sequences. If passes are joint: one pass after another, planned by planMainPass. The next one begins when all members of the
 * last one are back with their next token, or have ended, or after a short wait (PassWait). The loop does not wait again for a member that was late
 * until it has been in time. Otherwise: one sequence a pass, all answers side by side, and one prompt chunk at a time.
 */
export class PassLoop {
  private readonly counts = { passes: 0, rows: 0, preemptions: 0 };
  private readonly members = new Map<number, LoopMember>();
  /** Members that have left and may still have memory. */
  private readonly leaving = new Map<number, LoopMember>();
  private readonly shares = new ClientShares();
  private readonly promptChunks: PromptChunkSizer;
  private readonly wait: PassWait;
  private readonly never = new AbortController().signal;
  private lastPass: readonly LoopMember[] = [];
  private lastPassMs = 0;
  private runningPasses = 0;
  private runningPromptChunks = 0;
  private retry: Timer | null = null;

  constructor(private readonly options: PassLoopOptions) {
    // All passes of one sequence that wait for their turn listen to it.
    setMaxListeners(0, this.never);
    this.promptChunks = new PromptChunkSizer({ maxDelayMs: options.maxDelayMs, limit: options.maxRows });
    this.wait = new PassWait(options.runtime, () => this.consider());
  }

  /** True if several sequences share passes at present. */
  get isShared(): boolean {
    return this.options.joint && this.members.size > 1;
  }

  /** Most rows that an answer may have in a pass at present, including the row of its own token. */
  get answerRowsLimit(): number {
    const { joint, maxRows } = this.options;
    return joint ? Math.max(1, Math.floor(maxRows / Math.max(1, this.members.size))) : maxRows;
  }

  /** Sequences whose answers share the passes. */
  get answeringCount(): number {
    return [...this.members.values()].filter((member) => isAnswer(member)).length;
  }

  /** No sequence runs its prompt at present. */
  get hasAnswersAlone(): boolean {
    return this.answeringCount === this.members.size;
  }

  /** True while no sequence runs. */
  get isEmpty(): boolean {
    return this.members.size === 0 && this.leaving.size === 0;
  }

  /** Number of members whose rows wait for a pass. */
  get waitingCount(): number {
    return this.ready().length;
  }

  passCounts(): PassCounts {
    return { ...this.counts, waiting: this.waitingCount };
  }

  /** Number of passes that run and of members that wait for one. */
  get openCount(): number {
    return this.runningPasses + this.waitingCount;
  }

  /** A member has given its memory back; passes fill it again. */
  countPreemption(): void {
    this.counts.preemptions += 1;
  }

  join(member: BatchMember): void {
    this.members.set(member.id, new LoopMember(member));
  }

  /** The worker gave wrong values: rows that it took part in run anew, those of running passes when these have ended. */
  distrust(workerId: string): void {
    for (const { member } of this.leaving.values()) member.distrust(workerId);
    for (const { member, isBusy } of this.members.values()) {
      member.distrust(workerId);
      if (!isBusy) member.computeAnew();
    }
    this.consider();
  }

  /** The member's rows are not wanted any more. Resolves when no pass works on it; memoryFreed() must follow. */
  async leave({ id }: BatchMember): Promise<void> {
    const member = this.members.get(id);
    if (member === undefined) return;
    this.members.delete(id);
    this.leaving.set(id, member);
    if (this.members.size === 0) {
      this.lastPass = [];
      this.wait.end();
      this.endRetry();
    }
    this.consider();
    await member.idle();
  }

  /** A member that has left has freed its memory, which others can have now. */
  memoryFreed({ id }: BatchMember): void {
    this.leaving.delete(id);
    this.consider();
  }

  /** A member that goes on has given memory back by itself, which passes can have now. */
  memoryReturned(): void {
    this.consider();
  }

  /** True if a pass works on the member. */
  isBusy({ id }: Pick<BatchMember, 'id'>): boolean {
    return (this.members.get(id) ?? this.leaving.get(id))?.isBusy === true;
  }

  /**
   * Runs the member's rows, in as many passes as needed. Rejects with the error of a pass that ran this member alone, or with an error that every
   * other pass would meet, too. Rejects with CANCELLED as soon as the member's signal aborts; a pass may still work on it then.
   */
  run({ id }: BatchMember, wanted: RowsWanted): Promise<void> {
    const member = this.members.get(id);
    assertInvariant(member !== undefined, 'who wants rows has joined the loop.');
    const done = member.want(wanted, () => this.consider());
    this.consider();
    return done;
  }

  dispose(): void {
    this.wait.end();
    this.endRetry();
    this.options.passes.dispose();
    this.options.promptChunkPasses.dispose();
  }

  private ready(): LoopMember[] {
    return [...this.members.values()].filter(({ isReady }) => isReady);
  }

  /** No rows have room at present. Looks again later, when other members may have freed memory. */
  private considerLater(): void {
    this.retry ??= this.options.runtime.after(ROOM_RETRY_MS, () => {
      this.retry = null;
      this.consider();
    });
  }

  private endRetry(): void {
    this.retry?.cancel();
    this.retry = null;
  }

  /** Begins the passes that can begin. */
  private consider(): void {
    if (this.options.joint) this.considerJoint();
    else this.considerSingle();
  }

  private considerJoint(): void {
    if (this.runningPasses > 0) return;
    const ready = this.ready();
    if (ready.length === 0) return;
    const waitFor = this.wait.isOver ? null : this.waitFor();
    if (waitFor !== null) {
      this.wait.begin(waitFor, this.lastPassMs);
      return;
    }
    this.wait.end();
    for (const member of this.lastPass) member.isLate = !member.isReady;
    const { maxRows } = this.options;
    const prepared = this.planWithRoom(ready, { maxRows, promptChunkRows: this.promptChunkRows(ready) });
    if (prepared.length === 0) return this.considerLater();
    this.lastPass = prepared.map(({ member }) => member);
    void this.runJoint(prepared);
  }

  private waitFor(): WaitFor | null {
    if (this.lastPass.length === 0) return 'turn';
    const away = this.lastPass.filter((member) => this.members.has(member.id) && !member.isReady);
    if (away.length === 0) return null;
    return away.every(({ isLate }) => isLate) ? 'turn' : 'return';
  }

  /** Number of rows of the next pass that may be prompt chunks. Prompt chunks also delay answers whose next token has not come yet. */
  private promptChunkRows(ready: readonly LoopMember[]): number {
    const { maxRows, promptChunkRows } = this.options;
    if (![...this.members.values()].some((member) => isAnswer(member))) return Math.min(maxRows, promptChunkRows);
    const rows = ready.reduce((sum, member) => sum + (isAnswer(member) ? member.end - member.written : 0), 0);
    return this.promptChunks.rows(Math.min(rows, maxRows));
  }

  /**
   * The rows of the next pass that memory has room for; rows of prompts count for their clients from now on. If a prompt waits for room to begin,
   * prompts that have begun run in its place. No other prompt begins then: the first one would have to wait for the room that it took.
   */
  private planWithRoom(ready: readonly LoopMember[], budget: PassBudget, mostMembers = Infinity): PlannedMember[] {
    const prompts = ready.filter((member) => !isAnswer(member));
    const served = this.shares.enter(prompts.map(({ client }) => client));
    const plan = (among: readonly LoopMember[]): PlannedRows<LoopMember>[] =>
      planMainPass(among, served, budget).slice(0, mostMembers);
    const planned = plan(ready);
    let prepared = this.prepare(planned);
    const roomFor = new Set(prepared.map(({ member }) => member));
    if (planned.some(({ member }) => member.written === 0 && !roomFor.has(member)))
      prepared = this.prepare(plan(ready.filter((member) => member.written > 0 || roomFor.has(member))));
    for (const { member, rows } of prepared) {
      if (rows.decodeFrom > 0) this.shares.took(member.client, rows.decodeFrom);
    }
    return prepared;
  }

  /** The planned members that memory has room for. */
  private prepare(planned: readonly PlannedRows<LoopMember>[]): PlannedMember[] {
    const wanted = planned.map(({ member, rows }) => ({ member, rows: member.rows(rows) }));
    const roomFor = new Set(
      this.options.room
        .prepare(
          wanted.map(({ rows }) => rows),
          (member) => this.isBusy(member),
        )
        .map(({ member }) => member.id),
    );
    return wanted.filter(({ member }) => roomFor.has(member.id));
  }

  private async runJoint(prepared: readonly PlannedMember[]): Promise<void> {
    const begunMs = this.options.runtime.nowMs();
    const answerRows = rowsOf(prepared.filter(({ member }) => isAnswer(member)));
    const promptChunkRows = rowsOf(prepared) - answerRows;
    this.runningPasses += 1;
    try {
      this.begin(prepared);
      await this.runTogether(prepared);
      this.lastPassMs = this.options.runtime.nowMs() - begunMs;
      this.promptChunks.ran({ answerRows, promptChunkRows, ms: this.lastPassMs });
    } catch (thrown) {
      const { code } = toOdmoeError(thrown);
      // A joint pass is cancelled only when no member is left.
      const concernsAll = prepared.length === 1 || code === 'CANCELLED' || EVERYBODYS_FAILURES.has(code);
      if (concernsAll) failAll(prepared, thrown);
      else await this.runOneByOne(prepared);
    }
    this.runningPasses -= 1;
    for (const { member } of prepared) member.release();
    this.consider();
  }

  private begin(prepared: readonly PlannedMember[]): void {
    this.counts.passes += 1;
    this.counts.rows += rowsOf(prepared);
    for (const { member, rows } of prepared) member.begin(rows, this.counts.passes);
  }

  private async runTogether(prepared: readonly PlannedMember[], passes = this.options.passes): Promise<void> {
    const rows = prepared.map((planned) => planned.rows);
    const running = passes.use(this.never, (slot) => this.options.runPass(slot, rows, () => this.following(prepared)));
    const logits = await running.catch((thrown: unknown) => {
      // Rows of a failed pass are dropped.
      for (const { member, position } of rows) member.sequence.truncate(position);
      throw thrown;
    });
    for (const [index, { member }] of prepared.entries()) member.ran(logits[index] ?? []);
  }

  /** The next rows of a prompt that is alone in its pass, while no other member waits. Null: the next pass is not certain. */
  private following(prepared: readonly PlannedMember[]): MemberRows[] | null {
    const [only] = prepared;
    const { joint, maxRows, promptChunkRows } = this.options;
    if (only === undefined || prepared.length > 1 || this.waitingCount > 0) return null;
    if (joint && this.members.size > 1) return null;
    const { member, rows } = only;
    const position = rows.position + rows.tokenIds.length;
    if (position >= Math.min(member.end, member.decodeFrom)) return null;
    return [member.rows(Math.min(member.end - position, promptChunkRows, joint ? maxRows : promptChunkRows), position)];
  }

  /** Runs the members one by one after a joint pass that one of them may have failed: no answer ends because of another one's rows. */
  private async runOneByOne(prepared: readonly PlannedMember[]): Promise<void> {
    for (const [index, planned] of prepared.entries()) {
      const { member, rows } = planned;
      if (rows.member.signal.aborted) continue;
      try {
        await this.runTogether([planned]);
      } catch (thrown) {
        if (EVERYBODYS_FAILURES.has(toOdmoeError(thrown).code)) return failAll(prepared.slice(index), thrown);
        member.fail(thrown);
      }
    }
  }

  private considerSingle(): void {
    const { maxRows, promptChunkRows } = this.options;
    for (const member of this.ready()) {
      if (isAnswer(member))
        this.beginSingle(this.prepare([{ member, rows: Math.min(member.end - member.written, maxRows) }]), false);
    }
    if (this.runningPromptChunks > 0) return;
    const prompts = this.ready().filter((member) => !isAnswer(member));
    if (prompts.length > 0)
      this.beginSingle(this.planWithRoom(prompts, { maxRows: promptChunkRows, promptChunkRows }, 1), true);
  }

  private beginSingle(prepared: readonly PlannedMember[], isPromptChunk: boolean): void {
    if (prepared.length > 0) void this.runSingle(prepared, isPromptChunk);
    else this.considerLater();
  }

  private async runSingle(prepared: readonly PlannedMember[], isPromptChunk: boolean): Promise<void> {
    this.runningPasses += 1;
    if (isPromptChunk) this.runningPromptChunks += 1;
    try {
      this.begin(prepared);
      await this.runTogether(prepared, isPromptChunk ? this.options.promptChunkPasses : this.options.passes);
    } catch (thrown) {
      failAll(prepared, thrown);
    }
    this.runningPasses -= 1;
    if (isPromptChunk) this.runningPromptChunks -= 1;
    for (const { member } of prepared) member.release();
    this.consider();
  }
}

function rowsOf(prepared: readonly PlannedMember[]): number {
  return prepared.reduce((sum, { rows }) => sum + rows.tokenIds.length, 0);
}

function failAll(prepared: readonly PlannedMember[], error: unknown): void {
  for (const { member } of prepared) member.fail(error);
}
