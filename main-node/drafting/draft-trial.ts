/** Passes of a kind over which its time moves. */
const TRIAL_PASSES = 16;
/** Passes with drafts after which their speed is judged. */
export const JUDGED_PASSES = 4;
/** After so many passes with drafts in a row, PLAIN_PASSES run without, so that both speeds are known. */
export const DRAFTED_PASSES = 48;
export const PLAIN_PASSES = 2;
/** Passes without drafts after drafts have proved slower: at first, and at most. The number doubles each time. */
export const FIRST_PAUSE = 96;
export const LONGEST_PAUSE = 1024;

interface Speed {
  passMs: number;
  tokens: number;
  passes: number;
}

const UNKNOWN: Speed = { passMs: 0, tokens: 0, passes: 0 };

/**
 * Test and set: measures tokens a second of passes with and without drafts, and pauses drafts that make an answer slower, however good they looked
 * beforehand. JUDGED_PASSES are tried anew behind each pause of FIRST_PAUSE passes or more: half of the speed in these costs 4 % of the time at most.
 * All answers share one, so that not each of them pays for the trial.
 */
export class DraftTrial {
  private plain: Speed = UNKNOWN;
  private drafted: Speed = UNKNOWN;
  private pauseLeft = 0;
  private pause = FIRST_PAUSE;
  private draftedInRow = 0;
  private plainLeft = 0;

  /** The next pass may have drafts. */
  get mayDraft(): boolean {
    return this.pauseLeft === 0 && this.plainLeft === 0;
  }

  /** Milliseconds for a token with drafts, as a share of those without; null: not known. */
  get share(): number | null {
    const { plain, drafted } = this;
    if (plain.passes === 0 || drafted.passes < JUDGED_PASSES) return null;
    return drafted.passMs / drafted.tokens / (plain.passMs / plain.tokens);
  }

  /**
   * A pass of the answer took `passMs` with the wait for its drafts, and yielded `tokens` tokens. `drafts`: number of its drafts; not 0 either where
   * drafts were made and none of them ran, because that took time.
   */
  passed(drafts: number, tokens: number, passMs: number): void {
    if (drafts === 0) {
      this.plain = moved(this.plain, passMs, 1);
      this.pauseLeft = Math.max(0, this.pauseLeft - 1);
      this.plainLeft = Math.max(0, this.plainLeft - 1);
      this.draftedInRow = 0;
      return;
    }
    this.drafted = moved(this.drafted, passMs, tokens);
    this.draftedInRow += 1;
    if (this.draftedInRow >= DRAFTED_PASSES) this.testPlain();
    const { share } = this;
    if (share !== null && share > 1) this.pauseDrafts();
    else if (this.drafted.passes >= TRIAL_PASSES) this.pause = FIRST_PAUSE;
    if (share === null && this.drafted.passes >= JUDGED_PASSES) this.testPlain();
  }

  private testPlain(): void {
    this.draftedInRow = 0;
    this.plainLeft = PLAIN_PASSES;
  }

  private pauseDrafts(): void {
    this.pauseLeft = this.pause;
    this.pause = Math.min(2 * this.pause, LONGEST_PAUSE);
    this.drafted = UNKNOWN;
    this.draftedInRow = 0;
  }
}

function moved(speed: Speed, passMs: number, tokens: number): Speed {
  const passes = Math.min(speed.passes + 1, TRIAL_PASSES);
  return {
    passMs: speed.passMs + (passMs - speed.passMs) / passes,
    tokens: speed.tokens + (tokens - speed.tokens) / passes,
    passes,
  };
}
