import { OdmoeError } from '../../shared/errors/odmoe-error.js';
import { createOutputConstraint } from '../../shared/output-format/create-output-constraint.js';
import { formatVocabulary } from '../../shared/output-format/format-vocabulary.js';
import type { FormatVocabulary, OutputConstraint } from '../../shared/output-format/output-constraint.js';
import type { OutputFormat } from '../../shared/output-format/output-format.js';
import type { Tokenizer } from '../../shared/tokenizer/tokenizer.js';

/** What gives an answer's constraint. */
export type FormatSource = Pick<OutputFormats, 'constraintOf'>;

/** The output formats of one model. Its vocabulary is read once: by `prepare`, or when the first answer wants a format. */
export class OutputFormats {
  private vocabulary: FormatVocabulary | null = null;

  /** `tokenizer`: null: the model has none, and so no formats. */
  constructor(
    private readonly tokenizer: Tokenizer | null,
    private readonly vocabSize: number,
    private readonly endTokenIds: readonly number[],
  ) {}

  /** Reads the vocabulary, so that no answer waits for it later: one of 150,000 tokens takes most of a second. */
  prepare(): void {
    if (this.tokenizer !== null) this.vocabularyOf(this.tokenizer);
  }

  /** Of one answer; null: any text. Throws REQUEST_INVALID for a format that is none, or that the model cannot have. */
  constraintOf(format: OutputFormat | null): OutputConstraint | null {
    if (format === null) return null;
    const { tokenizer } = this;
    if (tokenizer === null) {
      throw new OdmoeError(
        'REQUEST_INVALID',
        'an output format needs text, but the model has no tokenizer.json; leave it out',
        { field: 'sampling.output_format' },
      );
    }
    return createOutputConstraint(format, this.vocabularyOf(tokenizer), this.endTokenIds);
  }

  private vocabularyOf(tokenizer: Tokenizer): FormatVocabulary {
    return (this.vocabulary ??= formatVocabulary(tokenizer, this.vocabSize));
  }
}

/** Of a model that nobody asks for formats. */
export const NO_FORMATS: FormatSource = new OutputFormats(null, 0, []);
