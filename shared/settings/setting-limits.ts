/** Bounds that settings, flags and what follows from them share. */

/** Most threads that a device may be told to use. */
export const THREADS_LIMIT = 1024;

/** Most answers in progress at a time: shadow and workers remember the progress of so many sequences. */
export const MAX_ACTIVE_SEQUENCES = 256;

/** Most answers in progress at a time, of `main.max_active_sequences`; auto: as many as memory admits. */
export function mostActiveSequences(setting: number | 'auto'): number {
  return setting === 'auto' ? MAX_ACTIVE_SEQUENCES : setting;
}

/** Where passes are not joint and nothing else is said. */
const SEPARATE_PASSES = 16;

/**
 * Most passes of one sequence each that run side by side, of `main.max_active_sequences`. Memory is set aside for each of them; further
 * sequences take turns.
 */
export function mostSeparatePasses(setting: number | 'auto'): number {
  return setting === 'auto' ? SEPARATE_PASSES : setting;
}

/** Most rows of one pass. */
export const PASS_ROWS_LIMIT = 16_384;

/** Most positions of one pass: main's token and the drafts behind it. */
export const MAX_DRAFT_ROWS = 16;

/** Passes between two re-plannings of what stays in device memory (FluxMoE section 6.3), where nothing else is set. */
export const REPLAN_PASSES = 300;
