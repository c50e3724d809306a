import { GGUF_TOKEN, corruptTokenizer, type GgufVocabulary } from './gguf-tokenizer-keys.js';

/** SentencePiece makes pieces of 16 characters, unless it is asked for more. Every place in a piece is a cut. */
const MOST_PIECE_CHARACTERS = 512;
/** Mixtral has 59,000, Gemma 580,000. */
const MOST_CUTS = 4_000_000;

type Merge = readonly [string, string];

/**
 * Merges of a SentencePiece vocabulary, best first. SentencePiece joins the two neighbours whose joint token has the best score; a list of
 * merges says the same if it has every cut of every token into two tokens. Ties are in the order of transformers' converter
 * (generate_merges): longer left part first, then longer right part. Only ordinary tokens take part: a text must not become a control token.
 * @throws MODEL_CORRUPT: pieces too long or too many
 */
export function mergesFromScores(
  vocabulary: GgufVocabulary,
  scores: readonly number[],
  path: string,
): readonly Merge[] {
  const { tokens, ids } = vocabulary;
  const isPiece = (text: string): boolean => {
    const id = ids.get(text);
    return id !== undefined && isOrdinary(vocabulary, id);
  };
  const merges: { merge: Merge; score: number; lengths: readonly [number, number] }[] = [];
  for (const [id, token] of tokens.entries()) {
    if (!isOrdinary(vocabulary, id)) continue;
    const characters = [...token];
    if (characters.length > MOST_PIECE_CHARACTERS) {
      throw corruptTokenizer(
        path,
        `token ${id} has ${characters.length} characters, expected ${MOST_PIECE_CHARACTERS} at most`,
      );
    }
    const cuts: Merge[] = [];
    let cut = 0;
    for (const character of characters.slice(0, -1)) {
      cut += character.length;
      const [left, right] = [token.slice(0, cut), token.slice(cut)];
      if (isPiece(left) && isPiece(right)) cuts.push([left, right]);
    }
    cuts.sort((a, b) => idOf(ids, a[0]) - idOf(ids, b[0]) || idOf(ids, a[1]) - idOf(ids, b[1]));
    for (const merge of cuts) {
      merges.push({ merge, score: scores[id] ?? 0, lengths: [[...merge[0]].length, [...merge[1]].length] });
    }
    if (merges.length > MOST_CUTS) throw corruptTokenizer(path, `its tokens have more than ${MOST_CUTS} merges`);
  }
  // Equal scores may be infinite, so they are compared, not subtracted.
  const byScore = (a: number, b: number): number => (a === b ? 0 : a > b ? -1 : 1);
  merges.sort((a, b) => byScore(a.score, b.score) || b.lengths[0] - a.lengths[0] || b.lengths[1] - a.lengths[1]);
  return merges.map(({ merge }) => merge);
}

/** The merges whose token is ordinary. */
export function ordinaryMerges(vocabulary: GgufVocabulary, merges: readonly Merge[]): readonly Merge[] {
  return merges.filter(([left, right]) => isOrdinary(vocabulary, idOf(vocabulary.ids, left + right)));
}

function isOrdinary({ types }: GgufVocabulary, id: number): boolean {
  return types[id] === GGUF_TOKEN.normal || types[id] === GGUF_TOKEN.undefined;
}

function idOf(ids: ReadonlyMap<string, number>, token: string): number {
  return ids.get(token) ?? -1;
}
