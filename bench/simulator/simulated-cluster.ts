import type { WorkerOrders } from '../../main-node/cluster/placed-workers.js';
import { OdmoeError } from '../../shared/errors/index.js';
import { DraftCostMeter } from '../../main-node/decode/draft-costs.js';
import { planPlacement } from '../../shared/placement/index.js';
import { spreadForDrafts, usableDraftRows } from '../../shared/drafting/index.js';
import type { Placement, Prediction, Release } from '../../shared/rpc/messages.js';
import { PredictionDealer } from '../../shadow-node/rpc/prediction-dealer.js';
import type { ClusterTrace } from '../../simulator/trace/cluster-trace.js';
import { SimulatedNetwork } from './simulated-network.js';
import { SimulatedWorker, type SimulatedExperts } from './simulated-worker.js';
import type { ClusterSetUp, ClusterTimes } from './simulation-setting.js';
import type { TimingRecorder } from './timing-recorder.js';
import type { VirtualClock } from './virtual-clock.js';

export const MAIN = 'main';
export const SHADOW = 'shadow';
const FLOAT_BYTES = 4;

/** In the order in which a placement has them. */
export function workerIds(workers: number): string[] {
  const width = String(workers).length;
  return Array.from({ length: workers }, (_, index) => `worker-${String(index + 1).padStart(width, '0')}`);
}

/** Some rows for one expert of a layer, and what it says when its result is back at main. */
export interface ExpertRequest {
  sequence: number;
  position: number;
  layer: number;
  expert: number;
  rows: number;
  last: boolean;
  onResult: (stallMs: number, wasLoaded: boolean) => void;
}

/** What the nodes of a simulated cluster share: time, network, workers, placement, and the messages that main sends. */
export class SimulatedCluster {
  readonly placement: Placement;
  readonly network: SimulatedNetwork;
  readonly workers = new Map<string, SimulatedWorker>();
  /** As asked, with what of it the daemons would use. */
  readonly setUp: ClusterSetUp;
  /** Main's, over all prompts. */
  readonly draftCosts = new DraftCostMeter();
  /** Shadow's, over all prompts. */
  readonly dealer: PredictionDealer;

  constructor(
    asked: ClusterSetUp,
    readonly times: ClusterTimes,
    readonly trace: ClusterTrace,
    readonly clock: VirtualClock,
    readonly recorder: TimingRecorder,
  ) {
    const rows = usableDraftRows(asked.drafting.rows, asked.prediction.source, asked.align.tokenPeriod);
    const spread = spreadForDrafts(rows, asked.placement.spread);
    const drafting = { ...asked.drafting, rows };
    const setUp = { ...asked, drafting, placement: { ...asked.placement, spread } };
    this.setUp = setUp;
    const ids = workerIds(setUp.workers);
    this.placement = planPlacement({
      epoch: 1,
      workers: ids.map((id) => ({ id, address: id, slots: setUp.slots })),
      layers: trace.layers,
      experts: trace.experts,
      expertsPerToken: trace.expertsPerToken,
      groupSize: setUp.placement.groupSize,
    });
    this.dealer = new PredictionDealer(this.placement);
    this.network = new SimulatedNetwork(times.network, clock, recorder);
    for (const [index, id] of ids.entries()) {
      const device = times.workers?.[index] ?? times.worker;
      this.workers.set(id, new SimulatedWorker(id, setUp.slots, device, clock, recorder));
    }
  }

  /** Main's passes may have drafts in them. */
  get drafts(): boolean {
    return this.setUp.drafting.rows !== 1 || this.setUp.drafting.optimistic;
  }

  /** Workers load the next token's first layer ahead (main-node/main.ts). */
  get loadsFirstLayerAhead(): boolean {
    const { prediction, placement, drafting } = this.setUp;
    return prediction.source === 'sep' && placement.spread === 'all' && !drafting.optimistic && drafting.rows === 1;
  }

  /** Positions that a pass should have where they are chosen by what they cost. */
  rowsThatPay(): number {
    const { setUp, times, trace, placement, workers } = this;
    const loads = times.workers ?? [times.worker];
    return this.draftCosts.rows({
      loadMs: loads.reduce((sum, { loadMs }) => sum + loadMs, 0) / loads.length,
      ...{ optimistic: setUp.drafting.optimistic, workers: workers.size, slots: setUp.slots },
      layerWorkers: setUp.placement.spread === 'all' ? workers.size : workers.size / placement.groups.length,
      ...{ layers: trace.layers, experts: trace.experts, expertsPerToken: trace.expertsPerToken },
    });
  }

  get hiddenRowBytes(): number {
    return this.times.hiddenSize * FLOAT_BYTES;
  }

  /** Main sends rows to a worker; the answer comes back the same way. */
  execute(workerId: string, { onResult, ...request }: ExpertRequest): void {
    const worker = this.workers.get(workerId) as SimulatedWorker;
    const bytes = request.rows * this.hiddenRowBytes;
    const subject = { position: request.position, layer: request.layer, expert: request.expert };
    const done = (stallMs: number, wasLoaded: boolean): void => {
      this.network.send(workerId, MAIN, bytes, () => onResult(stallMs, wasLoaded), subject);
    };
    this.network.send(MAIN, workerId, bytes, () => worker.execute({ ...request, done }), subject);
  }

  /** Main tells a worker what to expect. */
  expect(workerId: string, predicted: SimulatedExperts): void {
    this.network.send(MAIN, workerId, 0, () => this.workers.get(workerId)?.predict('main', predicted));
  }

  release(workerId: string, released: SimulatedExperts): void {
    this.network.send(MAIN, workerId, 0, () => this.workers.get(workerId)?.release(released));
  }

  /** Main's link to a worker, as the daemon's decisions take it: work goes through `execute` of the cluster. */
  worker(id: string): WorkerOrders {
    const flat = ({ pass, layer, experts }: Prediction | Release): SimulatedExperts => ({ ...pass, layer, experts });
    return {
      execute: () => Promise.reject(new OdmoeError('INTERNAL', 'a simulated worker takes no messages')),
      sendPrediction: (prediction) => this.expect(id, flat(prediction)),
      sendRelease: (release) => this.release(id, flat(release)),
      sendEnd: (sequence) => this.network.send(MAIN, id, 0, () => this.workers.get(id)?.end(sequence)),
    };
  }
}
