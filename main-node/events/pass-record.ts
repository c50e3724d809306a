import type { PassTimeline } from '../../shared/wire/cluster-events.js';
import type { ExpertTimes } from '../../shared/wire/messages.js';
import type { RoutedOutcome } from '../pass/pass-observer.js';

/** One worker's report of an expert that it ran for a layer, over all messages together. Times of main are in ms, those of the worker in us. */
export interface ExpertRecord extends Omit<ExpertTimes, 'calledUs' | 'endedUs'> {
  expert: number;
  workerId: string;
  rows: number;
  resent: boolean;
  wasLoaded: boolean;
  stallUs: number;
  executeUs: number;
  /** Null: the work was sent again, at a time that is not known. */
  sentMs: number | null;
  receivedMs: number;
}

/** A layer of a pass, on main's clock. */
export interface LayerRecord {
  layer: number;
  beginMs: number;
  routedMs: number;
  answeredMs: number;
  endMs: number;
  outcomes: Map<number, RoutedOutcome>;
  /** In the order in which results came: one for each message with the expert. */
  experts: ExpertRecord[];
}

/** A prediction as it reached main. */
export interface ArrivedPrediction {
  sequence: number;
  /** Position of the first row of the pass that it is for. */
  position: number;
  layer: number;
  receivedMs: number;
  runUs: number;
  experts: readonly number[];
}

/** A finished pass on main's clock, from which a timeline is made. */
export interface PassRecord {
  number: number;
  beginMs: number;
  endMs: number;
  members: PassTimeline['members'];
  layers: LayerRecord[];
  predictions: ArrivedPrediction[];
}
