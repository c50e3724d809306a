import { type RouterChoice, type Pass, type Sequence, wrapperOf } from '../../native/index.js';
import { attendMs, behindMs, operatorMs } from './device-profile.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { atExactly } from './exact-timer.js';
import { PacedSequence } from './paced-sequence.js';
import type { PacedParts } from './paced-slots.js';
import { timerOrAbort } from '../../shared/base/runtime/timer-or-abort.js';

type OnRouter = (layer: number, choice: RouterChoice) => void;

/** A forward that is under way. */
interface Forward {
  readonly cancelled: AbortController;
  /** The real forward is running. */
  working: boolean;
}

/** A pass on a paced device: its operations run one after the other on the device's processor, each for the profiled device's time. */
export class PacedPass extends wrapperOf<Pass>() {
  // Left out, because they would take no paced time.
  override readonly attendHere = undefined;
  override readonly combineHere = undefined;
  override readonly residualHere = undefined;
  private sequences: PacedSequence[] = [];
  private positions = new Int32Array(0);
  private busy = false;
  private forwarding: Forward | null = null;

  constructor(
    private readonly handle: Pass,
    private readonly parts: PacedParts,
    private readonly expertLayers: number,
  ) {
    super(handle);
  }

  override async begin(
    sequences: Sequence[],
    rowSequence: Int32Array,
    positions: Int32Array,
    tokenIds: Int32Array,
    states?: Float32Array,
  ): Promise<void> {
    const paced = sequences.map(pacedSequence);
    const work = async (): Promise<void> => {
      const reserved = reserveAll(paced, rowSequence, positions);
      try {
        await this.handle.begin(
          paced.map(({ handle }) => handle),
          ...([rowSequence, positions, tokenIds, states] as const),
        );
      } catch (thrown) {
        for (const giveBack of reserved) giveBack();
        throw thrown;
      }
    };
    await this.call(paced, () => this.parts.processor.operate(0, work));
    this.sequences = paced;
    this.positions = positions.slice();
    paced.forEach((sequence, index) => sequence.beginPass(beginOf(index, rowSequence, positions)));
  }

  override async attend(layer: number, hidden: Uint8Array): Promise<RouterChoice> {
    const takenMs = attendMs(this.parts.times, layer, this.positions);
    return this.operate(takenMs, () => this.handle.attend(layer, hidden));
  }

  override async combine(layer: number, outputs: Uint8Array, weights: Float32Array): Promise<void> {
    const isLast = layer === this.expertLayers - 1;
    const takenMs = isLast ? behindMs(this.parts.times, this.positions) : 0;
    await this.operate(takenMs, () => this.handle.combine(layer, outputs, weights));
  }

  /** Takes no paced time: a device copies a few rows in microseconds. */
  override async residual(states: Float32Array): Promise<void> {
    await this.operate(0, () => this.handle.residual(states));
  }

  override async chooseAhead(layer: number): Promise<RouterChoice> {
    const takenMs = operatorMs(this.parts.times.router, this.positions.length);
    return this.operate(takenMs, () => this.handle.chooseAhead(layer));
  }

  override async states(rows: Int32Array, normed: boolean): Promise<Float32Array> {
    return this.operate(0, () => this.handle.states(rows, normed));
  }

  override async logits(rows: Int32Array): Promise<Float32Array> {
    const takenMs = rows.length === 0 ? 0 : operatorMs(this.parts.times.lmHead, rows.length);
    return this.operate(takenMs, () => this.handle.logits(rows));
  }

  /** The arithmetic of all layers is done at once; each layer's result is reported at the time when the profiled device would have it. */
  override async forward(onRouter: OnRouter | null): Promise<void> {
    const forward: Forward = { cancelled: new AbortController(), working: false };
    const { signal } = forward.cancelled;
    await this.call(this.sequences, () => {
      this.forwarding = forward;
      return this.parts.processor
        .occupy(async (startMs) => {
          try {
            const choices = await this.compute(forward);
            const endMs = await this.tellLayers(choices, onRouter, startMs, signal);
            return { result: undefined, endMs };
          } catch (thrown) {
            if (signal.aborted) for (const sequence of this.sequences) sequence.rewind();
            throw thrown;
          }
        })
        .finally(() => {
          this.forwarding = null;
        });
    });
  }

  override cancel(): void {
    const { forwarding } = this;
    if (forwarding === null) return;
    forwarding.cancelled.abort();
    if (forwarding.working) this.handle.cancel();
  }

  /** The choices of all layers. @throws CANCELLED, with the same message at any progress of the real forward */
  private async compute(forward: Forward): Promise<RouterChoice[]> {
    const choices: RouterChoice[] = [];
    const { signal } = forward.cancelled;
    if (signal.aborted) throw cancelledIn(0);
    forward.working = true;
    try {
      await this.parts.runtime.outside(() => this.handle.forward((_, choice) => choices.push(choice)));
    } catch (thrown) {
      throw signal.aborted ? cancelledIn(0) : thrown;
    } finally {
      forward.working = false;
    }
    return choices;
  }

  /** Returns the time when the last layer ends. @throws CANCELLED, and errors of onRouter */
  private async tellLayers(
    choices: readonly RouterChoice[],
    onRouter: OnRouter | null,
    startMs: number,
    signal: AbortSignal,
  ): Promise<number> {
    let timeMs = startMs;
    let failure: { thrown: unknown } | null = null;
    for (const [layer, choice] of choices.entries()) {
      timeMs += attendMs(this.parts.times, layer, this.positions);
      if (onRouter !== null) await this.until(timeMs, layer, signal);
      try {
        if (failure === null) onRouter?.(layer, choice);
      } catch (thrown) {
        failure = { thrown };
      }
      timeMs += this.expertsMs(choice);
    }
    timeMs += behindMs(this.parts.times, this.positions);
    await this.until(timeMs, choices.length - 1, signal);
    if (failure !== null) throw failure.thrown;
    return timeMs;
  }

  /** Each expert of a layer runs on all its rows, one expert after the other. */
  private expertsMs({ experts }: RouterChoice): number {
    const rows = new Map<number, number>();
    for (const expert of experts) rows.set(expert, (rows.get(expert) ?? 0) + 1);
    return [...rows.values()].reduce((sum, count) => sum + operatorMs(this.parts.times.expert, count), 0);
  }

  /** @throws CANCELLED at once when the signal aborts */
  private async until(dueMs: number, layer: number, signal: AbortSignal): Promise<void> {
    const { runtime } = this.parts;
    if (dueMs > runtime.eventMs()) await timerOrAbort((done) => atExactly(runtime, dueMs, null, done), signal);
    if (signal.aborted) throw cancelledIn(layer);
  }

  private operate<Result>(takenMs: number, work: () => Promise<Result>): Promise<Result> {
    return this.call(this.sequences, () => this.parts.processor.operate(takenMs, work));
  }

  /** Runs one call at a time. Until it ends, its sequences show their state from before the call. */
  private async call<Result>(sequences: readonly PacedSequence[], work: () => Promise<Result>): Promise<Result> {
    if (this.busy) throw new OdmoeError('INTERNAL', 'a call of the pass is still running; await it first');
    this.busy = true;
    for (const sequence of sequences) sequence.beginCall();
    try {
      return await work();
    } finally {
      for (const sequence of sequences) sequence.endCall();
      this.busy = false;
    }
  }
}

function pacedSequence(sequence: Sequence): PacedSequence {
  if (sequence instanceof PacedSequence) return sequence;
  throw new OdmoeError('INTERNAL', 'a pass of a paced device takes only sequences of that device');
}

/** Reserves memory for the rows of all sequences, or of none. Returns functions that give it back. @throws DEVICE_OUT_OF_MEMORY */
function reserveAll(
  sequences: readonly PacedSequence[],
  rowSequence: Int32Array,
  positions: Int32Array,
): (() => void)[] {
  const reserved: (() => void)[] = [];
  try {
    for (const [index, sequence] of sequences.entries()) {
      const [begin, end] = [beginOf(index, rowSequence, positions), endOf(index, rowSequence, positions)];
      reserved.push(sequence.reserveRows(begin, end));
    }
  } catch (thrown) {
    for (const giveBack of reserved) giveBack();
    throw thrown;
  }
  return reserved;
}

/** The lowest position of a sequence's rows. */
function beginOf(sequence: number, rowSequence: Int32Array, positions: Int32Array): number {
  return positions[rowSequence.indexOf(sequence)] ?? 0;
}

/** One past the highest position of a sequence's rows. */
function endOf(sequence: number, rowSequence: Int32Array, positions: Int32Array): number {
  return positions.reduce(
    (end, position, row) => (rowSequence[row] === sequence ? Math.max(end, position + 1) : end),
    0,
  );
}

function cancelledIn(layer: number): OdmoeError {
  return new OdmoeError('CANCELLED', `the pass was cancelled in or before layer ${layer}; begin anew`);
}
