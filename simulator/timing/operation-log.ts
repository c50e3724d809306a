/** Kinds of operations; the letters are those of OD-MoE figures 2, 4 and 5. A message belongs to the node that receives it. */
export type OperationKind = 'M' | 'S' | 'EL' | 'EC' | 'head' | 'message' | 'fault';

/** One operation of a node, with its begin and end. */
export interface Operation {
  node: string;
  kind: OperationKind;
  /** Description for people. */
  label: string;
  /** First position of its pass; -1: unknown, or no pass. */
  position: number;
  /** -1: no layer. */
  layer: number;
  fromMs: number;
  toMs: number;
  /** True if it was cancelled before its end. */
  givenUp: boolean;
}

/** Stores operations for a timing diagram; operations that end while it is switched off are dropped. */
export class OperationLog {
  readonly operations: Operation[] = [];

  constructor(public keeps = false) {}

  add(operation: Operation): void {
    if (this.keeps && operation.toMs > operation.fromMs) this.operations.push(operation);
  }
}
