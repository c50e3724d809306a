import type { NodeSettings } from '../../shared/settings/node-settings.js';
import type { ModelShape } from '../../shared/model/model-shape.js';
import type { Runtime } from '../../shared/base/runtime/runtime.js';
import type { PlacedWorkers } from '../cluster/placed-workers.js';
import type { ExpertDispatcher } from './expert-dispatcher.js';
import type { JointDealer } from './joint-dealer.js';
import type { LayerWaits } from './layer-waits.js';
import type { PassObserver } from './pass-observer.js';
import type { AnnouncedPasses } from './announced-passes.js';

/** The parts of main that passes use. */
export interface PassEngine {
  readonly shape: ModelShape;
  readonly roster: PlacedWorkers;
  readonly dispatcher: ExpertDispatcher;
  readonly toldPasses: AnnouncedPasses;
  readonly jointDealer: JointDealer;
  readonly miniBatchRows: number;
  /** Prompts' experts load while those of the layer before run. */
  readonly prefillOverlap: boolean;
  readonly prediction: NodeSettings['prediction'];
  readonly spread: NodeSettings['placement']['spread'];
  /** Workers that have nothing left to do for a token load the next one's first layer. */
  readonly firstLayerAhead: boolean;
  /** Takes the durations of passes that have rows of answers alone, without their waits for loads. */
  readonly draftCosts: { passed(rows: number, layers: number, layersMs: number): void };
  readonly layerWaits: LayerWaits;
  /** Null: passes are not observed. */
  readonly observer: PassObserver | null;
  readonly runtime: Pick<Runtime, 'nowMs'>;
}

/** True if something predicts the experts of the sequence's answer at present. */
export function isPredicted(
  { prediction: { source } }: Pick<PassEngine, 'prediction'>,
  { feed }: { feed: { readonly fed: boolean } },
): boolean {
  return source === 'random' || source === 'router-ahead' || feed.fed;
}

/** Waits for all promises, then throws the first failure: nothing is left running after the caller has got an error. */
export async function settleAll(promises: readonly Promise<void>[]): Promise<void> {
  const outcomes = await Promise.allSettled(promises);
  for (const outcome of outcomes) if (outcome.status === 'rejected') throw outcome.reason;
}
