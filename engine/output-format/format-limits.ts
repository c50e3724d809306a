/** Longest text of one JSON schema. */
export const SCHEMA_TEXT_LIMIT_BYTES = 256 * 1024;
/** Most levels of nested schemas, and of nested values in enum and const, in the text of a schema. */
export const SCHEMA_DEPTH_LIMIT = 64;
/** Most properties that one object of a schema names. Each property can be a frame at the same place, and FRAMES_LIMIT must hold them all. */
export const PROPERTIES_LIMIT = 500;
/** Largest minLength, minItems and minProperties; maxLength, maxItems and maxProperties have no bound. */
export const LEAST_COUNT_LIMIT = 1_000_000;
/** Largest multipleOf, in units of its last digit: an automaton has a state for each rest. */
export const MULTIPLE_OF_LIMIT = 10_000;
/** Most digits of a multipleOf behind the point. */
export const MULTIPLE_OF_DIGITS = 6;
/** Most classes of keys that the patternProperties of one object make. */
export const KEY_CLASSES_LIMIT = 32;
/** Most schemas that are made of conjunctions (allOf, and keywords beside $ref, anyOf and oneOf). */
export const CONJUNCTIONS_LIMIT = 5000;

/** Longest pattern, in UTF-16 units. */
export const PATTERN_LENGTH_LIMIT = 4096;
/** Largest count in a pattern's {n,m}. */
export const PATTERN_COUNT_LIMIT = 4096;
/** Unicode properties (\p) whose characters are remembered. */
export const REMEMBERED_PROPERTIES_LIMIT = 8;
/** Most levels of nested groups. */
export const PATTERN_DEPTH_LIMIT = 100;
/** States of a pattern before and after it is made deterministic, with the states for its length limits. */
export const PATTERN_STATES_LIMIT = 20_000;
/** About as many states count the length of a text with a pattern; a larger maxLength is written as if it were smaller. */
export const COUNTED_STATES = 16_000;
/** Most steps of making the patterns of a format deterministic. */
export const PATTERN_WORK_LIMIT = 3_000_000;

/** States and nodes of the grammar of one format. */
export const GRAMMAR_STATES_LIMIT = 250_000;

/** Most frames of one state; if there are more, the ones with the shortest texts remain. */
export const FRAMES_LIMIT = 512;
/** Depth of stacked frames (two or more per nested value); above it only the shortest ways to the end remain. */
export const FRAME_DEPTH_LIMIT = 1024;
/** States that an automaton remembers; at the limit it forgets them all and makes them again when needed. */
export const REMEMBERED_STATES_LIMIT = 4096;
/**
 * Frames that an automaton remembers, with the same rule. One mask of FRAMES_LIMIT frames needs about 100,000: a lower limit would make them
 * again and again.
 */
export const REMEMBERED_FRAMES_LIMIT = 262_144;

/** Grammars that are remembered from a format's check to its first use. */
export const REMEMBERED_GRAMMARS_LIMIT = 4;
/** Compiled formats that a vocabulary remembers, and the bytes of all their masks together. */
export const COMPILED_FORMATS_LIMIT = 8;
export const MASKS_LIMIT_BYTES = 64 * 1024 * 1024;
