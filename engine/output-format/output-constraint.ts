import type { SteppedWork } from '../../shared/base/runtime/work-steps.js';

/** The tokens of a model as bytes; made once per model and shared by all constraints. */
export interface FormatVocabulary {
  readonly vocabSize: number;
}

/** The format of one answer, followed token by token. If it is called for a shorter or different answer, it goes back by itself. */
export interface OutputConstraint {
  /**
   * The tokens that may follow `answer`, by token id: 1 may, 0 may not. `room`: tokens that the answer may still have. Near its end, only
   * tokens are allowed after which the format can be closed within the room. An end token is allowed when the format is complete. Null:
   * `answer` does not follow the format, so nothing is known. The array is reused: read it before the next call. Yields sometimes so that other
   * work can run; the next call must not begin before this one has ended.
   */
  allowed(answer: readonly number[], room: number): SteppedWork<Uint8Array | null>;
  /** The format is complete after `answer`, and only an end may follow. */
  isClosed(answer: readonly number[]): boolean;
}
