import type { Happened } from '../../simulator/faults/happened.js';
import type { Violation } from '../../simulator/faults/accounts/violation.js';

/** To a process that runs seeds: the next ones, in their order. */
export interface SeedBlock {
  from: number;
  count: number;
}

/** What came of a seed. */
export interface SeedOutcome {
  seed: number;
  /** Hash of all that happened. */
  history: string;
  violations: Violation[];
  happened: Happened;
}

/** From a process that runs seeds. */
export type SeedReport = { kind: 'begun'; seed: number } | { kind: 'done'; outcome: SeedOutcome };
