import type { PassTrace } from '../../shared/wire/cluster-events.js';
import type { ExpertTimes } from '../../shared/wire/messages.js';
import type { PredictionOutcome } from '../pass/pass-observer.js';

/** What one worker told of an expert that it ran for a layer; of several messages together. Times of main's in ms, of the worker's in us. */
export interface ExpertRecord extends Omit<ExpertTimes, 'calledUs' | 'endedUs'> {
  expert: number;
  workerId: string;
  rows: number;
  resent: boolean;
  wasLoaded: boolean;
  stallUs: number;
  executeUs: number;
  /** Null: it was sent again, and nobody has told when. */
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
  foretold: Map<number, PredictionOutcome>;
  /** As results have come: one for each of an expert's messages. */
  experts: ExpertRecord[];
}

/** A prediction as it reached main. */
export interface ArrivedPrediction {
  sequence: number;
  /** Of the first row of the pass that it is for. */
  position: number;
  layer: number;
  receivedMs: number;
  runUs: number;
  experts: readonly number[];
}

/** A pass as it went, on main's clock: what a trace is made of. */
export interface PassRecord {
  number: number;
  beginMs: number;
  endMs: number;
  members: PassTrace['members'];
  layers: LayerRecord[];
  predictions: ArrivedPrediction[];
}
