import type { LimitsCluster, Target } from './limits-cluster.js';
import type { CaseBounds } from './verdict.js';

/** What a daemon answered to what was sent to it. */
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
  /** What is sent, for people. */
  about: string;
  target: Target;
  /** Further flags of main. */
  mainFlags?: readonly string[];
  /** A chat template in place of the model's. */
  template?: string;
  bounds?: CaseBounds;
  run(cluster: LimitsCluster, signal: AbortSignal): Promise<CaseAnswer>;
}
