import { createExpertMaps, type ExpertMaps } from '../../native/index.js';
import { correctedShare } from './choose-announced.js';
import { existingDistances, type ExpertMapsShape } from '../../shared/model/expert-maps.js';
import { toOdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { Logger } from '../../shared/base/log/logger.js';
import type { Predictor } from '../../packs/predictor/predictor-file.js';
import type { Runtime } from '../../shared/base/runtime/runtime.js';

/** A layer of which the maps at one layer give the experts. */
export interface MappedLayer {
  /** Place among the layer's existing distances. */
  index: number;
  distance: number;
  /** The distance at which the maps of a later layer speak of the same layer again; null: none does. */
  nextDistance: number | null;
  /** Share of the wrong experts that the next word corrects, 0 to 1. */
  corrected: number;
}

/** Main's trained predictor (predictor.safetensors), ready to run. */
export class TrainedMaps {
  private readonly recalls = new Map<number, number>();
  private readonly underWay = new Set<Promise<unknown>>();

  /** Throws INTERNAL for weights that do not fit their shape. The caller closes it. */
  static create(predictor: Predictor, runtime: Pick<Runtime, 'outside'>, log: Pick<Logger, 'warn'>): TrainedMaps {
    return new TrainedMaps(predictor, createExpertMaps(predictor.shape, predictor.layers), runtime, log);
  }

  private constructor(
    private readonly predictor: Pick<Predictor, 'shape' | 'recall'>,
    private readonly maps: ExpertMaps,
    private readonly runtime: Pick<Runtime, 'outside'>,
    private readonly log: Pick<Logger, 'warn'>,
  ) {
    for (const distance of predictor.shape.distances) {
      const measured = predictor.recall.filter((one) => one.distance === distance);
      const sum = measured.reduce((total, { recall }) => total + recall, 0);
      if (measured.length > 0) this.recalls.set(distance, sum / measured.length);
    }
  }

  get shape(): ExpertMapsShape {
    return this.predictor.shape;
  }

  /** The layers of which the maps at this layer speak, the nearest first. */
  mappedAt(layer: number): MappedLayer[] {
    const { recalls } = this;
    return existingDistances(this.shape, layer).map((distance, index, distances) => {
      const nextDistance = distances[index - 1] ?? null;
      const corrected = nextDistance === null ? 1 : correctedShare(recalls.get(distance), recalls.get(nextDistance));
      return { index, distance, nextDistance, corrected };
    });
  }

  /** Probabilities of every expert: rows x the layer's existing distances x experts. `states`: rows x hiddenSize. Runs on a thread of the addon. */
  predict(layer: number, states: Float32Array, rows: number): Promise<Float32Array> {
    const predicting = this.runtime.outside(() => this.maps.predict(layer, states, rows));
    const ended: Promise<unknown> = Promise.allSettled([predicting]).then(() => this.underWay.delete(ended));
    this.underWay.add(ended);
    return predicting;
  }

  /** The same on the calling thread. */
  predictHere(layer: number, states: Float32Array, rows: number): Float32Array {
    return this.maps.predictHere(layer, states, rows);
  }

  /** They could not run beside a pass, which then does without their announcements. */
  failed(thrown: unknown): void {
    const error = toOdmoeError(thrown);
    this.log.warn('trained maps could not run: for the rest of a pass they announce no experts', { error });
  }

  /** Waits for what runs on other threads: no pass waits for it. */
  async close(): Promise<void> {
    await Promise.all(this.underWay);
    this.maps.dispose();
  }
}
