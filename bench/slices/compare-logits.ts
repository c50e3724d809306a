/** How far a variant's predictions are from the lossless ones. All in double precision, from the log-softmax of FP32 logits. */

/** Figures of a variant: means over all predicted tokens, unless they say otherwise. */
export interface QualityFigures {
  /** KL(lossless || variant), natural logarithm. */
  kl: number;
  /** The share of predicted tokens at which both have the same most likely token. */
  agree: number;
  ppl_all: number;
  /** Over the tokens of answers and those that end them. */
  ppl_answer: number;
  /**
   * The share of records whose answer and end the variant would give by itself: each of their tokens is the most likely one behind the ones
   * before it.
   */
  right: number;
}

/** The prediction of one token. */
export interface Prediction {
  readonly logits: Float32Array;
  /** log(sum(exp(logits))). */
  readonly logSum: number;
  readonly mostLikely: number;
}

export function predictionOf(logits: Float32Array): Prediction {
  let mostLikely = 0;
  for (let token = 1; token < logits.length; token += 1) {
    if ((logits[token] ?? NaN) > (logits[mostLikely] ?? NaN)) mostLikely = token;
  }
  const highest = logits[mostLikely] ?? NaN;
  let sum = 0;
  for (const logit of logits) sum += Math.exp(logit - highest);
  return { logits, logSum: highest + Math.log(sum), mostLikely };
}

/** KL(one || other): the sum over all tokens of p log(p / q). */
export function divergence(one: Prediction, other: Prediction): number {
  let sum = 0;
  for (let token = 0; token < one.logits.length; token += 1) {
    const logOne = (one.logits[token] ?? NaN) - one.logSum;
    const logOther = (other.logits[token] ?? NaN) - other.logSum;
    sum += Math.exp(logOne) * (logOne - logOther);
  }
  return sum;
}

/** Adds up the predictions of one variant. */
export class QualitySums {
  private tokens = 0;
  private answerTokens = 0;
  private kl = 0;
  private agreed = 0;
  private surprise = 0;
  private answerSurprise = 0;
  private readonly wrong = new Set<number>();

  /** `token`: the one that follows. */
  add(
    record: number,
    token: number,
    isAnswer: boolean,
    { lossless, variant }: { readonly lossless: Prediction; readonly variant: Prediction },
  ): void {
    const surprise = variant.logSum - (variant.logits[token] ?? NaN);
    this.tokens += 1;
    this.kl += divergence(lossless, variant);
    if (lossless.mostLikely === variant.mostLikely) this.agreed += 1;
    this.surprise += surprise;
    if (!isAnswer) return;
    this.answerTokens += 1;
    this.answerSurprise += surprise;
    if (variant.mostLikely !== token) this.wrong.add(record);
  }

  figures(records: number): QualityFigures {
    return {
      kl: this.kl / this.tokens,
      agree: this.agreed / this.tokens,
      ppl_all: Math.exp(this.surprise / this.tokens),
      ppl_answer: Math.exp(this.answerSurprise / this.answerTokens),
      right: 1 - this.wrong.size / records,
    };
  }
}
