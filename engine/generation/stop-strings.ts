/**
 * Watches a text that comes in pieces for any of some stop strings. What may be the beginning of one is held back; the text is
 * cut before the first that comes.
 */
export class StopStrings {
  private held = '';

  constructor(private readonly stops: readonly string[]) {}

  /** The text that may be shown after `piece`, and whether a stop string has come (nothing may follow then). */
  push(piece: string): { text: string; stopped: boolean } {
    const pending = this.held + piece;
    const found = this.stops.map((stop) => pending.indexOf(stop)).filter((index) => index >= 0);
    if (found.length > 0) {
      this.held = '';
      return { text: pending.slice(0, Math.min(...found)), stopped: true };
    }
    const shown = pending.length - this.startOfStop(pending);
    this.held = pending.slice(shown);
    return { text: pending.slice(0, shown), stopped: false };
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
