import type { ChunkCodec } from '../../shared/model/tensor-source.js';

/** Most plain bytes in the queue (one shard alone may exceed it). */
const QUEUED_PLAIN_BYTES = 256 * 1024 * 1024;

/** A chunk in its stored form. */
export interface EncodedChunk {
  codec: ChunkCodec;
  stored: Uint8Array;
}

interface QueuedChunk {
  plainBytes: number;
  encoded: Promise<unknown>;
  /** Writes what was encoded, or throws the failure of encoding. */
  write(): Promise<void>;
}

/**
 * Encodes chunks side by side and writes them in the order in which they were added. Their number and bytes are bounded: call makeRoom before
 * making a chunk.
 */
export class EncodeQueue {
  private readonly queued: QueuedChunk[] = [];
  private queuedBytes = 0;

  constructor(private readonly chunksAtOnce: number) {}

  /** Waits, and writes finished chunks, until this many chunks with this many plain bytes together fit, or the queue is empty. */
  async makeRoom(chunks: number, plainBytes: number): Promise<void> {
    const isFull = (): boolean =>
      this.queued.length + chunks > this.chunksAtOnce || this.queuedBytes + plainBytes > QUEUED_PLAIN_BYTES;
    while (this.queued.length > 0 && isFull()) await this.writeOldest();
  }

  /** Adds one chunk, or several that were encoded together. */
  add<Encoded>(plainBytes: number, encoded: Promise<Encoded>, write: (encoded: Encoded) => Promise<void>): void {
    // The code that writes the chunk gets its failure. Until then no code waits for it, so this catch is needed.
    encoded.catch(() => undefined);
    this.queued.push({ plainBytes, encoded, write: async () => write(await encoded) });
    this.queuedBytes += plainBytes;
  }

  async drain(): Promise<void> {
    while (this.queued.length > 0) await this.writeOldest();
  }

  /** Call this after a failure: nothing more is written, and no encoder is running any more when it returns. */
  async abandon(): Promise<void> {
    const { queued } = this;
    await Promise.allSettled(queued.map(async ({ encoded }) => encoded));
    queued.length = 0;
    this.queuedBytes = 0;
  }

  private async writeOldest(): Promise<void> {
    const [oldest] = this.queued;
    if (oldest === undefined) return;
    await oldest.write();
    this.queued.shift();
    this.queuedBytes -= oldest.plainBytes;
  }
}
