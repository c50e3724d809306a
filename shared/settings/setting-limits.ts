/** Bounds that settings, flags and values derived from them share. */

/** Most threads of a device. */
export const THREADS_LIMIT = 1024;

/** Most answers in progress at a time: shadow and workers remember the progress of this many sequences. */
export const MAX_ACTIVE_SEQUENCES = 256;

/** Most answers in progress at a time, from `main.max_active_sequences`; auto: as many as memory admits. */
export function mostActiveSequences(setting: number | 'auto'): number {
  return setting === 'auto' ? MAX_ACTIVE_SEQUENCES : setting;
}

/** Default for passes that are not joint. */
const SEPARATE_PASSES = 16;

/**
 * Most passes of one sequence each that run side by side, from `main.max_active_sequences`. Memory is reserved for each of them; further
 * sequences take turns.
 */
export function mostSeparatePasses(setting: number | 'auto'): number {
  return setting === 'auto' ? SEPARATE_PASSES : setting;
}

/** Most rows of one pass. */
export const PASS_ROWS_LIMIT = 16_384;

/** Most positions of one pass: main's token and the drafts behind it. */
export const MAX_DRAFT_ROWS = 16;

/** Default number of passes between two re-plannings of the experts in device memory (FluxMoE section 6.3). */
export const REPLAN_PASSES = 300;

/** Most tokens whose states main records, and odmoe fit trains with. */
export const RECORDED_TOKENS_LIMIT = 10_000_000;
/** Fewest that a predictor can be trained with and measured by. */
export const LEAST_RECORDED_TOKENS = 4096;

/** Longest time in a setting: an hour. */
export const MILLISECONDS_LIMIT = 3_600_000;

/** Most workers that store the same expert. */
export const REPLICAS_LIMIT = 2;

/** Most expert layers that router-ahead looks ahead. A router further ahead predicts nothing useful. */
export const LAYERS_AHEAD_LIMIT = 8;

/** Most reads that the addon has in flight at a time. */
export const READ_DEPTH_LIMIT = 16;

/** Budget of a worker if no setting gives one. Under emulation the profile gives it. */
export const WORKER_BUDGET_DEFAULT_BYTES = 1024 ** 3;
