import type { ExpertResult, LayerWait, WorkerHops, WorkerWait } from '../../shared/wire/messages.js';
import { RecentMap } from '../../shared/base/runtime/recent-map.js';
import { addToHop, clearHop, hopStages, LatestHops, type ReportedHop } from '../cluster/hop-stages.js';

/** Number of passes within which a mean roughly follows a change. */
const PASSES_OF_MEAN = 64;
/** Most workers that are remembered. A full map forgets the worker that was used least recently. */
const MAX_WORKERS = 1024;

/** A mean in which the latest samples weigh most. */
export class RecentMean {
  value = 0;
  private samples = 0;

  add(sample: number): void {
    this.samples = Math.min(this.samples + 1, PASSES_OF_MEAN);
    this.value += (sample - this.value) / this.samples;
  }
}

class LayerFigures {
  passes = 0;
  readonly waitMs = new RecentMean();
  readonly stallMs = new RecentMean();
  /** The worker that costs most by being the last. A majority vote finds it: each pass counts with its cost, and late passes count most. */
  slowest = '';
  private leadMs = 0;

  /** `costMs`: the time by which the worker was later than all others. */
  vote(workerId: string, costMs: number): void {
    this.leadMs *= 1 - 1 / PASSES_OF_MEAN;
    if (this.slowest === '') this.slowest = workerId;
    this.leadMs += workerId === this.slowest ? costMs : -costMs;
    if (this.leadMs >= 0) return;
    this.slowest = workerId;
    this.leadMs = -this.leadMs;
  }
}

class WorkerFigures {
  executes = 0;
  readonly waitMs = new RecentMean();
  readonly stallMs = new RecentMean();
  readonly executeMs = new RecentMean();
  readonly otherMs = new RecentMean();
  readonly lastShare = new RecentMean();
  readonly costMs = new RecentMean();
}

/** The results that one worker has sent for a layer so far. */
interface Arrival {
  workerId: string;
  /** Time from the begin of the layer to the worker's latest result. */
  waitMs: number;
  stallUs: number;
  executeUs: number;
  /** Its experts were loaded already, so that the reply took the time of a hop and no more. */
  wasLoaded: boolean;
  readonly hop: ReportedHop;
}

/** The fields of a result that a race uses. */
export type RacingResult = Pick<
  ExpertResult,
  'stallUs' | 'executeUs' | 'wasLoaded' | 'calledUs' | 'endedUs' | 'answeredUs'
>;

/** Records when each worker replies while a layer's experts run. */
export class LayerRace {
  layer = 0;
  begunMs = 0;
  waitMs = 0;
  longestStallUs = 0;
  /** Work had to be sent again, so that the times say nothing about the workers that did it. */
  disturbed = false;
  /** Entries, used again for each layer; only the first `workers` of them belong to this layer. */
  readonly arrivals: Arrival[] = [];
  workers = 0;

  begin(layer: number, nowMs: number): void {
    this.layer = layer;
    this.begunMs = nowMs;
    this.waitMs = 0;
    this.longestStallUs = 0;
    this.disturbed = false;
    this.workers = 0;
  }

  /** One expert's result has come. */
  take(workerId: string, result: RacingResult, nowMs: number): void {
    const { stallUs, executeUs } = result;
    this.waitMs = nowMs - this.begunMs;
    this.longestStallUs = Math.max(this.longestStallUs, stallUs);
    const arrival = this.arrivalOf(workerId);
    arrival.waitMs = this.waitMs;
    arrival.stallUs = Math.max(arrival.stallUs, stallUs);
    arrival.executeUs += executeUs;
    arrival.wasLoaded &&= result.wasLoaded;
    addToHop(arrival.hop, result, executeUs);
  }

  private arrivalOf(workerId: string): Arrival {
    for (let index = 0; index < this.workers; index++) {
      const arrival = this.arrivals[index];
      if (arrival?.workerId === workerId) return arrival;
    }
    const free = (this.arrivals[this.workers] ??= newArrival(workerId));
    this.workers += 1;
    free.workerId = workerId;
    free.stallUs = 0;
    free.executeUs = 0;
    free.wasLoaded = true;
    clearHop(free.hop);
    return free;
  }
}

function newArrival(workerId: string): Arrival {
  const hop = { calledUs: 0, endedUs: 0, answeredUs: 0, executeUs: 0 };
  return { workerId, waitMs: 0, stallUs: 0, executeUs: 0, wasLoaded: true, hop };
}

/**
 * Measures how long main waits for the experts of each layer of decode passes, and for which worker. The figures are bounded, and the latest passes
 * weigh most in them. Races are used again, so that a pass allocates nothing here.
 */
export class LayerWaits {
  private readonly layers: LayerFigures[];
  private readonly workers = new RecentMap<string, WorkerFigures>(MAX_WORKERS);
  private readonly hops = new LatestHops();
  private readonly hopMean = new RecentMean();
  private readonly idle: LayerRace[] = [];

  constructor(layers: number) {
    this.layers = Array.from({ length: layers }, () => new LayerFigures());
  }

  /** Mean time of the latest hops without the execution, of any worker; 0: none has been measured. */
  get hopMs(): number {
    return this.hopMean.value;
  }

  /** The layer's messages are about to be sent. A race that is never ended is not counted. */
  begin(layer: number, nowMs: number): LayerRace {
    const race = this.idle.pop() ?? new LayerRace();
    race.begin(layer, nowMs);
    return race;
  }

  /** All results are there; the race must not be used any more. */
  end(race: LayerRace): void {
    const figures = this.layers[race.layer];
    if (figures !== undefined && race.workers > 0) this.count(race, figures);
    this.idle.push(race);
  }

  /** Figures of the layers that main has waited for, and of these workers. */
  report(connected: readonly { id: string }[]): {
    layerWaits: LayerWait[];
    workerWaits: WorkerWait[];
    workerHops: WorkerHops[];
  } {
    const ids = new Set(connected.map(({ id }) => id));
    return { layerWaits: this.layerWaits(ids), workerWaits: this.workerWaits(ids), workerHops: this.hops.report(ids) };
  }

  private layerWaits(connected: ReadonlySet<string>): LayerWait[] {
    return this.layers.flatMap(({ passes, waitMs, stallMs, slowest }, layer) => {
      const slowestWorker = connected.has(slowest) ? slowest : '';
      return passes === 0 ? [] : [{ layer, passes, waitMs: waitMs.value, stallMs: stallMs.value, slowestWorker }];
    });
  }

  /** Figures of the connected workers; those of other workers are forgotten. */
  private workerWaits(connected: ReadonlySet<string>): WorkerWait[] {
    for (const id of [...this.workers.keys()]) if (!connected.has(id)) this.workers.delete(id);
    return [...this.workers]
      .sort(([left], [right]) => (left < right ? -1 : 1))
      .map(([worker, { executes, waitMs, stallMs, executeMs, otherMs, lastShare, costMs }]) => ({
        worker,
        executes,
        waitMs: waitMs.value,
        stallMs: stallMs.value,
        executeMs: executeMs.value,
        otherMs: otherMs.value,
        lastShare: lastShare.value,
        costMs: costMs.value,
      }));
  }

  private count(race: LayerRace, figures: LayerFigures): void {
    figures.passes += 1;
    figures.waitMs.add(race.waitMs);
    figures.stallMs.add(race.longestStallUs / 1000);
    if (race.disturbed) return;
    let last = 0;
    let secondMs = 0;
    for (let index = 1; index < race.workers; index++) {
      const waitMs = race.arrivals[index]?.waitMs ?? 0;
      const lastMs = race.arrivals[last]?.waitMs ?? 0;
      secondMs = Math.max(secondMs, Math.min(waitMs, lastMs));
      if (waitMs > lastMs) last = index;
    }
    for (let index = 0; index < race.workers; index++) {
      const arrival = race.arrivals[index];
      if (arrival === undefined) continue;
      const worker = this.figuresOf(arrival.workerId);
      countWork(worker, arrival);
      const stages = arrival.wasLoaded ? hopStages(arrival.waitMs, arrival.hop) : null;
      if (stages !== null) {
        this.hops.add(arrival.workerId, stages);
        // A worker's clock may run behind.
        this.hopMean.add(Math.max(0, stages.roundTripMs - stages.executeMs));
      }
      if (race.workers === 1) continue;
      worker.lastShare.add(index === last ? 1 : 0);
      worker.costMs.add(index === last ? arrival.waitMs - secondMs : 0);
      if (index === last) figures.vote(arrival.workerId, arrival.waitMs - secondMs);
    }
  }

  private figuresOf(workerId: string): WorkerFigures {
    return this.workers.of(workerId, () => new WorkerFigures());
  }
}

function countWork(worker: WorkerFigures, { waitMs, stallUs, executeUs }: Arrival): void {
  const [stallMs, executeMs] = [stallUs / 1000, executeUs / 1000];
  worker.executes += 1;
  worker.waitMs.add(waitMs);
  worker.stallMs.add(stallMs);
  worker.executeMs.add(executeMs);
  worker.otherMs.add(Math.max(0, waitMs - stallMs - executeMs));
}
