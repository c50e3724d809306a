import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';

/** Most bytes of all bodies that are being read, and the bytes of each that do not count. So small bodies are always accepted. */
export const BODIES_LIMIT_BYTES = 256 * 1024 * 1024;
export const SMALL_BODY_BYTES = 64 * 1024;

/** Bytes of one block. */
const BLOCK_BYTES = 64 * 1024;

/**
 * The blocks of memory that large bodies share. Bytes that a body no longer needs would stay in memory until the garbage collector runs, beside the
 * bytes of the next bodies. So the next bodies use the same blocks again.
 */
export class BodyMemory {
  private held = 0;
  private free: Uint8Array[] = [];

  constructor(private readonly limitBytes = BODIES_LIMIT_BYTES) {}

  /** A block of BLOCK_BYTES with any content. Throws QUEUE_FULL if all are held. */
  take(): Uint8Array {
    if ((this.held + 1) * BLOCK_BYTES > this.limitBytes) {
      const held = `large requests of together ${this.limitBytes} bytes are being read already`;
      throw new OdmoeError('QUEUE_FULL', `${held}: ask again later`);
    }
    this.held += 1;
    return this.free.pop() ?? Buffer.allocUnsafeSlow(BLOCK_BYTES);
  }

  giveBack(blocks: readonly Uint8Array[]): void {
    this.held -= blocks.length;
    if (this.held === 0) this.free = [];
    else this.free.push(...blocks);
  }
}

/** The bytes of one body. They are copies: a part of what has arrived would hold all of it in memory. */
export class BodyBytes {
  private readonly small: Uint8Array[] = [];
  private smallBytes = 0;
  private readonly blocks: Uint8Array[] = [];
  private lastBlockBytes = BLOCK_BYTES;

  constructor(private readonly memory: BodyMemory) {}

  /** Throws QUEUE_FULL if there is no room. */
  add(bytes: Uint8Array): void {
    const small = bytes.subarray(0, SMALL_BODY_BYTES - this.smallBytes);
    if (small.length > 0) this.small.push(new Uint8Array(small));
    this.smallBytes += small.length;
    for (let rest = bytes.subarray(small.length); rest.length > 0;) rest = this.fillBlock(rest);
  }

  whole(): Uint8Array {
    const last = this.blocks.at(-1)?.subarray(0, this.lastBlockBytes) ?? new Uint8Array();
    return Buffer.concat([...this.small, ...this.blocks.slice(0, -1), last]);
  }

  /** The bytes are no longer needed. */
  release(): void {
    this.memory.giveBack(this.blocks.splice(0));
  }

  /** Returns the bytes that did not fit into the present block. */
  private fillBlock(bytes: Uint8Array): Uint8Array {
    if (this.lastBlockBytes === BLOCK_BYTES) {
      this.blocks.push(this.memory.take());
      this.lastBlockBytes = 0;
    }
    const fitting = bytes.subarray(0, BLOCK_BYTES - this.lastBlockBytes);
    this.blocks.at(-1)?.set(fitting, this.lastBlockBytes);
    this.lastBlockBytes += fitting.length;
    return bytes.subarray(fitting.length);
  }
}
