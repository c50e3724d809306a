import type { ShadowFeed } from '../../main-node/decode/shadow-feed.js';
import { operatorMs } from '../../shared/emulation/device-profile.js';
import { activatedExperts } from '../../main-node/pass/activated-experts.js';
import type { FirstLayerAhead } from '../../main-node/decode/first-layer-ahead.js';
import type { RandomPrefetch } from '../../main-node/decode/random-prefetch.js';
import type { SequencePredictions } from '../../main-node/decode/sequence-predictions.js';
import { toldByPrediction } from '../../main-node/decode/told-by-prediction.js';
import { matchExperts } from '../../shared/placement/index.js';
import { MAIN, type SimulatedCluster } from './simulated-cluster.js';

export interface DecodePassSetting {
  sequence: number;
  prompt: number;
  position: number;
  rows: number;
  /** Rows whose tokens are all main's: from the first one on. */
  rightRows: number;
}

/** What main keeps of its sequence from pass to pass. */
export interface PassHelpers {
  predictions: SequencePredictions;
  feed: ShadowFeed;
  /** Null where layer 0 is not loaded ahead. */
  firstLayer: FirstLayerAhead | null;
  /** Null where experts are not loaded on chance. */
  random: RandomPrefetch | null;
}

/** One pass of main over a few positions: layer by layer, attention and gate here, experts at the workers, as the daemon does. */
export class DecodePass {
  #stallMs = 0;

  constructor(
    private readonly cluster: SimulatedCluster,
    private readonly setting: DecodePassSetting,
    private readonly helpers: PassHelpers,
  ) {}

  /** `onDone`: the logits of every row are there. `layersMs`: of the layers, waits for loads left out. */
  run(onDone: (layersMs: number) => void): void {
    const { clock, recorder } = this.cluster;
    const { position, rows } = this.setting;
    const beginMs = clock.nowMs;
    this.#runLayer(0, () => {
      const layersMs = clock.nowMs - beginMs - this.#stallMs;
      const headMs = operatorMs(this.cluster.times.main.lmHead, rows);
      const head = { lane: MAIN, position, layer: -1, expert: -1, beginMs: clock.nowMs, cancelled: false };
      recorder.span({ kind: 'head', ...head, endMs: clock.nowMs + headMs });
      clock.after(headMs, () => {
        recorder.passes.push({ position, rows, beginMs, endMs: clock.nowMs });
        onDone(layersMs);
      });
    });
  }

  #runLayer(layer: number, onDone: () => void): void {
    const { clock, recorder, times, trace } = this.cluster;
    if (layer === trace.layers) return onDone();
    const { position, rows } = this.setting;
    const beginMs = clock.nowMs;
    const endMs = beginMs + operatorMs(times.main.denseLayer, rows);
    clock.at(endMs, () => {
      const span = { lane: MAIN, position, layer, expert: -1, beginMs, endMs, cancelled: false };
      recorder.span({ kind: 'M', ...span });
      this.#runExperts(layer, () => {
        this.helpers.random?.layerDone(position, layer);
        this.#runLayer(layer + 1, onDone);
      });
      this.helpers.feed.layerWritten(layer, position + rows);
    });
  }

  #runExperts(layer: number, onDone: () => void): void {
    const { placement, setUp } = this.cluster;
    const { sequence, position } = this.setting;
    const activated = activatedExperts(this.#choices(layer), placement.expertsPerToken);
    const told = this.#told(layer, [...activated.keys()]);
    const match = matchExperts(placement, layer, told, [...activated.keys()], setUp.placement.spread);
    const finished = this.#collector(layer, match.assignments.length, onDone);
    for (const { expert, workerId, predicted } of match.assignments) {
      if (!predicted) this.cluster.recorder.missed += 1;
      const rows = activated.get(expert)?.length ?? 1;
      const work = { sequence, position, layer, expert, rows, last: true, onResult: finished };
      this.cluster.execute(workerId, work);
    }
    for (const { workerId, experts } of match.releases) {
      this.cluster.release(workerId, { sequence, position, layer, experts });
    }
    this.helpers.firstLayer?.afterGate(position, this.helpers.predictions.upcoming(position, layer));
  }

  /** What to call with each result; the last one ends the layer. */
  #collector(layer: number, results: number, onDone: () => void): (stallMs: number) => void {
    let left = results;
    let longestStallMs = 0;
    return (stallMs) => {
      longestStallMs = Math.max(longestStallMs, stallMs);
      left -= 1;
      if (left > 0) return;
      this.#stallMs += longestStallMs;
      this.cluster.recorder.stall(layer, longestStallMs);
      onDone();
    };
  }

  /** The gate's choice, rows x k; counts recall of the rows that are main's text. */
  #choices(layer: number): number[] {
    const { trace, recorder, setUp } = this.cluster;
    const { prompt, position, rows, rightRows } = this.setting;
    const choices: number[] = [];
    for (let row = 0; row < rows; row += 1) {
      const place = { prompt, position: position + row, layer, onPath: row < rightRows };
      const activated = trace.activated(place);
      choices.push(...activated);
      recorder.activated += activated.length;
      if (setUp.prediction.source !== 'sep') continue;
      const predicted = trace.predicted(place);
      recorder.predictedCorrectly += activated.filter((expert) => predicted.includes(expert)).length;
    }
    return choices;
  }

  /** The gate has decided. Who was told to load what of this layer; null: nobody anything, as far as main knows. */
  #told(layer: number, activated: readonly number[]): ReadonlyMap<number, string> | null {
    const { placement } = this.cluster;
    const { position } = this.setting;
    const { predictions, firstLayer } = this.helpers;
    const told = toldByPrediction(placement, predictions.decide(position, layer, activated));
    return layer > 0 || firstLayer === null ? told : firstLayer.merge(placement, position, told);
  }
}
