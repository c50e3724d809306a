import { requirePresent } from '../../shared/base/errors/assert-invariant.js';

/** One answer: the time of its request, and the time of each of its tokens, in milliseconds of one clock. */
export interface AnswerRecord {
  user: number;
  askedMs: number;
  tokenMs: readonly number[];
}

export interface Percentiles {
  p50: number;
  p95: number;
}

/** The figures for a number of users at a time. */
export interface ServeRow {
  users: number;
  batching: boolean;
  tokensPerS: number;
  /** Expert loads of workers, per token of an answer. */
  loadsPerToken: number;
  ttftMs: Percentiles;
  /** Time between a token and the one before it. */
  gapMs: Percentiles;
}

/**
 * Figures of answers whose users send a new request as soon as one is answered. Tokens per second are counted while all users are active: until
 * the first user has its last answer. `loads`: the number for all answers. Pure.
 */
export function serveRow(
  { users, batching, loads }: { users: number; batching: boolean; loads: number },
  records: readonly AnswerRecord[],
): ServeRow {
  const beginMs = Math.min(...records.map(({ askedMs }) => askedMs));
  const lastOfUser = new Map<number, number>();
  for (const { user, tokenMs } of records)
    lastOfUser.set(user, Math.max(lastOfUser.get(user) ?? 0, tokenMs.at(-1) ?? 0));
  const endMs = Math.min(...lastOfUser.values());
  const tokens = records.flatMap(({ tokenMs }) => tokenMs);
  const counted = tokens.filter((ms) => ms <= endMs).length;
  const ttfts = records.flatMap(({ askedMs, tokenMs: [first] }) => (first === undefined ? [] : [first - askedMs]));
  const gaps = records.flatMap(({ tokenMs }) => tokenMs.slice(1).map((ms, index) => ms - (tokenMs[index] ?? ms)));
  return {
    users,
    batching,
    tokensPerS: (1000 * counted) / Math.max(1, endMs - beginMs),
    loadsPerToken: loads / Math.max(1, tokens.length),
    ttftMs: percentiles(ttfts),
    gapMs: percentiles(gaps),
  };
}

/** The 50th and the 95th percentile (nearest rank); 0 if there are no values. Pure. */
export function percentiles(values: readonly number[]): Percentiles {
  if (values.length === 0) return { p50: 0, p95: 0 };
  const sorted = [...values].sort((left, right) => left - right);
  const at = (share: number): number =>
    requirePresent(sorted[Math.max(0, Math.ceil(share * sorted.length) - 1)], 'a percentile is one of the values.');
  return { p50: at(0.5), p95: at(0.95) };
}
