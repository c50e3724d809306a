import type { ByteTools } from './packing-context.js';

/**
 * CRC-32Cs of a tensor's values as they are read: row-major values, or codes and scales separately. Scales are few (32 or 128 values of a row
 * share one), and are stored until all codes have been read.
 */
export class ValuesChecksum {
  /** Checksum of each plane. */
  readonly planes: number[] = [];
  private readonly scales: Uint8Array[] = [];

  constructor(private readonly tools: Pick<ByteTools, 'crc32c'>) {}

  /** Adds rows in order: the bytes of one plane, or of two. */
  add(planes: readonly Uint8Array[]): void {
    for (const [plane, bytes] of planes.entries()) {
      this.planes[plane] = this.tools.crc32c(bytes, this.planes[plane] ?? 0);
      if (plane > 0) this.scales.push(Uint8Array.from(bytes));
    }
  }

  /** Checksum of the values, or of all codes and then all scales. */
  get all(): number {
    return this.scales.reduce((crc, scales) => this.tools.crc32c(scales, crc), this.planes[0] ?? 0);
  }
}
