import type { Predict } from '../../shared/wire/messages.js';
import type { ExpertOutcome } from './expert-dispatcher.js';
import type { MemberRows } from './pass-member.js';

/** How an expert was foretold when main's router chose it. A prediction that comes later may still name one that was 'missed'. */
export type PredictionOutcome = 'predicted' | 'missed' | 'announced' | 'unpredicted';

/** An expert that rows of a pass have chosen in a layer, and who runs it. */
export interface RoutedExpert {
  expert: number;
  rows: number;
  foretold: PredictionOutcome;
  /** Several where its rows go out in mini-batches. */
  workerIds: readonly string[];
}

/**
 * Whoever wants to see main's passes. Told as things happen, so that it takes the time itself; what it throws ends the pass. Nothing is
 * worked out for it where there is none.
 */
export interface PassObserver {
  /** A pass begins. Null: of this one nothing more is to be told. */
  begin(rows: readonly MemberRows[]): ObservedPass | null;
  /** A prediction of shadow's, for a sequence that is open, has reached main. */
  predictionArrived(prediction: Predict): void;
  /** No pass of the sequence comes any more. */
  sequenceEnded(sequence: number): void;
}

/** Is told of one pass. Layers come one after another. */
export interface ObservedPass {
  /** Main begins with the layer's attention. */
  layerBegun(layer: number): void;
  /** Its router has chosen; the messages are about to go out. */
  routed(layer: number, experts: readonly RoutedExpert[]): void;
  /** A message goes to a worker for the first time. What is sent again tells its outcome (`resent`). */
  sent(layer: number, workerId: string, experts: readonly number[]): void;
  /** An expert's output has come, with the worker's times. In mini-batches one expert gives several. */
  received(layer: number, outcome: ExpertOutcome): void;
  /** All outputs of the layer are there. */
  answered(layer: number): void;
  /** They are summed. */
  layerEnded(layer: number): void;
  /** `failed`: it did not come to its last layer. */
  ended(failed: boolean): void;
}
