/** What a worker keeps of the experts of one layer. `worker`: its place in the placement's list of workers. */
export interface WorkerKept {
  worker: number;
  layer: number;
  experts: number[];
}

export interface AlignToken {
  epoch: number;
  sequence: number;
  position: number;
  tokenId: number;
  /** Positions of the pass that begins here; 0: none begins. */
  rows: number;
  /** Positions that main wants the next pass to have. */
  nextRows: number;
  /** Drafts that proved wrong so far. */
  branch: number;
  /** Main runs the position with rows of other sequences, and tells the workers itself what shadow predicts. Left out: it does not. */
  joint?: boolean;
  /** What workers keep of experts, as far as shadow has not been told. Left out: nothing has changed. */
  kept?: WorkerKept[];
}

export interface DraftToken {
  epoch: number;
  sequence: number;
  position: number;
  tokenId: number;
  branch: number;
  passPosition: number;
  runUs: number;
}
