/** What a node was busy with; the letters are those of OD-MoE figures 2, 4 and 5. A message is on its way to the node. */
export type OperationKind = 'M' | 'S' | 'EL' | 'EC' | 'head' | 'message' | 'fault';

/** A stretch of a node's time. */
export interface Operation {
  node: string;
  kind: OperationKind;
  /** What it was, for people. */
  label: string;
  /** First position of the pass that it belongs to; -1: unknown, or of none. */
  position: number;
  /** -1: of none. */
  layer: number;
  fromMs: number;
  toMs: number;
  /** It was given up before it was done. */
  givenUp: boolean;
}

/** Keeps operations for a timing diagram; what has ended while it is switched off is let go. */
export class OperationLog {
  readonly operations: Operation[] = [];

  constructor(public keeps = false) {}

  add(operation: Operation): void {
    if (this.keeps && operation.toMs > operation.fromMs) this.operations.push(operation);
  }
}
