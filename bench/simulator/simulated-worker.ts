import { operatorMs, type EmulatedDevice } from '../../shared/emulation/device-profile.js';
import { SAME_LAYER_GRACE_MS } from '../../worker-node/executor/expert-service.js';
import { passOfSequence } from '../../shared/rpc/index.js';
import { expertKey } from '../../worker-node/loader/expectations.js';
import { SlotSchedule } from '../../worker-node/loader/slot-schedule.js';
import type { LayerExperts, SlotAction, SlotEvent, SlotLoad } from '../../worker-node/loader/slot-events.js';
import type { TimingRecorder } from './timing-recorder.js';
import type { VirtualClock } from './virtual-clock.js';

const NOTHING_KEPT = { exponentsKept: false, signMantissaKept: false };

/** Experts of one layer of a pass of one sequence, known by the pass's position. */
export interface SimulatedExperts {
  sequence: number;
  position: number;
  layer: number;
  experts: readonly number[];
}

export interface SimulatedExecute extends Omit<SimulatedExperts, 'experts'> {
  expert: number;
  rows: number;
  last: boolean;
  /** The worker has computed; `stallMs`: how long the request waited for its expert. */
  done: (stallMs: number, wasLoaded: boolean) => void;
}

interface HeldExecute {
  request: SimulatedExecute;
  arrivedMs: number;
}

interface PendingLoad extends SlotLoad {
  beginMs: number | null;
  settled: boolean;
  /** For whom it was ordered, to name its span. */
  position: number;
}

/**
 * A worker: the daemon's own slot schedule, before one link that loads an expert at a time, those that main waits for first,
 * and one executor that runs what is ready in the order in which it became so.
 */
export class SimulatedWorker {
  readonly #schedule: SlotSchedule;
  readonly #held = new Map<number, HeldExecute>();
  readonly #wantedFor = new Map<string, number[]>();
  /** Position of the last execute. */
  #reached = 0;
  readonly #waitingLoads: PendingLoad[] = [];
  readonly #loadedMs: number[];
  #loading: PendingLoad | null = null;
  #executorFreeMs = 0;
  #lastTicket = 0;
  #turnEndDue = false;
  #graceEndDue = false;

  constructor(
    readonly id: string,
    slots: number,
    private readonly device: Pick<EmulatedDevice, 'expert' | 'loadMs'>,
    private readonly clock: VirtualClock,
    private readonly recorder: TimingRecorder,
  ) {
    this.#schedule = new SlotSchedule(slots);
    this.#loadedMs = new Array<number>(slots).fill(0);
  }

  predict(source: 'main' | 'shadow', prediction: SimulatedExperts): void {
    this.#remember(prediction);
    this.#handle({ kind: 'predict', source, ...layerExperts(prediction) });
  }

  /** What shadow has predicted from a position on is void. */
  restart(sequence: number, position: number): void {
    this.#handle({ kind: 'restart', sequence, position });
  }

  release(released: SimulatedExperts): void {
    this.#handle({ kind: 'release', ...layerExperts(released) });
  }

  end(sequence: number): void {
    this.#handle({ kind: 'end', sequence });
  }

  execute(request: SimulatedExecute): void {
    const ticket = ++this.#lastTicket;
    this.#held.set(ticket, { request, arrivedMs: this.clock.nowMs });
    const { sequence, position, layer, expert, last } = request;
    this.#reached = position;
    this.#remember({ ...request, experts: [expert] });
    this.#handle({ kind: 'execute', ticket, ...passOfSequence(sequence, position, 1), layer, expert, last });
  }

  #handle(event: SlotEvent): void {
    for (const action of this.#schedule.handle(event)) this.#carryOut(action);
    if (this.#schedule.wantsTurnEnd && !this.#turnEndDue) {
      this.#turnEndDue = true;
      this.clock.after(0, () => {
        this.#turnEndDue = false;
        if (this.#schedule.wantsTurnEnd) this.#handle({ kind: 'turnEnded' });
      });
    }
    if (this.#schedule.wantsGraceEnd && !this.#graceEndDue) {
      this.#graceEndDue = true;
      this.clock.after(SAME_LAYER_GRACE_MS, () => {
        this.#graceEndDue = false;
        if (this.#schedule.wantsGraceEnd) this.#handle({ kind: 'graceEnded' });
      });
    }
  }

  #carryOut(action: SlotAction): void {
    switch (action.kind) {
      case 'load': {
        const position = this.#positionOf(action);
        this.#waitingLoads.push({ ...action, beginMs: null, settled: false, position });
        return this.#startLoad();
      }
      case 'prioritize':
        for (const load of this.#waitingLoads) if (load.slot === action.slot) load.urgent = true;
        return;
      case 'cancelLoad':
        return this.#cancelLoad(action.slot);
      case 'evict':
        return;
      case 'execute':
        return this.#execute(action.slot, action.ticket, action.wasLoaded);
      case 'fail':
        throw new Error(`a simulated load of slot ${action.slot} failed`);
    }
  }

  /** An expert is asked for at a position: kept to name its load. */
  #remember({ position, layer, experts }: SimulatedExperts): void {
    for (const expert of experts) {
      const key = expertKey({ layer, expert });
      const wanted = (this.#wantedFor.get(key) ?? []).filter((other) => other >= this.#reached && other !== position);
      this.#wantedFor.set(key, [...wanted, position]);
    }
  }

  /** The earliest position that an expert may be loaded for. */
  #positionOf(load: SlotLoad): number {
    const wanted = (this.#wantedFor.get(expertKey(load)) ?? []).filter((position) => position >= this.#reached);
    return Math.min(...wanted, Infinity);
  }

  #startLoad(): void {
    if (this.#loading !== null) return;
    const urgent = this.#waitingLoads.findIndex((load) => load.urgent);
    const [load] = this.#waitingLoads.splice(Math.max(0, urgent), 1);
    if (load === undefined) return;
    this.#loading = load;
    load.beginMs = this.clock.nowMs;
    this.clock.after(this.device.loadMs, () => this.#endLoad(load, 'loaded'));
  }

  #cancelLoad(slot: number): void {
    const load = this.#loading?.slot === slot ? this.#loading : this.#takeWaitingLoad(slot);
    // Settles in a turn of its own, as the daemon's does.
    if (load !== undefined) this.clock.after(0, () => this.#endLoad(load, 'cancelled'));
  }

  #takeWaitingLoad(slot: number): PendingLoad | undefined {
    const place = this.#waitingLoads.findIndex((load) => load.slot === slot);
    return place < 0 ? undefined : this.#waitingLoads.splice(place, 1)[0];
  }

  #endLoad(load: PendingLoad, outcome: 'loaded' | 'cancelled'): void {
    if (load.settled) return;
    load.settled = true;
    if (this.#loading === load) this.#loading = null;
    this.#record(load, outcome);
    this.#loadedMs[load.slot] = this.clock.nowMs;
    this.#handle({ kind: 'loadSettled', slot: load.slot, outcome, ...NOTHING_KEPT });
    this.#startLoad();
  }

  #record({ beginMs, position, layer, expert }: PendingLoad, outcome: 'loaded' | 'cancelled'): void {
    if (beginMs === null) return;
    const endMs = this.clock.nowMs;
    const cancelled = outcome === 'cancelled';
    if (cancelled) this.recorder.cancelledLoads += 1;
    else this.recorder.loads += 1;
    this.recorder.loadedBusyMs += endMs - beginMs;
    this.recorder.span({ kind: 'EL', lane: this.id, position, layer, expert, beginMs, endMs, cancelled });
  }

  #execute(slot: number, ticket: number, wasLoaded: boolean): void {
    const held = this.#held.get(ticket);
    if (held === undefined) return;
    this.#held.delete(ticket);
    const { request, arrivedMs } = held;
    const beginMs = Math.max(this.clock.nowMs, this.#executorFreeMs);
    const endMs = beginMs + operatorMs(this.device.expert, request.rows);
    this.#executorFreeMs = endMs;
    const stallMs = wasLoaded ? 0 : Math.max(0, (this.#loadedMs[slot] ?? 0) - arrivedMs);
    this.clock.at(endMs, () => {
      const { position, layer, expert } = request;
      this.recorder.executions += 1;
      this.recorder.span({ kind: 'EC', lane: this.id, position, layer, expert, beginMs, endMs, cancelled: false });
      request.done(stallMs, wasLoaded);
      this.#handle({ kind: 'executeSettled', slot });
    });
  }
}

function layerExperts({ sequence, position, layer, experts }: SimulatedExperts): LayerExperts {
  return { ...passOfSequence(sequence, position, 1), layer, experts };
}
