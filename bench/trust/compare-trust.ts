import { median } from '../statistics/median.js';

/** The measurements of one round: milliseconds of a decoded token, prompt and first token left out. */
export interface TrustRound {
  plaintextMs: number;
  tlsMs: number;
}

/** The middle and the range of some values. */
export interface Spread {
  middle: number;
  lowest: number;
  highest: number;
}

export interface TrustComparison {
  /** Over all rounds; the middle is the median. */
  plaintextMs: Spread;
  tlsMs: Spread;
  /**
   * TLS to plaintext, over the starts: each start counts by the median of its rounds' ratios, and the middle is the geometric mean of these. The
   * ratio of one round stays the same when the machine slows both clusters down. One of two equal clusters is a few per cent slower than the other
   * for as long as they run, mostly the one that started later: half of the starts begin with each, so that this cancels out.
   */
  ratio: Spread;
  starts: readonly (readonly TrustRound[])[];
}

/** Compares the rounds of each start of the two clusters. There is at least one start, and each has at least one round. Pure. */
export function compareTrust(starts: readonly (readonly TrustRound[])[]): TrustComparison {
  const rounds = starts.flat();
  const ratios = starts.map((ofStart) => median(ofStart.map(({ plaintextMs, tlsMs }) => tlsMs / plaintextMs)));
  const logarithms = ratios.reduce((sum, ratio) => sum + Math.log(ratio), 0);
  return {
    plaintextMs: spreadOf(rounds.map(({ plaintextMs }) => plaintextMs)),
    tlsMs: spreadOf(rounds.map(({ tlsMs }) => tlsMs)),
    ratio: { ...rangeOf(ratios), middle: Math.exp(logarithms / ratios.length) },
    starts,
  };
}

function spreadOf(values: readonly number[]): Spread {
  return { middle: median(values), ...rangeOf(values) };
}

function rangeOf(values: readonly number[]): Omit<Spread, 'middle'> {
  return { lowest: Math.min(...values), highest: Math.max(...values) };
}
