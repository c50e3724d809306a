import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { createOutputConstraint, isCompiled } from '../output-format/create-output-constraint.js';
import { formatKey } from '../output-format/format-grammar.js';
import { formatVocabulary, type TokenVocabulary } from '../output-format/format-vocabulary.js';
import type { OutputConstraint } from '../output-format/output-constraint.js';
import { FORMAT_FIELD } from '../../shared/wire/output-format.js';
import type { OutputFormat } from '../../shared/wire/messages.js';
import type { CompiledGrammar } from '../output-format/packed-grammar.js';
import type { Tokenizer } from '../../shared/language/tokenizer/tokenizer.js';
import type { FormatCompiler } from './format-compiler.js';
import { onAbort } from '../../shared/base/runtime/living.js';

/** The source of an answer's constraint. */
export type FormatSource = Pick<OutputFormats, 'constraintOf'>;

/** A format whose compilation is under way, and the number of answers that wait for it. */
interface Compiling {
  grammar: Promise<CompiledGrammar>;
  abort: AbortController;
  waiting: number;
}

/** The output formats of one model. The vocabulary is read once: by `prepare`, or when the first answer has a format. */
export class OutputFormats {
  private vocabulary: TokenVocabulary | null = null;
  private readonly compiling = new Map<string, Compiling>();

  /** `tokenizer`: null if the model has none; then it has no formats. `compiler`: null: formats are compiled in place. */
  constructor(
    private readonly tokenizer: Tokenizer | null,
    private readonly vocabSize: number,
    private readonly endTokenIds: readonly number[],
    private readonly compiler: FormatCompiler | null = null,
  ) {}

  /** Reads the vocabulary, so that no answer waits for it later: for 150,000 tokens it takes most of a second. */
  prepare(): void {
    if (this.tokenizer !== null) this.vocabularyOf(this.tokenizer);
  }

  /**
   * The constraint of one answer; null: any text. Returns a promise if the format must first be compiled elsewhere. Throws, or rejects with,
   * REQUEST_INVALID for a format that is invalid or that the model does not support, and the errors of the compiler.
   */
  constraintOf(format: OutputFormat | null, signal: AbortSignal): OutputConstraint | null | Promise<OutputConstraint> {
    if (format === null) return null;
    const { tokenizer, compiler, endTokenIds } = this;
    if (tokenizer === null) {
      throw new OdmoeError(
        'REQUEST_INVALID',
        'an output format needs text, but the model has no tokenizer.json; leave it out',
        { field: FORMAT_FIELD },
      );
    }
    const vocabulary = this.vocabularyOf(tokenizer);
    if (compiler === null || isCompiled(format, vocabulary, endTokenIds)) {
      return createOutputConstraint(format, vocabulary, endTokenIds);
    }
    return this.compiled(compiler, format, vocabulary.singleBytes, signal).then((grammar) =>
      createOutputConstraint(format, vocabulary, endTokenIds, grammar),
    );
  }

  /** Answers that want the same format at the same time share one compilation; it is aborted when none of them waits any more. */
  private async compiled(
    compiler: FormatCompiler,
    format: OutputFormat,
    singleBytes: Uint8Array,
    signal: AbortSignal,
  ): Promise<CompiledGrammar> {
    const key = formatKey(format);
    const compiling = this.compiling.get(key) ?? this.begin(key, compiler, format, singleBytes);
    compiling.waiting += 1;
    const leave = (): void => {
      compiling.waiting -= 1;
      if (compiling.waiting > 0) return;
      compiling.abort.abort();
      if (this.compiling.get(key) === compiling) this.compiling.delete(key);
    };
    return new Promise<CompiledGrammar>((resolve, reject) => {
      const onGone = (): void => {
        leave();
        reject(new OdmoeError('CANCELLED', 'the request was cancelled before its output format was compiled'));
      };
      const settled = (settle: () => void): void => {
        if (signal.aborted) return;
        stopListening();
        leave();
        settle();
      };
      if (signal.aborted) {
        onGone();
        return;
      }
      const stopListening = onAbort(signal, onGone);
      compiling.grammar.then(
        (grammar) => settled(() => resolve(grammar)),
        (thrown: Error) => settled(() => reject(thrown)),
      );
    });
  }

  private begin(key: string, compiler: FormatCompiler, format: OutputFormat, singleBytes: Uint8Array): Compiling {
    const abort = new AbortController();
    const compiling = { grammar: compiler.compile(format, singleBytes, abort.signal), abort, waiting: 0 };
    this.compiling.set(key, compiling);
    return compiling;
  }

  private vocabularyOf(tokenizer: Tokenizer): TokenVocabulary {
    return (this.vocabulary ??= formatVocabulary(tokenizer, this.vocabSize));
  }
}

/** For a model that gets no requests with formats. */
export const NO_FORMATS: FormatSource = new OutputFormats(null, 0, []);
