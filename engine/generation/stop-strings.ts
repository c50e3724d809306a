/** Text that may be shown, and the stop string that has come after it: nothing may follow then. null: none has. */
export interface ShownText {
  text: string;
  stop: string | null;
}

/**
 * Watches a text that comes in pieces for any of some stop strings. What may be the beginning of one is held back; the text is
 * cut before the first that comes.
 */
export class StopStrings {
  private held = '';

  constructor(private readonly stops: readonly string[]) {}

  push(piece: string): ShownText {
    const pending = this.held + piece;
    const found = this.stops
      .map((stop) => ({ stop, index: pending.indexOf(stop) }))
      .filter(({ index }) => index >= 0)
      .sort((left, right) => left.index - right.index)[0];
    if (found !== undefined) {
      this.held = '';
      return { text: pending.slice(0, found.index), stop: found.stop };
    }
    const shown = pending.length - this.startOfStop(pending);
    this.held = pending.slice(shown);
    return { text: pending.slice(0, shown), stop: null };
  }

  /** What was held back, when the answer ends without a stop string. */
  flush(): string {
    const rest = this.held;
    this.held = '';
    return rest;
  }

  /** Length of the longest end of `text` that some stop string begins with. */
  private startOfStop(text: string): number {
    let longest = 0;
    for (const stop of this.stops) {
      for (let length = Math.min(stop.length - 1, text.length); length > longest; length--) {
        if (text.endsWith(stop.slice(0, length))) longest = length;
      }
    }
    return longest;
  }
}
