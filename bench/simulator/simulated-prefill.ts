import { planExpertBatches, splitLoadingRows, type ExpertBatch } from '../../main-node/prefill/expert-batches.js';
import { BATCHES_IN_FLIGHT_PER_WORKER } from '../../main-node/prefill/prompt-prefill.js';
import type { ShadowFeed } from '../../main-node/decode/shadow-feed.js';
import { operatorMs } from '../../shared/emulation/device-profile.js';
import { expertsByWorker, prefillAssignment, workersForPrefillExpert } from '../../shared/placement/index.js';
import { MAIN, type SimulatedCluster } from './simulated-cluster.js';

/** Main's prefill of a prompt (OD-MoE section 3.3), by the daemon's plan of batches and its rules of what is sent when. */
export class SimulatedPrefill {
  /** The layer that the workers were told of last. */
  #announced = -1;

  constructor(
    private readonly cluster: SimulatedCluster,
    private readonly sequence: number,
    private readonly prompt: number,
    private readonly promptTokens: number,
    private readonly feed: ShadowFeed,
  ) {}

  /** `onDone`: the first token's logits are there. */
  run(onDone: () => void): void {
    const { prefillOverlap, prefillRows } = this.cluster.setUp;
    if (prefillOverlap) this.#announce(Math.min(prefillRows, this.promptTokens) - 1, 0);
    this.#runPass(0, onDone);
  }

  #runPass(start: number, onDone: () => void): void {
    const end = Math.min(start + this.cluster.setUp.prefillRows, this.promptTokens);
    this.#runLayer(start, end, 0, () => {
      if (end < this.promptTokens) this.#runPass(end, onDone);
      else this.cluster.clock.after(operatorMs(this.cluster.times.main.lmHead, 1), onDone);
    });
  }

  #runLayer(start: number, end: number, layer: number, onDone: () => void): void {
    const { clock, times, trace, recorder } = this.cluster;
    if (layer === trace.layers) return onDone();
    const beginMs = clock.nowMs;
    const endMs = beginMs + operatorMs(times.main.denseLayer, end - start);
    clock.at(endMs, () => {
      const span = { lane: MAIN, position: end - 1, layer, expert: -1, beginMs, endMs, cancelled: false };
      recorder.span({ kind: 'M', ...span });
      this.#runExperts(start, end, layer, () => this.#runLayer(start, end, layer + 1, onDone));
      if (this.cluster.setUp.prefillOverlap) this.#announceNext(end, layer);
      this.feed.layerWritten(layer, end);
    });
  }

  #announceNext(end: number, layer: number): void {
    const { trace, setUp } = this.cluster;
    if (layer + 1 < trace.layers) this.#announce(end - 1, layer + 1);
    else if (end < this.promptTokens) this.#announce(Math.min(end + setUp.prefillRows, this.promptTokens) - 1, 0);
  }

  #announce(position: number, layer: number): void {
    const { placement } = this.cluster;
    this.#announced = layer;
    const byWorker = expertsByWorker(prefillAssignment(placement, layer));
    const { sequence } = this;
    for (const [id, experts] of byWorker) this.cluster.expect(id, { sequence, position, layer, experts });
  }

  #runExperts(start: number, end: number, layer: number, onDone: () => void): void {
    const { placement, trace, setUp } = this.cluster;
    const { prompt } = this;
    const positions = Array.from({ length: end - start }, (_, row) => start + row);
    const chosen = positions.flatMap((position) => trace.activated({ prompt, position, layer, onPath: true }));
    const plan = planExpertBatches(
      Int32Array.from(chosen),
      trace.expertsPerToken,
      trace.experts,
      setUp.miniBatchRows,
      (expert) => workersForPrefillExpert(placement, layer, expert),
    );
    if (this.#announced === layer) this.#releaseUnused(end - 1, layer, plan.unused);
    const position = end - 1;
    if (setUp.prefillOverlap) return this.#runLanes(plan.batches, position, layer, onDone);
    const { loading, rest } = splitLoadingRows(plan.batches);
    this.#runLanes(loading, position, layer, () => this.#runLanes(rest, position, layer, onDone));
  }

  #runLanes(batches: readonly ExpertBatch[], position: number, layer: number, onDone: () => void): void {
    if (batches.length === 0) return onDone();
    const lanes = new Map<string, ExpertBatch[]>();
    for (const batch of batches) {
      const lane = lanes.get(batch.workerId);
      if (lane === undefined) lanes.set(batch.workerId, [batch]);
      else lane.push(batch);
    }
    let left = batches.length;
    const finished = (): void => {
      left -= 1;
      if (left === 0) onDone();
    };
    for (const lane of lanes.values()) {
      const queue = lane.values();
      for (let taken = 0; taken < BATCHES_IN_FLIGHT_PER_WORKER; taken += 1) {
        this.#runNext(queue, position, layer, finished);
      }
    }
  }

  #runNext(queue: Iterator<ExpertBatch>, position: number, layer: number, finished: () => void): void {
    const next = queue.next();
    if (next.done === true) return;
    const { workerId, expert, rows, last } = next.value;
    const onResult = (): void => {
      this.#runNext(queue, position, layer, finished);
      finished();
    };
    const work = { sequence: this.sequence, position, layer, expert, rows: rows.length, last };
    this.cluster.execute(workerId, { ...work, onResult });
  }

  #releaseUnused(position: number, layer: number, unused: readonly { workerId: string; expert: number }[]): void {
    const byWorker = expertsByWorker(unused.map(({ workerId, expert }) => [expert, workerId]));
    const { sequence } = this;
    for (const [id, experts] of byWorker) this.cluster.release(id, { sequence, position, layer, experts });
  }
}
