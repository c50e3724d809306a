import {
  chooseDrafts,
  combineDrafts,
  fastestDrafts,
  MOST_DRAFTS,
  type PassLine,
  type ProposedDraft,
} from '../drafting/choose-drafts.js';
import type { DrafterRows } from '../batching/batch-member.js';
import type { DraftTrial } from '../drafting/draft-trial.js';
import { LEAST_UNTIL_RETRY, passesUntilRetry } from '../drafting/making-costs.js';
import type { DraftEffort, DraftSource } from './draft-source.js';

export interface OwnDraftsOptions {
  /** Rows of a pass: main's token and drafts. 1: no drafts; auto: as many as pay. */
  rows: number | 'auto';
  /** The last position that the answer can run. */
  lastPosition: number;
}

/** A pass whose tokens are not all known. */
interface TimedPass {
  drafts: number;
  tokens: number;
  passMs: number;
}

/** The drafts of one answer that main makes itself: several sources compete for each pass, by the chances of their drafts. */
export class OwnDrafts {
  /** PassMember.takeStates; undefined: no source takes them. */
  readonly takeStates: ((position: number, states: Float32Array) => void) | undefined;
  private readonly takers: readonly DraftSource[];
  private timed: TimedPass | null = null;
  /** For the next pass: drafts that sources with effort have made, and whether one of them was asked at all. */
  private effort = { asked: false, made: 0 };
  /** Passes since a source whose effort did not pay was last asked. */
  private readonly unasked = new Map<DraftSource, number>();

  constructor(
    private readonly sources: readonly DraftSource[],
    private readonly options: OwnDraftsOptions,
    /** Time and tokens of passes with and without drafts, over all answers. */
    private readonly trial: DraftTrial,
    /** Null: no pass has been measured. */
    private readonly line: () => PassLine | null,
  ) {
    const takers = sources.filter((source) => 'takeStates' in source);
    this.takers = takers;
    this.takeStates =
      takers.length === 0
        ? undefined
        : (position, states) => {
            for (const source of takers) source.takeStates?.(position, states);
          };
  }

  /** BatchMember.drafterRows. */
  get drafterRows(): DrafterRows | null {
    for (const { drafterRows } of this.sources) if (drafterRows !== undefined) return drafterRows;
    return null;
  }

  /** PassMember.statesWanted. */
  get statesWanted(): number {
    return this.takers.reduce((most, { statesWanted = Infinity }) => Math.max(most, statesWanted), 0);
  }

  begin(promptIds: readonly number[]): void {
    for (const source of this.sources) source.begin(promptIds);
  }

  /** Main has chosen the token at this position. `accepted`: the last pass has run it. */
  settled(position: number, tokenId: number, accepted: boolean): void {
    for (const source of this.sources) source.settled(position, tokenId);
    if (accepted && this.timed !== null) this.timed.tokens += 1;
  }

  /**
   * Drafts for a pass that begins with the token at `position`, in a pass with `others` rows of other answers; at most `limit` drafts. None where they
   * are not expected to pay.
   */
  async propose(position: number, limit: number, others: number, signal: AbortSignal): Promise<ProposedDraft[]> {
    const { rows, lastPosition } = this.options;
    this.effort = { asked: false, made: 0 };
    if (rows === 1 || this.sources.length === 0) return [];
    this.judge();
    const most = Math.min(rows === 'auto' ? MOST_DRAFTS : rows - 1, limit, lastPosition - position);
    if (most < 1) return [];
    const line = this.line();
    const mayRun = rows !== 'auto' || (line !== null && this.trial.mayDraft);
    const proposals: ProposedDraft[][] = [];
    for (const source of this.sources)
      if (source.effort === undefined) proposals.push(await this.ask(source, position, most, signal));
    for (const source of this.sources) {
      if (source.effort === undefined || !mayRun) continue;
      const best = combineDrafts(proposals, most);
      const wanted = this.wanted(source, source.effort, best, { most, line, others });
      if (wanted > 0) proposals.push(await this.ask(source, position, wanted, signal));
    }
    const drafts = combineDrafts(proposals, most);
    if (rows !== 'auto') return drafts;
    if (line === null || !mayRun) return [];
    return drafts.slice(0, chooseDrafts(drafts, line, others));
  }

  private async ask(
    source: DraftSource,
    position: number,
    most: number,
    signal: AbortSignal,
  ): Promise<ProposedDraft[]> {
    const { tokenIds, chances } = await source.propose(position, most, signal);
    if (source.effort !== undefined) this.effort = { asked: true, made: this.effort.made + tokenIds.length };
    const { maker } = source;
    return tokenIds.map((tokenId, index) => ({ tokenId, chance: chances[index] ?? 0, maker }));
  }

  /**
   * Number of drafts that the source is to make: as many as are expected to pay for the pass and for their making, if they do better than the best of the
   * others. One whose drafts do not pay is asked for one now and then.
   */
  private wanted(
    source: DraftSource,
    effort: DraftEffort,
    best: readonly ProposedDraft[],
    { most, line, others }: { most: number; line: PassLine | null; others: number },
  ): number {
    const expected = effort.expected(most);
    const { draftMs } = effort;
    let count = expected.length;
    // A set number of rows is wanted at any cost.
    let untilRetry = LEAST_UNTIL_RETRY;
    if (this.options.rows === 'auto' && line !== null) {
      const fastest = fastestDrafts(expected, line, others, draftMs);
      const chances = best.map(({ chance }) => chance);
      if (fastest.count > 0 && fastest.rate <= fastestDrafts(chances, line, others, 0).rate) return 0;
      ({ count } = fastest);
      untilRetry = passesUntilRetry(draftMs, line.passMs);
    }
    const unasked = count > 0 ? 0 : (this.unasked.get(source) ?? 0) + 1;
    const asksAgain = count === 0 && unasked >= untilRetry;
    this.unasked.set(source, asksAgain ? 0 : unasked);
    return asksAgain ? 1 : count;
  }

  /**
   * A pass has run. `timed`: the number of its drafts, and its time with the wait for them; null: it is not judged, because its drafts come from shadow,
   * or it also ran or awaited prompts.
   */
  passed(
    position: number,
    tokenIds: readonly number[],
    timed: { readonly drafts: number; readonly passMs: number } | null,
  ): void {
    for (const source of this.sources) source.passed?.(position, tokenIds);
    const { asked, made } = this.effort;
    this.timed = null;
    // It took time that no draft came of, so it is neither a pass with drafts nor one without.
    if (timed === null || (asked && made === 0 && timed.drafts === 0)) return;
    this.timed = { drafts: Math.max(timed.drafts, made), passMs: timed.passMs, tokens: 1 };
  }

  /** The rows of the answer have given up their memory. */
  preempted(): void {
    for (const source of this.sources) source.preempted?.();
  }

  async end(): Promise<void> {
    for (const source of this.sources) await source.end?.();
  }

  /** All tokens of the last pass are known. */
  private judge(): void {
    const { timed } = this;
    this.timed = null;
    if (timed !== null) this.trial.passed(timed.drafts, timed.tokens, timed.passMs);
  }
}
