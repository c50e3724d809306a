import type { ChunkCodec } from '../../shared/model/tensor-source.js';

/** Plain bytes on their way through the encoders, at most (one shard may exceed it alone). */
const QUEUED_PLAIN_BYTES = 256 * 1024 * 1024;

/** A chunk as it is to be stored. */
export interface EncodedChunk {
  codec: ChunkCodec;
  stored: Uint8Array;
}

interface QueuedChunk {
  plainBytes: number;
  encoded: Promise<EncodedChunk>;
  write(chunk: EncodedChunk): Promise<void>;
}

/**
 * Chunks that are being encoded side by side and are written in the order in which they were added. Bounded in number and in bytes:
 * ask for room before making a chunk.
 */
export class EncodeQueue {
  private readonly queued: QueuedChunk[] = [];
  private queuedBytes = 0;

  constructor(private readonly chunksAtOnce: number) {}

  /** Waits, and writes what is done, until so many chunks of so many plain bytes together may be added, or nothing else is there. */
  async makeRoom(chunks: number, plainBytes: number): Promise<void> {
    const isFull = (): boolean =>
      this.queued.length + chunks > this.chunksAtOnce || this.queuedBytes + plainBytes > QUEUED_PLAIN_BYTES;
    while (this.queued.length > 0 && isFull()) await this.writeOldest();
  }

  add(plainBytes: number, encoded: Promise<EncodedChunk>, write: QueuedChunk['write']): void {
    // Whoever takes the chunk sees its failure; until then nobody waits for it.
    encoded.catch(() => undefined);
    this.queued.push({ plainBytes, encoded, write });
    this.queuedBytes += plainBytes;
  }

  async drain(): Promise<void> {
    while (this.queued.length > 0) await this.writeOldest();
  }

  /** After a failure: nothing more is written, and no encoder is at work any more when it returns. */
  async abandon(): Promise<void> {
    const { queued } = this;
    await Promise.allSettled(queued.map(async ({ encoded }) => encoded));
    queued.length = 0;
    this.queuedBytes = 0;
  }

  private async writeOldest(): Promise<void> {
    const [oldest] = this.queued;
    if (oldest === undefined) return;
    const chunk = await oldest.encoded;
    await oldest.write(chunk);
    this.queued.shift();
    this.queuedBytes -= oldest.plainBytes;
  }
}
