import type { SteppedWork } from '../../shared/base/runtime/work-steps.js';
import { compileFormat, formatKey } from './format-grammar.js';
import { TokenVocabulary, type CompiledFormat } from './format-vocabulary.js';
import type { FormatVocabulary, OutputConstraint } from './output-constraint.js';
import { formatInvalid } from '../../shared/wire/output-format.js';
import type { OutputFormat } from '../../shared/wire/messages.js';
import type { CompiledGrammar } from './packed-grammar.js';
import { shortestTexts } from './shortest-texts.js';
import { TextAutomaton, type AutomatonState } from './text-automaton.js';
import { stateAfterToken, tokensAllowed } from './token-masks.js';

/**
 * A constraint over a vocabulary of `formatVocabulary`. A text may be completed with the last token of the room: the end token is not counted,
 * because a closed answer ends by itself. `grammar`: the grammar of the format, over the vocabulary's single bytes; null: it is compiled here,
 * unless it is remembered. Throws REQUEST_INVALID for an invalid format, or one that the vocabulary cannot write.
 */
export function createOutputConstraint(
  format: OutputFormat,
  vocabulary: FormatVocabulary,
  endTokenIds: readonly number[],
  grammar: CompiledGrammar | null = null,
): OutputConstraint {
  if (!(vocabulary instanceof TokenVocabulary)) throw new TypeError('a vocabulary that formatVocabulary has not made');
  const compile = (): CompiledFormat =>
    compiledFor(grammar ?? grammarHere(format, vocabulary), vocabulary, endTokenIds);
  return new AnswerConstraint(vocabulary.compiledFormat(keyOf(format, endTokenIds), compile));
}

/** True if a constraint for the format needs no compilation. */
export function isCompiled(format: OutputFormat, vocabulary: TokenVocabulary, endTokenIds: readonly number[]): boolean {
  return vocabulary.hasCompiled(keyOf(format, endTokenIds));
}

function keyOf(format: OutputFormat, endTokenIds: readonly number[]): string {
  return `${endTokenIds.join(' ')} ${formatKey(format)}`;
}

function grammarHere(format: OutputFormat, { singleBytes }: TokenVocabulary): CompiledGrammar {
  const { root, nodes } = compileFormat(format);
  return { root, shortest: shortestTexts(nodes, singleBytes) };
}

function compiledFor(
  { root, shortest }: CompiledGrammar,
  vocabulary: TokenVocabulary,
  endTokenIds: readonly number[],
): CompiledFormat {
  const automaton = new TextAutomaton(root, shortest);
  if (automaton.start === null) {
    throw formatInvalid(
      "the model's vocabulary has no tokens for the bytes that the output format needs; change the format",
    );
  }
  const longestName = Math.max(0, ...[...vocabulary.special.values()].map((name) => name.length));
  const reach = Math.max(vocabulary.tree.longest, longestName) + 1;
  return { automaton, vocabulary, endTokenIds: new Set(endTokenIds), reach };
}

/** Remembers the state after each token of the latest answer. */
class AnswerConstraint implements OutputConstraint {
  private readonly tokenIds: number[] = [];
  private readonly states: (AutomatonState | null)[];
  private readonly own: Uint8Array;

  constructor(private readonly format: CompiledFormat) {
    this.states = [format.automaton.start];
    this.own = new Uint8Array(format.vocabulary.vocabSize);
  }

  *allowed(answer: readonly number[], room: number): SteppedWork<Uint8Array | null> {
    const state = this.stateAfter(answer);
    return state === null ? null : yield* tokensAllowed(this.format, state, room, this.own);
  }

  isClosed(answer: readonly number[]): boolean {
    const state = this.stateAfter(answer);
    return state !== null && state.isWhole && state.frames.length === 0;
  }

  private stateAfter(answer: readonly number[]): AutomatonState | null {
    let same = 0;
    while (same < answer.length && same < this.tokenIds.length && answer[same] === this.tokenIds[same]) same += 1;
    this.tokenIds.length = same;
    this.states.length = same + 1;
    for (const tokenId of answer.slice(same)) {
      const before = this.states.at(-1) ?? null;
      this.tokenIds.push(tokenId);
      this.states.push(before === null ? null : stateAfterToken(this.format, before, tokenId));
    }
    return this.states.at(-1) ?? null;
  }
}
