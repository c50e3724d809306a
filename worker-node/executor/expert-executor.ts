import type { ExpertSlots } from '../../native/index.js';
import { OdmoeError, toOdmoeError } from '../../shared/errors/index.js';
import type { Logger } from '../../shared/log/index.js';
import { RunningMean } from '../../shared/metrics/index.js';
import type { Execute, WorkerReply } from '../../shared/rpc/messages.js';

/** Executes that a worker holds for main, waiting or running; beyond either bound they are refused. */
export const MAX_HELD_EXECUTES = 1024;
export const MAX_HELD_EXECUTE_BYTES = 512 * 1024 * 1024;

const FLOAT_BYTES = 4;

interface HeldExecute {
  request: Execute;
  arrivedMs: number;
  reply: (reply: WorkerReply) => void;
}

/** Runs experts on main's hidden states and answers; every execute taken is answered once, unless main went away. */
export class ExpertExecutor {
  readonly #slots: ExpertSlots;
  readonly #maxRows: number;
  readonly #nowMs: () => number;
  readonly #log: Logger;
  readonly #onDeviceLost: (error: OdmoeError) => void;
  readonly #held = new Map<number, HeldExecute>();
  readonly #executeMs = new RunningMean();
  readonly #rowMs = new RunningMean();
  #heldBytes = 0;
  #executions = 0;

  /** `maxRows`: what the slots were made for. */
  constructor(
    slots: ExpertSlots,
    maxRows: number,
    nowMs: () => number,
    log: Logger,
    onDeviceLost: (error: OdmoeError) => void = () => undefined,
  ) {
    this.#onDeviceLost = onDeviceLost;
    this.#slots = slots;
    this.#maxRows = maxRows;
    this.#nowMs = nowMs;
    this.#log = log;
  }

  get executions(): number {
    return this.#executions;
  }

  get executeMsMean(): number {
    return this.#executeMs.mean;
  }

  /** What running the executes of these tickets will take, as far as one can tell. */
  expectedMs(tickets: readonly number[]): number {
    return tickets.reduce((sum, ticket) => sum + (this.#held.get(ticket)?.request.rows ?? 0) * this.#rowMs.mean, 0);
  }

  /** Throws QUEUE_FULL. */
  hold(ticket: number, request: Execute, reply: (reply: WorkerReply) => void): void {
    if (this.#held.size >= MAX_HELD_EXECUTES || this.#heldBytes + request.hidden.byteLength > MAX_HELD_EXECUTE_BYTES) {
      throw new OdmoeError(
        'QUEUE_FULL',
        `This worker holds ${this.#held.size} executes of ${this.#heldBytes} bytes already: send it less at a time.`,
      );
    }
    this.#held.set(ticket, { request, reply, arrivedMs: this.#nowMs() });
    this.#heldBytes += request.hidden.byteLength;
  }

  /** Runs the expert in the slot and answers. `loadedMs`: when its load had ended. Never rejects. */
  async run(ticket: number, slot: number, wasLoaded: boolean, loadedMs: number): Promise<void> {
    const held = this.#held.get(ticket);
    if (held === undefined) return;
    const { request, arrivedMs } = held;
    try {
      const output = Buffer.allocUnsafe(request.hidden.byteLength);
      const executeMs = await this.#execute(slot, request, output);
      this.#executions += 1;
      this.#executeMs.add(executeMs);
      this.#rowMs.add(executeMs / request.rows);
      const result = {
        ...{ requestId: request.requestId, epoch: request.epoch, rows: request.rows, hiddenSize: request.hiddenSize },
        ...{ dtype: request.dtype, output, wasLoaded },
        stallUs: wasLoaded ? 0 : wholeUs(loadedMs - arrivedMs),
        executeUs: wholeUs(executeMs),
      };
      this.#answer(ticket, { kind: 'result', result });
    } catch (thrown) {
      const error = toOdmoeError(thrown);
      this.#log.error('executing an expert failed', { layer: request.layer, expert: request.expert, error });
      this.fail(ticket, error);
      if (error.code === 'DEVICE_LOST') this.#onDeviceLost(error);
    }
  }

  fail(ticket: number, { code, message }: OdmoeError): void {
    const request = this.#held.get(ticket)?.request;
    if (request === undefined) return;
    const { requestId, epoch } = request;
    this.#answer(ticket, { kind: 'error', error: { code, message, requestId, epoch } });
  }

  failAll(error: OdmoeError): void {
    for (const ticket of [...this.#held.keys()]) this.fail(ticket, error);
  }

  /** Main is gone: nobody is answered any more. What runs runs out. */
  abandonAll(): void {
    this.#held.clear();
    this.#heldBytes = 0;
  }

  async #execute(slot: number, { rows, hiddenSize, hidden }: Execute, output: Uint8Array): Promise<number> {
    const rowBytes = hiddenSize * FLOAT_BYTES;
    let executeMs = 0;
    for (let first = 0; first < rows; first += this.#maxRows) {
      const end = Math.min(rows, first + this.#maxRows);
      const piece = [first * rowBytes, end * rowBytes] as const;
      const outcome = await this.#slots.execute(
        slot,
        end - first,
        hidden.subarray(...piece),
        output.subarray(...piece),
      );
      executeMs += outcome.executeMs;
    }
    return executeMs;
  }

  #answer(ticket: number, reply: WorkerReply): void {
    const held = this.#held.get(ticket);
    if (held === undefined) return;
    this.#held.delete(ticket);
    this.#heldBytes -= held.request.hidden.byteLength;
    held.reply(reply);
  }
}

function wholeUs(milliseconds: number): number {
  return Math.max(0, Math.round(milliseconds * 1000));
}
