import type { LimitsCluster, Target } from './limits-cluster.js';
import type { CaseBounds } from './verdict.js';

/** The daemon's answer to the hostile messages of a case. */
export interface CaseAnswer {
  /** For example "400 REQUEST_INVALID". */
  text: string;
  expected: boolean;
  /** Number of hostile messages that were sent; default 1. */
  messages?: number;
}

/** A hostile act of a client or a peer. */
export interface LimitsCase {
  name: string;
  /** Describes to people the messages that are sent. */
  about: string;
  target: Target;
  /** More flags of main. */
  mainFlags?: readonly string[];
  /** A chat template that replaces the model's. */
  template?: string;
  bounds?: CaseBounds;
  run(cluster: LimitsCluster, signal: AbortSignal): Promise<CaseAnswer>;
}
