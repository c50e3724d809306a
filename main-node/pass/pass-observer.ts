import type { Predict } from '../../shared/wire/messages.js';
import type { ExpertOutcome } from './expert-dispatcher.js';
import type { MemberRows } from './pass-member.js';

/** The state of an expert's prediction when main's router chose it. A prediction that comes later may still name an expert that was 'mispredicted'. */
export type RoutedOutcome = 'predicted' | 'mispredicted' | 'announced' | 'unpredicted';

/** An expert that rows of a pass have chosen in a layer, and the workers that run it. */
export interface RoutedExpert {
  expert: number;
  rows: number;
  outcome: RoutedOutcome;
  /** Several workers if its rows go out in mini-batches. */
  workerIds: readonly string[];
}

/**
 * Observes main's passes. Its methods are called as things happen, so that it takes the time itself. An error that it throws ends the pass. Nothing
 * is computed for an observer where there is none.
 */
export interface PassObserver {
  /** A pass begins. Returns null if this pass is not observed any further. */
  begin(rows: readonly MemberRows[]): ObservedPass | null;
  /** A prediction from shadow, for a sequence that is open, has reached main. */
  predictionArrived(prediction: Predict): void;
  /** The sequence has no further passes. */
  sequenceEnded(sequence: number): void;
}

/** Observes one pass. Layers come one after another. */
export interface ObservedPass {
  /** Main begins with the layer's attention. */
  layerBegun(layer: number): void;
  /** Its router has chosen; the messages are about to go out. */
  routed(layer: number, experts: readonly RoutedExpert[]): void;
  /** A message goes to a worker for the first time. Work that is sent again shows in its outcome (`resent`). */
  sent(layer: number, workerId: string, experts: readonly number[]): void;
  /** An expert's output has come, with the worker's times. With mini-batches one expert gives several outputs. */
  received(layer: number, outcome: ExpertOutcome): void;
  /** All outputs of the layer are there. */
  answered(layer: number): void;
  /** The outputs are summed. */
  layerEnded(layer: number): void;
  /** `failed`: the pass did not reach its last layer. */
  ended(failed: boolean): void;
}
