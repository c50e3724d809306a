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

/** What gives an answer's constraint. */
export type FormatSource = Pick<OutputFormats, 'constraintOf'>;

/** A format that is compiled now, and how many answers wait for it. */
interface Compiling {
  grammar: Promise<CompiledGrammar>;
  abort: AbortController;
  waiting: number;
}

/** The output formats of one model. Its vocabulary is read once: by `prepare`, or when the first answer wants a format. */
export class OutputFormats {
  private vocabulary: TokenVocabulary | null = null;
  private readonly compiling = new Map<string, Compiling>();

  /** `tokenizer`: null: the model has none, and so no formats. `compiler`: null: formats are compiled where they are asked for. */
  constructor(
    private readonly tokenizer: Tokenizer | null,
    private readonly vocabSize: number,
    private readonly endTokenIds: readonly number[],
    private readonly compiler: FormatCompiler | null = null,
  ) {}

  /** Reads the vocabulary, so that no answer waits for it later: one of 150,000 tokens takes most of a second. */
  prepare(): void {
    if (this.tokenizer !== null) this.vocabularyOf(this.tokenizer);
  }

  /**
   * Of one answer; null: any text. A promise where the format must be compiled elsewhere first. Throws, or rejects with, REQUEST_INVALID for a
   * format that is none, or that the model cannot have, and what the compiler names.
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

  /** Answers that want the same format at the same time wait for one compilation, which ends when none of them waits any more. */
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

/** Of a model that nobody asks for formats. */
export const NO_FORMATS: FormatSource = new OutputFormats(null, 0, []);
