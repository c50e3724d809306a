/**
 * Prompt lookup: drafts without weights. The longest end of the text that stands in it earlier, too, proposes what followed there (LLMA, arXiv
 * 2304.04487; prompt lookup decoding). Pure but for its own memory.
 */

/** Tokens of the shortest end of which several earlier places are compared. Where none stands earlier, the latest place of the last token counts. */
const SHORTEST_COMPARED = 2;
/** Longest end that is compared; a longer one says no more about what follows. */
export const LONGEST_MATCH = 32;
/** Earlier places that are compared, the latest first. It bounds the work of a proposal. */
export const MOST_PLACES = 32;
/** Two ids make one number. Larger ids may share one; the tokens are compared anyway, so that this costs a look. */
const ID_LIMIT = 33_554_432;
/** Stands between texts. No proposal goes beyond it, and no match. */
const BREAK = -1;
const NOWHERE = -1;

/** Tokens that may follow. */
export interface LookedUp {
  tokenIds: number[];
  /** Tokens of the end that stands at the earlier place, up to LONGEST_MATCH; 0: none, and nothing is proposed. */
  matchLength: number;
}

const NOTHING: LookedUp = { tokenIds: [], matchLength: 0 };

/**
 * The text of one answer: prompt and answer, and texts that the client expects in the answer. It takes two numbers of memory for each token, and
 * one entry for each different token and for each different pair of tokens.
 */
export class PromptLookup {
  private readonly tokens: number[] = [];
  /** By place: the latest earlier place with the same two tokens; NOWHERE: none. */
  private readonly earlier: number[] = [];
  private readonly latest = new Map<number, number>();
  /** The latest place of each token. */
  private readonly latestAlone = new Map<number, number>();
  /** The place of the last token before that; NOWHERE: it is new. */
  private earlierAlone = NOWHERE;

  /** A text in which matches are looked for, before the prompt and the answer. */
  expect(tokenIds: readonly number[]): void {
    for (const tokenId of tokenIds) this.append(tokenId);
    this.earlierAlone = NOWHERE;
    this.tokens.push(BREAK);
    this.earlier.push(NOWHERE);
  }

  /** The next token of prompt or answer. */
  append(tokenId: number): void {
    const place = this.tokens.length;
    const before = this.tokens[place - 1] ?? BREAK;
    this.tokens.push(tokenId);
    this.earlierAlone = this.latestAlone.get(tokenId) ?? NOWHERE;
    this.latestAlone.set(tokenId, place);
    if (before === BREAK) {
      this.earlier.push(NOWHERE);
      return;
    }
    const pair = before * ID_LIMIT + tokenId;
    this.earlier.push(this.latest.get(pair) ?? NOWHERE);
    this.latest.set(pair, place);
  }

  /** The tokens that may follow, at most `limit`. */
  propose(limit: number): LookedUp {
    if (limit < 1) return NOTHING;
    let best = NOWHERE;
    let matchLength = SHORTEST_COMPARED - 1;
    let place = this.earlier.at(-1) ?? NOWHERE;
    for (let places = 0; place !== NOWHERE && places < MOST_PLACES && matchLength < LONGEST_MATCH; places += 1) {
      const length = this.matchAt(place);
      if (length > matchLength) [best, matchLength] = [place, length];
      place = this.earlier[place] ?? NOWHERE;
    }
    if (best === NOWHERE) [best, matchLength] = [this.earlierAlone, 1];
    const tokenIds = best === NOWHERE ? [] : this.following(best, limit);
    // An expected text may end with the same token.
    return tokenIds.length === 0 ? NOTHING : { tokenIds, matchLength };
  }

  /** Tokens up to the place that equal the end of the text. */
  private matchAt(place: number): number {
    const { tokens } = this;
    const end = tokens.length - 1;
    let length = 0;
    while (length < LONGEST_MATCH && length <= place) {
      const token = tokens[place - length];
      if (token === BREAK || token !== tokens[end - length]) break;
      length += 1;
    }
    return length;
  }

  /** The tokens behind the place. If the text ends before there are enough of them, the proposal continues with its own tokens: a repetition repeats. */
  private following(place: number, limit: number): number[] {
    const found: number[] = [];
    while (found.length < limit) {
      const next = place + 1 + found.length;
      const token = next < this.tokens.length ? this.tokens[next] : found[next - this.tokens.length];
      if (token === undefined || token === BREAK) break;
      found.push(token);
    }
    return found;
  }
}
