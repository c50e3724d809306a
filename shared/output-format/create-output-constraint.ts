import { formatInvalid } from './format-limits.js';
import { compileFormat, formatKey } from './format-grammar.js';
import { TokenVocabulary, type CompiledFormat } from './format-vocabulary.js';
import type { FormatVocabulary, OutputConstraint } from './output-constraint.js';
import type { OutputFormat } from './output-format.js';
import { shortestTexts } from './shortest-texts.js';
import { TextAutomaton, type AutomatonState } from './text-automaton.js';
import { stateAfterToken, tokensAllowed } from './token-masks.js';

/**
 * A constraint over a vocabulary of `formatVocabulary`. A text that is whole when the room is used up is whole: the end token is not counted, and
 * an answer that is closed ends by itself. Throws REQUEST_INVALID for a format that is none, or that the vocabulary cannot write.
 */
export function createOutputConstraint(
  format: OutputFormat,
  vocabulary: FormatVocabulary,
  endTokenIds: readonly number[],
): OutputConstraint {
  if (!(vocabulary instanceof TokenVocabulary)) throw new TypeError('a vocabulary that formatVocabulary has not made');
  const key = `${endTokenIds.join(' ')} ${formatKey(format)}`;
  return new AnswerConstraint(vocabulary.compiledFormat(key, () => compiledFor(format, vocabulary, endTokenIds)));
}

function compiledFor(
  format: OutputFormat,
  vocabulary: TokenVocabulary,
  endTokenIds: readonly number[],
): CompiledFormat {
  const { root, nodes } = compileFormat(format);
  const automaton = new TextAutomaton(root, shortestTexts(nodes, vocabulary.singleBytes));
  if (automaton.start === null) {
    throw formatInvalid(
      "the model's vocabulary has no tokens for the bytes that the output format needs; change the format",
    );
  }
  const longestName = Math.max(0, ...[...vocabulary.special.values()].map((name) => name.length));
  const reach = Math.max(vocabulary.tree.longest, longestName) + 1;
  return { automaton, vocabulary, endTokenIds: new Set(endTokenIds), reach };
}

/** Remembers the state after each token of the last answer that was asked for. */
class AnswerConstraint implements OutputConstraint {
  private readonly tokenIds: number[] = [];
  private readonly states: (AutomatonState | null)[];
  private readonly own: Uint8Array;

  constructor(private readonly format: CompiledFormat) {
    this.states = [format.automaton.start];
    this.own = new Uint8Array(format.vocabulary.vocabSize);
  }

  allowed(answer: readonly number[], room: number): Uint8Array | null {
    const state = this.stateAfter(answer);
    return state === null ? null : tokensAllowed(this.format, state, room, this.own);
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
