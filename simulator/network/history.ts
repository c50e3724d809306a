import { createHash } from 'node:crypto';

/**
 * The events of a simulated cluster: messages when they arrive, faults, results of answers. It computes a hash that is the same for equal
 * histories, and can also store lines for people.
 */
export class History {
  readonly lines: string[] = [];
  private readonly hash = createHash('sha256');
  private events = 0;

  /** `keepLines`: number of latest events that are stored as lines. */
  constructor(
    private readonly now: () => number,
    private readonly keepLines = 0,
  ) {}

  get eventCount(): number {
    return this.events;
  }

  /** `bytes`: contents of the message; they are hashed and not stored. */
  add(event: string, bytes: Uint8Array | null = null): void {
    this.events += 1;
    const line = `${this.now().toFixed(6)} ${event}`;
    this.hash.update(line).update('\n');
    if (bytes !== null) this.hash.update(bytes);
    if (this.keepLines === 0) return;
    this.lines.push(bytes === null ? line : `${line} (${bytes.length} bytes)`);
    if (this.lines.length > this.keepLines) this.lines.shift();
  }

  /** Hash of all events so far; hexadecimal. */
  digest(): string {
    return this.hash.copy().digest('hex');
  }
}
