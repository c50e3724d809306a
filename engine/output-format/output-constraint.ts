import type { SlicedWork } from '../../shared/base/runtime/slices.js';
import type { OutputFormat } from '../../shared/wire/messages.js';

/** The tokens of a model as bytes; made once for a model, shared by all constraints. */
export interface FormatVocabulary {
  readonly vocabSize: number;
}

/** One answer's format, followed token by token. Asked again for a shorter or another answer, it goes back by itself. */
export interface OutputConstraint {
  /**
   * Which tokens may come after `answer`, by token id: 1 may, 0 may not. `room`: tokens that the answer may still have; near its end only
   * tokens are left after which the format can be closed within the room. An end token may come where the format is whole. Null: `answer`
   * does not follow the format, so that nothing can be said. The array is the constraint's own: read it before the next call. Yields now and
   * then, for others to have their turn; the next call is not to begin before this one has ended.
   */
  allowed(answer: readonly number[], room: number): SlicedWork<Uint8Array | null>;
  /** The format is whole after `answer`, and nothing but an end may come. */
  isClosed(answer: readonly number[]): boolean;
}

/** What makes constraints; `createOutputConstraint` throws REQUEST_INVALID for a format that is none. */
export type CreateOutputConstraint = (
  format: OutputFormat,
  vocabulary: FormatVocabulary,
  endTokenIds: readonly number[],
) => OutputConstraint;
