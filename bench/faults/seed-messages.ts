import type { Happened } from '../../simulator/faults/happened.js';
import type { Violation } from '../../simulator/faults/accounts/violation.js';

/** Sent to a process that runs seeds: the next seeds, in order. */
export interface SeedBlock {
  from: number;
  count: number;
}

/** The result of a seed. */
export interface SeedOutcome {
  seed: number;
  /** Hash of all events. */
  history: string;
  violations: Violation[];
  happened: Happened;
}

/** Sent by a process that runs seeds. */
export type SeedReport = { kind: 'begun'; seed: number } | { kind: 'done'; outcome: SeedOutcome };
