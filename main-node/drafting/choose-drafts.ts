import { MAX_DRAFT_ROWS } from '../../shared/settings/setting-limits.js';

/** The makers of drafts: shadow; the text so far (PromptLookup); a grammar that leaves one token; the model's own head for further tokens. */
export const DRAFT_MAKERS = ['shadow', 'lookup', 'forced', 'mtp'] as const;
export type DraftMaker = (typeof DRAFT_MAKERS)[number];

/** A token that may follow main's token and the drafts before it. */
export interface ProposedDraft {
  readonly tokenId: number;
  /** Probability, 0 to 1, that it equals main's token if all drafts before it do. */
  readonly chance: number;
  readonly maker: DraftMaker;
}

/** Measured time of a pass by its rows, as a straight line. */
export interface PassLine {
  /** A pass of one row. */
  passMs: number;
  /** Each further row. */
  rowMs: number;
}

/** Most drafts of one pass. */
export const MOST_DRAFTS = MAX_DRAFT_ROWS - 1;

/**
 * Number of the drafts, from the first on, with which the pass yields the most tokens a second. `others`: rows of other answers in the same pass, each
 * of which yields one token and waits for the drafts, too. Of equal numbers the smallest.
 */
export function chooseDrafts(drafts: readonly Pick<ProposedDraft, 'chance'>[], line: PassLine, others: number): number {
  return fastestDrafts(
    drafts.map(({ chance }) => chance),
    line,
    others,
    0,
  ).count;
}

/**
 * The same for drafts that are still to be made, each in `draftMs`. Number of them that are worth it, and the tokens a millisecond that are expected of
 * the pass then.
 */
export function fastestDrafts(
  chances: readonly number[],
  { passMs, rowMs }: PassLine,
  others: number,
  draftMs: number,
): { count: number; rate: number } {
  let tokens = 1 + others;
  let best = { count: 0, rate: tokens / (passMs + others * rowMs) };
  let reached = 1;
  for (const [index, chance] of chances.entries()) {
    const count = index + 1;
    reached *= chance;
    tokens += reached;
    const rate = tokens / (passMs + (others + count) * rowMs + count * draftMs);
    if (rate > best.rate) best = { count, rate };
  }
  return best;
}

/**
 * The drafts whose first one is the surest (of equal ones the earlier), continued by others that begin with the same drafts and are longer. At most
 * `limit` drafts.
 */
export function combineDrafts(proposals: readonly (readonly ProposedDraft[])[], limit: number): ProposedDraft[] {
  let best: readonly ProposedDraft[] = [];
  for (const drafts of proposals) if ((drafts[0]?.chance ?? 0) > (best[0]?.chance ?? 0)) best = drafts;
  if (best.length === 0) return [];
  for (const drafts of proposals)
    if (drafts.length > best.length && best.every(({ tokenId }, index) => drafts[index]?.tokenId === tokenId))
      best = [...best, ...drafts.slice(best.length)];
  return best.slice(0, Math.max(0, limit));
}
