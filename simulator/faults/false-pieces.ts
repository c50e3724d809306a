import { HeldExperts } from '../../packs/format/held-experts.js';
import type { PackPiece } from '../../shared/wire/messages.js';
import type { PackDoor } from '../cluster/simulated-node.js';

/** A node gives peers false pieces of its pack, or says that it has what it has not. Outlives a restart of the node. */
export class PieceFaults {
  /** Streams of pieces end early. */
  areShort = false;
  /** One bit of each piece is flipped. */
  areWrong = false;
  /** The node says that it has the whole pack. */
  claimsAll = false;
  /** How often a peer has been told something false. */
  told = 0;

  /** The door of the node to its pack, with the present faults at each call. */
  door(real: PackDoor): PackDoor {
    return {
      describe: () => this.describe(real),
      manifest: (request, signal) => this.pieces(real.manifest(request, signal)),
      read: (request, signal) => this.pieces(real.read(request, signal)),
    };
  }

  private describe(door: PackDoor): ReturnType<PackDoor['describe']> {
    const description = door.describe();
    if (!this.claimsAll || description.whole) return description;
    this.told += 1;
    const { layers, experts } = description;
    return { ...description, whole: true, heldExperts: HeldExperts.all(layers, experts).toBits() };
  }

  private async *pieces(pieces: AsyncIterable<PackPiece>): AsyncGenerator<PackPiece, void, undefined> {
    for await (const { bytes } of pieces) {
      const isShort = this.areShort;
      const isWrong = this.areWrong;
      if (isShort || isWrong) this.told += 1;
      const told = isWrong ? withFlippedBit(bytes) : bytes;
      yield { bytes: isShort ? told.subarray(0, told.length >> 1) : told };
      if (isShort) return;
    }
  }
}

function withFlippedBit(bytes: Uint8Array): Uint8Array {
  const flipped = Uint8Array.from(bytes);
  const place = flipped.length >> 1;
  flipped[place] = (flipped[place] ?? 0) ^ 0x04;
  return flipped;
}
