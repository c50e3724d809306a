/** Longest text of one JSON schema. */
export const SCHEMA_TEXT_LIMIT_BYTES = 256 * 1024;
/** How deep schemas, and values in enum and const, may nest in the text of a schema. */
export const SCHEMA_DEPTH_LIMIT = 64;
/** Most properties that one object of a schema names. Each may be a way to go on, and all are within FRAMES_LIMIT. */
export const PROPERTIES_LIMIT = 500;
/** Largest minLength and minItems; maxLength and maxItems have no bound. */
export const LEAST_COUNT_LIMIT = 1_000_000;

/** Longest pattern, in UTF-16 units. */
export const PATTERN_LENGTH_LIMIT = 4096;
/** Largest count in a pattern's {n,m}. */
export const PATTERN_COUNT_LIMIT = 4096;
/** Groups within groups. */
export const PATTERN_DEPTH_LIMIT = 100;
/** States of a pattern before and after it is made deterministic, and with the lengths that stand beside it. */
export const PATTERN_STATES_LIMIT = 20_000;
/** Steps that making the patterns of a format deterministic may take. */
export const PATTERN_WORK_LIMIT = 3_000_000;

/** States and nodes of the grammar that is made of a format. */
export const GRAMMAR_STATES_LIMIT = 250_000;

/** Ways to go on that are kept at one place of an answer; of more, the shortest stay. */
export const FRAMES_LIMIT = 512;
/** Frames on one another (two or more a nested value); above it only the shortest ways to the end are open. */
export const FRAME_DEPTH_LIMIT = 1024;
/** States of an automaton that are kept; then it forgets them and makes them again where they are needed. */
export const STATES_KEPT_LIMIT = 4096;
/** Frames that are kept, likewise. One mask of FRAMES_LIMIT ways needs some 100,000: with fewer it would make them over and over. */
export const FRAMES_KEPT_LIMIT = 262_144;

/** Grammars that are kept from a format's check to its first use. */
export const GRAMMARS_KEPT_LIMIT = 4;
/** Compiled formats that a vocabulary keeps, and the masks of all of them together. */
export const COMPILED_FORMATS_LIMIT = 8;
export const MASKS_LIMIT_BYTES = 64 * 1024 * 1024;
