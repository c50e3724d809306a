/** What main, shadow and workers tell one another of one layer of a pass; the rest of the wire is in messages.ts. */

/** A row of a pass: a position of a sequence. A pass is known by its first row. */
export interface PassRow {
  sequence: number;
  position: number;
}

/** Rows of one sequence at positions that follow one another. */
export interface RowRun {
  sequence: number;
  position: number;
  rows: number;
}

/** One layer of a pass, for some of the pass's rows. */
export interface PassLayer {
  pass: PassRow;
  rows: readonly RowRun[];
  layer: number;
}

export interface Prediction extends PassLayer {
  epoch: number;
  experts: number[];
  /** Places in the placement's list of workers, one for each expert; empty: who the layer's group has for it. */
  workers: number[];
  /** No prediction: all that shadow has predicted for the sequence of `pass` from its position on is void. */
  restart: boolean;
  /** From shadow to main: the workers have not been told. Left out: they have. */
  untold?: boolean;
  /** From shadow: what its pass had taken when the layer's router chose. */
  runUs?: number;
}

export type TensorType = 'TENSOR_TYPE_UNSPECIFIED' | 'TENSOR_TYPE_F32' | 'TENSOR_TYPE_BF16';

/** One expert and the rows that it runs on. */
export interface ExpertRows {
  expert: number;
  /** Indexes of the Execute's rows, rising; empty: all. */
  rows: readonly number[];
  /** No further Execute for this expert in this pass. */
  last: boolean;
}

export interface Execute extends PassLayer {
  requestId: number;
  epoch: number;
  hiddenSize: number;
  dtype: TensorType;
  /** rows x hiddenSize, each row once. */
  hidden: Uint8Array;
  experts: readonly ExpertRows[];
}

/** These experts of the layer will not be asked for. `rows`: all of the pass. */
export interface Release extends PassLayer {
  epoch: number;
  experts: number[];
}

export interface ExpertFailure {
  code: string;
  message: string;
}

/** When a worker did what it did with an expert, on its own clock. */
export interface ExpertTimes {
  /** What the load that brought the expert took; 0: it was there from an earlier use. */
  loadUs: number;
  /** How long before the request came that load had ended; 0: later (stallUs tells when), or there was none. */
  loadedBeforeUs: number;
  /** From the request's coming to the begin of the execution. */
  begunUs: number;
  /** From the request's coming to the leaving of the answer. */
  answeredUs: number;
  /** From the request's coming to the call of the device, and to the end of the last of its calls in the worker's event loop; both 0: not told. */
  calledUs: number;
  endedUs: number;
}

export interface ExpertResult extends ExpertTimes {
  expert: number;
  rows: number;
  wasLoaded: boolean;
  stallUs: number;
  executeUs: number;
  /** rows x hiddenSize. */
  output: Uint8Array;
  /** null: the expert has run. */
  failure: ExpertFailure | null;
}

/** All experts of a layer of which a worker keeps all bytes, plain or compressed. */
export interface KeptExperts {
  experts: number[];
}

/** Some of what an Execute asked for. */
export interface ExecuteResult {
  requestId: number;
  epoch: number;
  hiddenSize: number;
  dtype: TensorType;
  experts: ExpertResult[];
  /** Nothing more comes for this request. */
  last: boolean;
  /** What the worker keeps of the layer, where that has changed since it told. */
  kept?: KeptExperts | null;
}

/** Nothing was done. */
export const NO_TIMES: ExpertTimes = {
  loadUs: 0,
  loadedBeforeUs: 0,
  begunUs: 0,
  answeredUs: 0,
  calledUs: 0,
  endedUs: 0,
};

/** Of a sequence that was begun with a prefix: positions that shadow need not run. */
export interface PrefixKept {
  sequence: number;
  positions: number;
}
