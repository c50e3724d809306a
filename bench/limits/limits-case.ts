import type { LimitsCluster, Target } from './limits-cluster.js';
import type { CaseBounds } from './verdict.js';

/** The daemon's answer to the hostile messages of a case. */
export interface CaseAnswer {
  /** "400 REQUEST_INVALID" */
  text: string;
  expected: boolean;
  /** Hostile messages that were sent; 1 if left out. */
  messages?: number;
}

/** Something hostile that a client or a peer may do. */
export interface LimitsCase {
  name: string;
  /** Says to people which messages are sent. */
  about: string;
  target: Target;
  /** Further flags of main. */
  mainFlags?: readonly string[];
  /** A chat template in place of the model's. */
  template?: string;
  bounds?: CaseBounds;
  run(cluster: LimitsCluster, signal: AbortSignal): Promise<CaseAnswer>;
}
