/**
 * Weights with which answers run through a few tokens again and again, to measure drafts: the embedding of a token outweighs what all layers add to it, and the
 * row of the LM head for a token is the embedding of the token before it. All other weights are as random as ever, so that a token costs the same work.
 */
import { assertInvariant } from '../../shared/base/errors/assert-invariant.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { valueBytes, type WeightDtype } from '../../shared/model/weight-dtype.js';
import type { TensorPlace } from '../../packs/model-config/model-family.js';
import type { TensorContents } from '../checkpoint/checkpoint-writer.js';
import { bitsOf, GaussianFiller, RandomBits } from './gaussian-values.js';

/** A layer adds some tens, with the deviations of synthesizeFamily; FP16 holds up to 65,504. */
const EMBEDDING_DEVIATION = 2000;
const LM_HEAD_DEVIATION = 0.02;

export interface RepeatedTokens {
  /** Number of the tokens through which an answer runs. */
  tokens: number;
  seed: number;
  dtype: WeightDtype;
  vocabSize: number;
}

/**
 * Null where answers need not repeat.
 * @throws USAGE for a model whose LM head is its embedding, and for more tokens than the vocabulary has
 */
export function repeatedTokens(
  { repeat: tokens, seed }: { repeat?: number; seed: number },
  dtype: WeightDtype,
  vocabSize: number,
  tiedEmbeddings: boolean,
): RepeatedTokens | null {
  if (tokens === undefined) return null;
  if (tiedEmbeddings)
    throw new OdmoeError('USAGE', '--repeat needs an LM head of its own: set tie_word_embeddings to false');
  if (tokens < 1 || tokens > vocabSize)
    throw new OdmoeError('USAGE', `--repeat ${tokens}: give 1 to ${vocabSize} tokens, as the vocabulary has`);
  return { tokens, seed, dtype, vocabSize };
}

/** The contents of a tensor that makes answers repeat; null: it is as random as in other models. `shape`: rows, columns; or values. */
export function repeatingContents(
  repeated: RepeatedTokens,
  place: TensorPlace,
  shape: readonly number[],
): TensorContents | null {
  if (place.kind !== 'dense') return null;
  const { dtype } = repeated;
  if (place.role === 'finalNorm') return { fill: (piece) => fillOnes(piece, dtype) };
  if (place.role === 'embedding') return rowContents(repeated, shape, EMBEDDING_DEVIATION, (token) => token);
  const before = (token: number): number => tokenBefore(token, repeated);
  return place.role === 'lmHead' ? rowContents(repeated, shape, LM_HEAD_DEVIATION, before) : null;
}

/** The vocabulary is cut into runs of so many tokens, the last of which may be shorter; behind its last token a run begins anew. */
function tokenBefore(token: number, { tokens, vocabSize }: RepeatedTokens): number {
  const begin = token - (token % tokens);
  return token > begin ? token - 1 : Math.min(begin + tokens, vocabSize) - 1;
}

/** Rows of random values, each drawn by itself from the number of a token. */
function rowContents(
  { seed, dtype }: RepeatedTokens,
  shape: readonly number[],
  deviation: number,
  tokenOf: (row: number) => number,
): TensorContents {
  const filler = new GaussianFiller(dtype, deviation);
  assertInvariant(shape.length === 2, 'embedding and LM head have rows and columns');
  const row = Buffer.alloc((shape[1] ?? 0) * valueBytes(dtype));
  return {
    fill: (piece, offsetBytes) => {
      for (let at = 0; at < piece.length;) {
        const [number, within] = [Math.floor((offsetBytes + at) / row.length), (offsetBytes + at) % row.length];
        filler.fill(row, new RandomBits(seed, tokenOf(number)));
        const part = row.subarray(within, within + Math.min(row.length - within, piece.length - at));
        piece.set(part, at);
        at += part.length;
      }
    },
  };
}

/** Fills a vector with ones. */
export function fillOnes(bytes: Uint8Array, dtype: WeightDtype): void {
  const one = bitsOf(1, dtype);
  if (dtype === 'F32') new Uint32Array(bytes.buffer, bytes.byteOffset, bytes.length / 4).fill(one);
  else new Uint16Array(bytes.buffer, bytes.byteOffset, bytes.length / 2).fill(one);
}
