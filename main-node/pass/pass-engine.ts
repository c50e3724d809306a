import type { NodeSettings } from '../../shared/settings/node-settings.js';
import type { ModelShape } from '../../shared/model/model-shape.js';
import type { Runtime } from '../../shared/base/runtime/runtime.js';
import type { PlacedWorkers } from '../cluster/placed-workers.js';
import type { ExpertDispatcher } from './expert-dispatcher.js';
import type { JointDealer } from './joint-dealer.js';
import type { LayerWaits } from './layer-waits.js';
import type { PassObserver } from './pass-observer.js';
import type { AnnouncedPasses } from './announced-passes.js';

/** What passes need of main. */
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
  /** Is told how long passes of answers' rows take, waits for loads left out. */
  readonly draftCosts: { passed(rows: number, layers: number, layersMs: number): void };
  readonly layerWaits: LayerWaits;
  /** Null: nobody wants to see passes. */
  readonly observer: PassObserver | null;
  readonly runtime: Pick<Runtime, 'nowMs'>;
}

/** Somebody predicts the experts of the sequence's answer at present. */
export function isPredicted(
  { prediction: { source } }: Pick<PassEngine, 'prediction'>,
  { feed }: { feed: { readonly fed: boolean } },
): boolean {
  return source === 'random' || source === 'router-ahead' || feed.fed;
}

/** Waits for all, then throws the first failure: nothing is left running behind a caller that has given up. */
export async function settleAll(promises: readonly Promise<void>[]): Promise<void> {
  const outcomes = await Promise.allSettled(promises);
  for (const outcome of outcomes) if (outcome.status === 'rejected') throw outcome.reason;
}
