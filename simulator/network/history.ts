import { createHash } from 'node:crypto';

/**
 * What has happened in a simulated cluster: messages as they arrive, faults, what answers said. Kept as a hash that is the same for the
 * same history, and, where somebody wants to read it, as lines.
 */
export class History {
  readonly lines: string[] = [];
  private readonly hash = createHash('sha256');
  private events = 0;

  /** `keepLines`: of the last `keepLines` events, for people. */
  constructor(
    private readonly now: () => number,
    private readonly keepLines = 0,
  ) {}

  get eventCount(): number {
    return this.events;
  }

  /** `bytes`: what was in the message, hashed and not kept. */
  add(event: string, bytes: Uint8Array | null = null): void {
    this.events += 1;
    const line = `${this.now().toFixed(6)} ${event}`;
    this.hash.update(line).update('\n');
    if (bytes !== null) this.hash.update(bytes);
    if (this.keepLines === 0) return;
    this.lines.push(bytes === null ? line : `${line} (${bytes.length} bytes)`);
    if (this.lines.length > this.keepLines) this.lines.shift();
  }

  /** Of all that has happened so far; hexadecimal. */
  digest(): string {
    return this.hash.copy().digest('hex');
  }
}
