import { crc32c } from '../../native/index.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';

/**
 * Checksums of the logits that a sequence has given out, position by position. Where its rows are computed anew, because a worker that took
 * part in them lied, the same logits must come again: what clients have been told cannot be taken back.
 */
export class GivenLogits {
  private first = 0;
  private readonly checksums: number[] = [];
  /** The next position that is to be compared; null: none is. */
  private due: number | null = null;

  /** From here on logits are wanted again; null: none are. */
  get dueFrom(): number | null {
    return this.due;
  }

  /** They are given out. Positions follow one another; of one that was given before nothing changes. */
  note(position: number, logits: Float32Array): void {
    if (this.has(position)) return;
    if (this.checksums.length === 0) this.first = position;
    this.checksums.push(checksumOf(logits));
  }

  /** All that was given is to be compared with what comes again. */
  compareAll(): void {
    this.due = this.checksums.length > 0 ? this.first : null;
  }

  /** True: the position was given before. Throws WORKER_DISTRUSTED where it was given something else, and that is to be compared. */
  compare(position: number, logits: Float32Array): boolean {
    if (!this.has(position)) return false;
    if (position !== this.due) return true;
    if (checksumOf(logits) !== this.checksums[position - this.first]) {
      throw new OdmoeError(
        'WORKER_DISTRUSTED',
        'a worker that took part in this answer gave wrong values (odmoe status names it); computed anew without it the answer would be ' +
          'another one, and some of it has been given out already: ask again',
      );
    }
    this.due = this.has(position + 1) ? position + 1 : null;
    return true;
  }

  private has(position: number): boolean {
    return position >= this.first && position < this.first + this.checksums.length;
  }
}

function checksumOf({ buffer, byteOffset, byteLength }: Float32Array): number {
  return crc32c(new Uint8Array(buffer, byteOffset, byteLength), 0);
}
