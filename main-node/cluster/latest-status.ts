import type { NodeStatus } from '../../shared/wire/messages.js';

/** The last status that a daemon has sent. Daemons send it each second and when a sequence ends. */
export class LatestStatus {
  private latest: NodeStatus | null = null;
  private readonly waiting = new Set<() => void>();

  get value(): NodeStatus | null {
    return this.latest;
  }

  get waiterCount(): number {
    return this.waiting.size;
  }

  take(status: NodeStatus): void {
    this.latest = status;
    this.wake();
  }

  /** Resolves when the next status has come, or none can come any more. */
  next(): Promise<void> {
    return new Promise((resolve) => this.waiting.add(resolve));
  }

  /** The daemon is not connected any more. */
  end(): void {
    this.wake();
  }

  private wake(): void {
    for (const resolve of this.waiting) resolve();
    this.waiting.clear();
  }
}
