import type { ExpertSlots } from '../../native/index.js';
import { OdmoeError, toOdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { Logger } from '../../shared/base/log/logger.js';
import { OverallMean } from '../loader/overall-mean.js';
import {
  NO_TIMES,
  type Execute,
  type ExpertResult,
  type ExpertRows,
  type WorkerReply,
} from '../../shared/wire/messages.js';
import { rowCount } from '../../shared/wire/pass-rows.js';

/** Rows of an execution that may run on the event loop's thread. */
export const SHORT_EXECUTION_ROWS = 4;

/** What the experts of one message may take there, in all, where loads come and go: so long a message about a load may have to wait. */
export const SHORT_EXECUTIONS_MS = 0.3;
/** Where everything has been there for QUIET_EXECUTIONS, and nothing waits behind them but the next layer. */
export const QUIET_EXECUTIONS_MS = 3;
export const QUIET_EXECUTIONS = 64;

/** Executions whose times count for the next ones. */
const EXECUTIONS_OF_MEAN = 16;
/** Of fewer nothing is foretold. */
const FEWEST_EXECUTIONS = 4;

/**
 * Foretells how long experts take on few rows, and says whether they are short enough to run on the thread of the event loop: a hand-off to
 * another thread and back costs two wake-ups, which is more than a short expert itself.
 */
export class ShortExecutions {
  private executions = 0;
  /** Of a row, or of a few: an expert's weights are read once for all of them. */
  private meanMs = 0;
  private quiet = 0;

  /** An expert has run; `loaded`: it had been loaded for that. */
  ran(rows: number, executeMs: number, loaded: boolean): void {
    this.quiet = loaded ? 0 : this.quiet + 1;
    if (rows > SHORT_EXECUTION_ROWS) return;
    this.executions += 1;
    this.meanMs += (executeMs - this.meanMs) / Math.min(this.executions, EXECUTIONS_OF_MEAN);
  }

  /** `experts`: of the message, that are there and not done. */
  isShort(rows: number, experts: number): boolean {
    if (rows > SHORT_EXECUTION_ROWS || this.executions < FEWEST_EXECUTIONS) return false;
    return experts * this.meanMs <= (this.quiet < QUIET_EXECUTIONS ? SHORT_EXECUTIONS_MS : QUIET_EXECUTIONS_MS);
  }
}

/** Experts that a worker holds for main to run, waiting or running, and the bytes of their hidden states; beyond either they are refused. */
export const MAX_HELD_EXPERTS = 4096;
export const MAX_HELD_EXECUTE_BYTES = 512 * 1024 * 1024;

/** An output of more rows than this is not held back for others of its request: sending it takes longer than a message of its own costs. */
export const BUNDLED_ROWS_LIMIT = 16;

const FLOAT_BYTES = 4;

/** An Execute of main's, until its last expert is answered. */
interface HeldRequest {
  readonly request: Execute;
  readonly arrivedMs: number;
  readonly reply: (reply: WorkerReply) => void;
  /** Experts that are not answered, nor done. */
  open: number;
  /** Of these, those that run. */
  running: number;
  /** Done, and not sent yet. */
  readonly done: ExpertResult[];
}

/** One expert of a request. */
interface HeldExpert extends ExpertRows {
  readonly of: HeldRequest;
  readonly rowCount: number;
}

/** The load that brought what is in a slot. */
export interface SlotLoadTimes {
  endedMs: number;
  /** 0: an earlier execution has told it already. */
  tookMs: number;
}

interface Execution {
  executeMs: number;
  /** When the device was called. */
  calledMs: number;
  /** When it began, having had others to run before. */
  begunMs: number;
}

/** What bounds an executor. */
export interface ExecutorLimits {
  experts: number;
  bytes: number;
}

/**
 * Runs experts on main's hidden states and answers; every expert of an execute taken is answered once, unless main went away. Results of
 * one execute that are ready together go together: what is done waits for what runs, never for what loads.
 */
export class ExpertExecutor {
  private readonly slots: ExpertSlots;
  private readonly maxRows: number;
  private readonly nowMs: () => number;
  private readonly log: Logger;
  private readonly onDeviceLost: (error: OdmoeError) => void;
  private readonly limits: ExecutorLimits;
  private readonly ownHeld = new Map<number, HeldExpert>();
  private readonly executeMs = new OverallMean();
  private readonly rowMs = new OverallMean();
  private readonly short = new ShortExecutions();
  private heldBytes = 0;
  private ownExecutions = 0;

  /** `maxRows`: what the slots were made for. */
  constructor(
    slots: ExpertSlots,
    maxRows: number,
    nowMs: () => number,
    log: Logger,
    onDeviceLost: (error: OdmoeError) => void = () => undefined,
    limits: ExecutorLimits = { experts: MAX_HELD_EXPERTS, bytes: MAX_HELD_EXECUTE_BYTES },
  ) {
    this.onDeviceLost = onDeviceLost;
    this.slots = slots;
    this.maxRows = maxRows;
    this.nowMs = nowMs;
    this.log = log;
    this.limits = limits;
  }

  get executions(): number {
    return this.ownExecutions;
  }

  get executeMsMean(): number {
    return this.executeMs.mean;
  }

  /** Experts that are not answered yet, and the bytes of hidden states that are kept for them. */
  get held(): { experts: number; bytes: number } {
    return { experts: this.ownHeld.size, bytes: this.heldBytes };
  }

  /** What running the experts of these tickets will take, as far as one can tell. */
  expectedMs(tickets: readonly number[]): number {
    return tickets.reduce((sum, ticket) => sum + (this.ownHeld.get(ticket)?.rowCount ?? 0) * this.rowMs.mean, 0);
  }

  /** Takes the request; its experts get the tickets from `firstTicket` on, in their order. Throws QUEUE_FULL. */
  hold(firstTicket: number, request: Execute, reply: (reply: WorkerReply) => void): void {
    const experts = request.experts.length;
    const { byteLength } = request.hidden;
    if (this.ownHeld.size + experts > this.limits.experts || this.heldBytes + byteLength > this.limits.bytes) {
      throw new OdmoeError(
        'QUEUE_FULL',
        `This worker holds ${this.ownHeld.size} experts to run with hidden states of ${this.heldBytes} bytes already: send it less at a time.`,
      );
    }
    const of: HeldRequest = { request, reply, arrivedMs: this.nowMs(), open: experts, running: 0, done: [] };
    const allRows = rowCount(request.rows);
    request.experts.forEach((asked, index) => {
      const rows = asked.rows.length === 0 ? allRows : asked.rows.length;
      this.ownHeld.set(firstTicket + index, { ...asked, of, rowCount: rows });
    });
    this.heldBytes += byteLength;
  }

  /** Runs the expert in the slot. `load`: the one that brought it. Never rejects. */
  async run(ticket: number, slot: number, wasLoaded: boolean, load: SlotLoadTimes): Promise<void> {
    const held = this.ownHeld.get(ticket);
    if (held === undefined) return;
    const { of, expert, rowCount: rows } = held;
    of.running += 1;
    try {
      const output = Buffer.allocUnsafe(rows * of.request.hiddenSize * FLOAT_BYTES);
      const { executeMs, calledMs, begunMs } = await this.execute(slot, held, output);
      const endedMs = this.nowMs();
      this.ownExecutions += 1;
      this.executeMs.add(executeMs);
      this.rowMs.add(executeMs / rows);
      this.short.ran(rows, executeMs, load.tookMs > 0);
      const loadedAfterMs = load.endedMs - of.arrivedMs;
      of.running -= 1;
      this.finish(ticket, {
        expert,
        rows,
        wasLoaded,
        stallUs: wasLoaded ? 0 : wholeUs(loadedAfterMs),
        executeUs: wholeUs(executeMs),
        loadUs: wholeUs(load.tookMs),
        loadedBeforeUs: load.tookMs === 0 ? 0 : wholeUs(-loadedAfterMs),
        begunUs: wholeUs(begunMs - of.arrivedMs),
        answeredUs: 0,
        calledUs: wholeUs(calledMs - of.arrivedMs),
        endedUs: wholeUs(endedMs - of.arrivedMs),
        output,
        failure: null,
      });
    } catch (thrown) {
      of.running -= 1;
      const error = toOdmoeError(thrown);
      this.log.error('executing an expert failed', { layer: of.request.layer, expert, error });
      this.fail(ticket, error);
      if (error.code === 'DEVICE_LOST') this.onDeviceLost(error);
    }
  }

  fail(ticket: number, { code, message }: OdmoeError): void {
    const held = this.ownHeld.get(ticket);
    if (held !== undefined) this.finish(ticket, { ...NOT_RUN, expert: held.expert, failure: { code, message } });
  }

  failAll(error: OdmoeError): void {
    for (const ticket of [...this.ownHeld.keys()]) this.fail(ticket, error);
  }

  /** The request is answered otherwise: nothing is to come of its experts. */
  forget(firstTicket: number, request: Execute): void {
    request.experts.forEach((_, index) => {
      const held = this.ownHeld.get(firstTicket + index);
      if (held === undefined) return;
      this.ownHeld.delete(firstTicket + index);
      held.of.open -= 1;
      if (held.of.open === 0) this.heldBytes -= request.hidden.byteLength;
    });
  }

  /** Main is gone: nobody is answered any more. What runs runs out. */
  abandonAll(): void {
    this.ownHeld.clear();
    this.heldBytes = 0;
  }

  private async execute(slot: number, held: HeldExpert, output: Uint8Array): Promise<Execution> {
    const { hiddenSize } = held.of.request;
    const rowBytes = hiddenSize * FLOAT_BYTES;
    const hidden = gatherRows(held.of.request.hidden, held.rows, rowBytes);
    if (this.runsHere(held)) {
      // By then the rest of the message has been handled, and what it has to load is under way.
      await Promise.resolve();
      const done = this.runsHere(held) ? this.executeHere(slot, held, hidden, output) : null;
      if (done !== null) return done;
    }
    const calledMs = this.nowMs();
    let begunMs = calledMs;
    let executeMs = 0;
    for (let first = 0; first < held.rowCount; first += this.maxRows) {
      const end = Math.min(held.rowCount, first + this.maxRows);
      const piece = [first * rowBytes, end * rowBytes] as const;
      const outcome = await this.slots.execute(slot, end - first, hidden.subarray(...piece), output.subarray(...piece));
      if (first === 0) begunMs = Math.max(begunMs, this.nowMs() - outcome.executeMs);
      executeMs += outcome.executeMs;
    }
    return { executeMs, calledMs, begunMs };
  }

  private runsHere({ of, rowCount: rows }: HeldExpert): boolean {
    return this.slots.executeHere !== undefined && rows <= this.maxRows && this.short.isShort(rows, of.running);
  }

  /** On this thread; null: the device is at something else. */
  private executeHere(
    slot: number,
    { rowCount: rows }: HeldExpert,
    hidden: Uint8Array,
    output: Uint8Array,
  ): Execution | null {
    const calledMs = this.nowMs();
    const executeMs = this.slots.executeHere?.(slot, rows, hidden, output) ?? null;
    return executeMs === null ? null : { executeMs, calledMs, begunMs: calledMs };
  }

  /** The expert is done, or never will be. */
  private finish(ticket: number, result: ExpertResult): void {
    const held = this.ownHeld.get(ticket);
    if (held === undefined) return;
    this.ownHeld.delete(ticket);
    const { of } = held;
    of.open -= 1;
    of.done.push(result);
    if (of.open === 0) this.heldBytes -= of.request.hidden.byteLength;
    const doneRows = of.done.reduce((sum, { rows }) => sum + rows, 0);
    if (of.running > 0 && result.failure === null && doneRows < BUNDLED_ROWS_LIMIT) return;
    const { requestId, epoch, hiddenSize, dtype } = of.request;
    const experts = of.done.splice(0);
    const answeredUs = wholeUs(this.nowMs() - of.arrivedMs);
    for (const answered of experts) answered.answeredUs = answeredUs;
    of.reply({
      kind: 'result',
      result: { requestId, epoch, hiddenSize, dtype, experts, last: of.open === 0, kept: null },
    });
  }
}

const NOT_RUN: Omit<ExpertResult, 'expert' | 'failure'> = {
  rows: 0,
  wasLoaded: false,
  stallUs: 0,
  executeUs: 0,
  ...NO_TIMES,
  output: new Uint8Array(),
};

/** The rows behind one another; where all of them are meant, they are not copied. */
function gatherRows(hidden: Uint8Array, rows: readonly number[], rowBytes: number): Uint8Array {
  if (rows.length * rowBytes === hidden.byteLength || rows.length === 0) return hidden;
  const gathered = Buffer.allocUnsafe(rows.length * rowBytes);
  rows.forEach((row, index) => {
    gathered.set(hidden.subarray(row * rowBytes, (row + 1) * rowBytes), index * rowBytes);
  });
  return gathered;
}

function wholeUs(milliseconds: number): number {
  return Math.max(0, Math.round(milliseconds * 1000));
}
