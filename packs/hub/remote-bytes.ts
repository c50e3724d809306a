import type { GgufByteSource } from '../gguf/gguf-header-bytes.js';
import { type HubBody, type HubClient, PassingFailure } from './hub-client.js';
import type { HubFile } from './hub-files.js';
import type { HubSnapshot } from './hub-repository.js';

/** The bytes of a file on the hub, for a reader that mostly goes forward: one transfer serves it as long as no bytes are left out. */
export class RemoteBytes implements GgufByteSource {
  private transfer: { body: HubBody; chunks: AsyncIterator<Uint8Array> } | null = null;
  /** Bytes that have come and that nobody has read yet; they begin at `position`. */
  private waiting = Buffer.alloc(0);
  private position = 0;

  constructor(
    private readonly hub: HubClient,
    private readonly snapshot: HubSnapshot,
    private readonly file: HubFile,
  ) {}

  get sizeBytes(): number {
    return this.file.sizeBytes;
  }

  /** @throws as HubClient.openFile */
  async read(offsetBytes: number, into: Uint8Array): Promise<void> {
    const { id, commit } = this.snapshot;
    const request = { id, revision: commit, file: this.file.path };
    await this.hub.withTries(request, async () => {
      try {
        await this.fill(offsetBytes, into);
      } catch (thrown) {
        this.close();
        throw thrown;
      }
    });
  }

  /** Ends the transfer. Idempotent. */
  close(): void {
    this.transfer?.body.close();
    this.transfer = null;
    this.waiting = Buffer.alloc(0);
  }

  private async fill(offsetBytes: number, into: Uint8Array): Promise<void> {
    if (this.transfer === null || this.position !== offsetBytes) await this.begin(offsetBytes);
    let done = 0;
    while (done < into.length) {
      if (this.waiting.length === 0) await this.receive();
      const piece = this.waiting.subarray(0, into.length - done);
      into.set(piece, done);
      done += piece.length;
      this.skip(piece.length);
    }
  }

  private async begin(offsetBytes: number): Promise<void> {
    this.close();
    const body = await this.hub.openFile(this.snapshot, this.file, offsetBytes);
    this.transfer = { body, chunks: body.chunks[Symbol.asyncIterator]() };
    this.position = body.fromBytes;
    // A server may send the whole file, whatever it was asked for.
    while (this.position < offsetBytes) {
      if (this.waiting.length === 0) await this.receive();
      this.skip(Math.min(this.waiting.length, offsetBytes - this.position));
    }
  }

  private async receive(): Promise<void> {
    const next = await this.transfer?.chunks.next();
    if (next === undefined || next.done === true) {
      throw new PassingFailure(`${this.snapshot.id}: ${this.file.path} ended early; run the same command again`);
    }
    this.waiting = Buffer.from(next.value);
  }

  private skip(sizeBytes: number): void {
    this.waiting = this.waiting.subarray(sizeBytes);
    this.position += sizeBytes;
  }
}
