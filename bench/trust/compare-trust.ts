import { requirePresent } from '../../shared/base/errors/assert-invariant.js';

/** The measurements of one round: milliseconds of a decoded token, prompt and first token left out. */
export interface TrustRound {
  plaintextMs: number;
  tlsMs: number;
}

/** The middle and the range of some values. */
export interface Spread {
  median: number;
  lowest: number;
  highest: number;
}

export interface TrustComparison {
  plaintextMs: Spread;
  tlsMs: Spread;
  /** The ratio of TLS to plaintext in each round. It stays the same when the machine slows both clusters of a round down. */
  ratio: Spread;
  /** The middle half of the ratios. */
  ratioLowerQuarter: number;
  ratioUpperQuarter: number;
  rounds: readonly TrustRound[];
}

/** Compares the rounds, of which there is at least one. Pure. */
export function compareTrust(rounds: readonly TrustRound[]): TrustComparison {
  const ratios = rounds.map(({ plaintextMs, tlsMs }) => tlsMs / plaintextMs);
  return {
    plaintextMs: spreadOf(rounds.map(({ plaintextMs }) => plaintextMs)),
    tlsMs: spreadOf(rounds.map(({ tlsMs }) => tlsMs)),
    ratio: spreadOf(ratios),
    ratioLowerQuarter: at(ratios, 0.25),
    ratioUpperQuarter: at(ratios, 0.75),
    rounds,
  };
}

function spreadOf(values: readonly number[]): Spread {
  return { median: at(values, 0.5), lowest: at(values, 0), highest: at(values, 1) };
}

/** The value at this share of the sorted ones, between two of them in proportion. */
function at(values: readonly number[], share: number): number {
  const sorted = [...values].sort((left, right) => left - right);
  const place = share * (sorted.length - 1);
  const below = requirePresent(sorted[Math.floor(place)], 'there is a round');
  const above = requirePresent(sorted[Math.ceil(place)], 'there is a round');
  return below + (above - below) * (place - Math.floor(place));
}
