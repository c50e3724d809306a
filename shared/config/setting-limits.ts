/** Bounds that settings, flags and what follows from them share. */

/** Most threads that a device may be told to use. */
export const THREADS_LIMIT = 1024;

/** Most positions of one pass: main's token and the drafts behind it. */
export const MAX_DRAFT_ROWS = 16;
