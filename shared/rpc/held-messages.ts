import { OdmoeError, toOdmoeError } from '../errors/index.js';
import { TRANSIT_HELD_LIMIT_BYTES } from './limits.js';
import type { NetworkTransit } from './network-transit.js';

interface Held<In> {
  message: In;
  bytes: number;
  dueMs: number;
}

/** Messages of one stream that have really come and, on the emulated network, not yet. They are delivered in order. */
export class HeldMessages<In> {
  private readonly held: Held<In>[] = [];
  private heldBytes = 0;
  private waiting = false;
  private dropped = false;
  private whenEmpty: (() => void) | null = null;

  constructor(
    private readonly transit: Pick<NetworkTransit, 'waitUntil'>,
    private readonly deliver: (message: In) => void,
    private readonly failed: (error: OdmoeError) => void,
  ) {}

  /** `bytes`: what it really takes here. Throws TIMEOUT over TRANSIT_HELD_LIMIT_BYTES. */
  add(message: In, bytes: number, dueMs: number): void {
    if (this.dropped) return;
    if (this.heldBytes + bytes > TRANSIT_HELD_LIMIT_BYTES) {
      throw new OdmoeError(
        'TIMEOUT',
        `the emulated network is too slow for what is sent: ${this.heldBytes} bytes wait, ${TRANSIT_HELD_LIMIT_BYTES} are allowed`,
      );
    }
    this.held.push({ message, bytes, dueMs });
    this.heldBytes += bytes;
    if (!this.waiting) void this.deliverAll();
  }

  /** Calls back once, when nothing is held: at once if that is so now. */
  onceEmpty(then: () => void): void {
    if (!this.waiting) then();
    else this.whenEmpty = then;
  }

  /** Nothing is delivered any more. */
  drop(): void {
    this.dropped = true;
    this.held.length = 0;
    this.heldBytes = 0;
  }

  private async deliverAll(): Promise<void> {
    this.waiting = true;
    try {
      for (let next = this.held[0]; next !== undefined; next = this.held[0]) {
        // Also where that is past: what follows from the message counts from then.
        await this.transit.waitUntil(next.dueMs);
        if (this.dropped) break;
        this.held.shift();
        this.heldBytes -= next.bytes;
        this.deliver(next.message);
      }
    } catch (thrown) {
      this.failed(toOdmoeError(thrown));
    } finally {
      this.waiting = false;
    }
    const then = this.whenEmpty;
    this.whenEmpty = null;
    then?.();
  }
}
