import type { ExpertSlots } from '../../native/index.js';
import { requirePresent } from '../../shared/base/errors/assert-invariant.js';
import { OdmoeError, toOdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { Logger } from '../../shared/base/log/logger.js';
import { OverallMean } from '../loader/overall-mean.js';
import { inPlaces, readingOrder, type ReadingOrder } from './reading-order.js';
import {
  NO_TIMES,
  type Execute,
  type ExpertResult,
  type ExpertRows,
  type WorkerReply,
} from '../../shared/wire/messages.js';
import { rowsOfExpert } from '../../shared/wire/pass-rows.js';

/** Rows of an execution that may run on the event loop's thread. */
export const SHORT_EXECUTION_ROWS = 4;

/** Longest total time of the experts of one message on that thread while loads come and go. A message about a load may wait this long. */
export const SHORT_EXECUTIONS_MS = 0.3;
/** The limit when the last QUIET_EXECUTIONS executions needed no load: then only the next layer waits for the thread. */
export const QUIET_EXECUTIONS_MS = 3;
export const QUIET_EXECUTIONS = 64;

/** Number of executions over which the mean time is taken. */
const EXECUTIONS_OF_MEAN = 16;
/** With fewer executions than this, no time is estimated. */
const FEWEST_EXECUTIONS = 4;

/**
 * Estimates how long experts take on few rows, and decides whether they are short enough for the thread of the event loop. Handing them to
 * another thread and back costs two wake-ups, which take longer than a short expert.
 */
export class ShortExecutions {
  private executions = 0;
  /** Mean time for one row or a few rows: an expert's weights are read once for all of them. */
  private meanMs = 0;
  private quiet = 0;

  /** An expert has run; `loaded`: it had to be loaded for this execution. */
  ran(rows: number, executeMs: number, loaded: boolean): void {
    this.quiet = loaded ? 0 : this.quiet + 1;
    if (rows > SHORT_EXECUTION_ROWS) return;
    this.executions += 1;
    this.meanMs += (executeMs - this.meanMs) / Math.min(this.executions, EXECUTIONS_OF_MEAN);
  }

  /** Mean time for few rows; 0: too few executions for an estimate. */
  get executeMsMean(): number {
    return this.executions < FEWEST_EXECUTIONS ? 0 : this.meanMs;
  }

  /** `experts`: experts of the message that are in their slots and have not run yet. */
  isShort(rows: number, experts: number): boolean {
    if (rows > SHORT_EXECUTION_ROWS || this.executions < FEWEST_EXECUTIONS) return false;
    return experts * this.meanMs <= (this.quiet < QUIET_EXECUTIONS ? SHORT_EXECUTIONS_MS : QUIET_EXECUTIONS_MS);
  }
}

/** Limits for the experts that wait or run for main, and for the bytes of their hidden states; beyond either limit they are refused. */
export const MAX_HELD_EXPERTS = 4096;
export const MAX_HELD_EXECUTE_BYTES = 512 * 1024 * 1024;

/** An output with more rows than this is sent at once: sending it takes longer than the cost of a separate message. */
export const BUNDLED_ROWS_LIMIT = 16;

const FLOAT_BYTES = 4;

/** One Execute from main, until its last expert is answered. */
interface HeldRequest {
  readonly request: Execute;
  readonly arrivedMs: number;
  readonly reply: (reply: WorkerReply) => void;
  /** Experts that have neither been answered nor finished. */
  open: number;
  /** The open experts that run now. */
  running: number;
  /** Finished results that have not been sent yet. */
  readonly done: ExpertResult[];
}

/** The work of a request for one expert. */
interface HeldWork extends ExpertRows {
  readonly of: HeldRequest;
  readonly rowCount: number;
  readonly order: ReadingOrder;
}

/** Times of the load that brought a slot's expert, or of the two that brought its slices. */
export interface SlotLoadTimes {
  /** End of the last one. */
  endedMs: number;
  /** 0: an earlier execution has reported it already. */
  tookMs: number;
}

interface Execution {
  executeMs: number;
  /** Time when the device was called. */
  calledMs: number;
  /** Time when it began to run, after the executions before it. */
  begunMs: number;
}

/** The calls of slots by which experts run. */
export type ExecutingSlots = Pick<ExpertSlots, 'execute' | 'executeHere'>;

/** Limits of an executor. */
export interface ExecutorLimits {
  experts: number;
  bytes: number;
}

/**
 * Runs experts on main's hidden states and sends the results. Every expert of an accepted execute is answered once, unless main has gone.
 * Results of one execute that are ready together are sent together: a finished expert waits for experts that run, never for experts that load.
 */
export class ExpertExecutor {
  private readonly slots: ExecutingSlots;
  private readonly maxRows: number;
  private readonly nowMs: () => number;
  private readonly log: Logger;
  private readonly onDeviceLost: (error: OdmoeError) => void;
  private readonly limits: ExecutorLimits;
  private readonly heldWork = new Map<number, HeldWork>();
  private readonly executeMs = new OverallMean();
  private readonly rowMs = new OverallMean();
  private readonly short = new ShortExecutions();
  private heldBytes = 0;
  #executions = 0;

  /** `maxRows`: the row limit for which the slots were made. */
  constructor(
    slots: ExecutingSlots,
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
    return this.#executions;
  }

  get executeMsMean(): number {
    return this.executeMs.mean;
  }

  /** Mean of the last executions on few rows; 0: there were too few. */
  get shortExecuteMsMean(): number {
    return this.short.executeMsMean;
  }

  /** Experts that are not answered yet, and the bytes of hidden states that are held for them. */
  get held(): { experts: number; bytes: number } {
    return { experts: this.heldWork.size, bytes: this.heldBytes };
  }

  /** Estimated time to run the experts of these tickets. */
  expectedMs(tickets: readonly number[]): number {
    return tickets.reduce((sum, ticket) => sum + (this.heldWork.get(ticket)?.rowCount ?? 0) * this.rowMs.mean, 0);
  }

  /** Takes the request; its experts get the tickets from `firstTicket` on, in their order. Throws QUEUE_FULL. */
  hold(firstTicket: number, request: Execute, reply: (reply: WorkerReply) => void): void {
    const experts = request.experts.length;
    const { byteLength } = request.hidden;
    if (this.heldWork.size + experts > this.limits.experts || this.heldBytes + byteLength > this.limits.bytes) {
      throw new OdmoeError(
        'QUEUE_FULL',
        `This worker holds ${this.heldWork.size} experts to run with hidden states of ${this.heldBytes} bytes already: send it less at a time.`,
      );
    }
    const of: HeldRequest = { request, reply, arrivedMs: this.nowMs(), open: experts, running: 0, done: [] };
    request.experts.forEach((asked, index) => {
      const rows = rowsOfExpert(asked, request.rows);
      const order = readingOrder(rows, asked.upper ?? []);
      this.heldWork.set(firstTicket + index, { ...asked, of, rowCount: rows, order });
    });
    this.heldBytes += byteLength;
  }

  /** Runs the expert in the slot. `load`: the load that brought the expert. Never rejects. */
  async run(ticket: number, slot: number, wasLoaded: boolean, load: SlotLoadTimes): Promise<void> {
    const held = this.heldWork.get(ticket);
    if (held === undefined) return;
    const { of, expert, rowCount: rows } = held;
    of.running += 1;
    try {
      const rowBytes = of.request.hiddenSize * FLOAT_BYTES;
      const computed = Buffer.allocUnsafe(rows * rowBytes);
      const { executeMs, calledMs, begunMs } = await this.execute(slot, held, computed);
      const output = inPlaces(computed, held.order.places, rowBytes);
      const endedMs = this.nowMs();
      this.#executions += 1;
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
    const held = this.heldWork.get(ticket);
    if (held !== undefined) this.finish(ticket, { ...NOT_RUN, expert: held.expert, failure: { code, message } });
  }

  failAll(error: OdmoeError): void {
    for (const ticket of [...this.heldWork.keys()]) this.fail(ticket, error);
  }

  /** The request is answered in another way: its experts send no results. */
  forget(firstTicket: number, request: Execute): void {
    request.experts.forEach((_, index) => {
      const held = this.heldWork.get(firstTicket + index);
      if (held === undefined) return;
      this.heldWork.delete(firstTicket + index);
      held.of.open -= 1;
      if (held.of.open === 0) this.heldBytes -= request.hidden.byteLength;
    });
  }

  /** Main is gone: nobody gets a result. Running experts finish. */
  abandonAll(): void {
    this.heldWork.clear();
    this.heldBytes = 0;
  }

  private async execute(slot: number, held: HeldWork, output: Uint8Array): Promise<Execution> {
    const { hiddenSize } = held.of.request;
    const rowBytes = hiddenSize * FLOAT_BYTES;
    const hidden = gatherRows(held.of.request.hidden, held, rowBytes);
    if (this.runsHere(held)) {
      // Meanwhile the rest of the message is handled, and its loads begin.
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
      const outcome = await this.slots.execute(
        slot,
        end - first,
        hidden.subarray(...piece),
        output.subarray(...piece),
        held.order.readings.slice(first, end),
      );
      if (first === 0) begunMs = Math.max(begunMs, this.nowMs() - outcome.executeMs);
      executeMs += outcome.executeMs;
    }
    return { executeMs, calledMs, begunMs };
  }

  private runsHere({ of, rowCount: rows }: HeldWork): boolean {
    return this.slots.executeHere !== undefined && rows <= this.maxRows && this.short.isShort(rows, of.running);
  }

  /** Runs it on this thread; null: the device is busy. */
  private executeHere(
    slot: number,
    { rowCount: rows, order: { readings } }: HeldWork,
    hidden: Uint8Array,
    output: Uint8Array,
  ): Execution | null {
    const calledMs = this.nowMs();
    const executeMs = this.slots.executeHere?.(slot, rows, hidden, output, readings) ?? null;
    return executeMs === null ? null : { executeMs, calledMs, begunMs: calledMs };
  }

  /** The expert is done, or will never be done. */
  private finish(ticket: number, result: ExpertResult): void {
    const held = this.heldWork.get(ticket);
    if (held === undefined) return;
    this.heldWork.delete(ticket);
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

/** The rows in one buffer, in the order of computing; if that is the order in which all rows have come, they are not copied. */
function gatherRows(hidden: Uint8Array, { rows, order: { places } }: HeldWork, rowBytes: number): Uint8Array {
  const isEveryRow = rows.length * rowBytes === hidden.byteLength || rows.length === 0;
  if (places === null && isEveryRow) return hidden;
  const inOrder = (place: number): number => requirePresent(rows[place], 'every place has a row.');
  const chosen = places === null ? rows : rows.length === 0 ? places : places.map(inOrder);
  const gathered = Buffer.allocUnsafe(chosen.length * rowBytes);
  chosen.forEach((row, index) => {
    gathered.set(hidden.subarray(row * rowBytes, (row + 1) * rowBytes), index * rowBytes);
  });
  return gathered;
}

function wholeUs(milliseconds: number): number {
  return Math.max(0, Math.round(milliseconds * 1000));
}
