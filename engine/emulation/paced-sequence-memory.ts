import { HeldMemory, type PacedMemoryKind, type PacedMemory } from './paced-memory.js';

/** The device allocates cache rows in blocks of this many positions (native's kAttentionChunk). */
const BLOCK_POSITIONS = 256;

/** Memory that sequences share until one of them writes to it: a row block of a layer, or the recurrent states of a sequence. */
interface Piece {
  holders: number;
}

type PieceKind = 'block' | 'states';

const PIECES: Record<PieceKind, { what: PacedMemoryKind; count: number }> = {
  block: { what: 'cacheRowBytes', count: BLOCK_POSITIONS },
  states: { what: 'stateBytes', count: 1 },
};

/** The memory of all sequences of a model on a paced device. A shared piece counts once. */
export class PacedSequenceMemory {
  private readonly held: HeldMemory;
  private readonly counts: Record<PieceKind, number> = { block: 0, states: 0 };

  constructor(private readonly memory: PacedMemory | null) {
    this.held = new HeldMemory(memory);
  }

  /** Null: the memory of the device that does the arithmetic counts. */
  get bytes(): number | null {
    return this.bytesOf(this.counts.block, this.counts.states);
  }

  bytesOf(blocks: number, states: number): number | null {
    if (this.memory === null) return null;
    const bytesOf = (kind: PieceKind, pieces: number): number =>
      (this.memory?.bytes[PIECES[kind].what] ?? 0) * PIECES[kind].count * pieces;
    return bytesOf('block', blocks) + bytesOf('states', states);
  }

  /** Takes all of it or nothing. @throws DEVICE_OUT_OF_MEMORY */
  take(blocks: number, states: number): void {
    this.hold('block', blocks);
    try {
      this.hold('states', states);
    } catch (thrown) {
      this.letGo('block', blocks);
      throw thrown;
    }
  }

  letGo(kind: PieceKind, pieces: number): void {
    this.held.letGo(PIECES[kind].what, pieces * PIECES[kind].count);
    this.counts[kind] -= pieces;
  }

  private hold(kind: PieceKind, pieces: number): void {
    this.held.hold(PIECES[kind].what, pieces * PIECES[kind].count);
    this.counts[kind] += pieces;
  }
}

/** A place for a piece: one of a layer's blocks, or the states. */
interface Place {
  readonly kind: PieceKind;
  readonly get: () => Piece | undefined;
  readonly set: (piece: Piece | undefined) => void;
}

/** The pieces of one sequence. It writes only to pieces that it does not share. */
export class PacedCache {
  /** By layer. */
  private readonly blocks: (Piece | undefined)[][];
  private states: Piece | undefined;
  private released = false;

  constructor(
    private readonly memory: PacedSequenceMemory,
    private readonly layers: number,
  ) {
    this.blocks = Array.from({ length: layers }, () => []);
  }

  /** A fork that shares the pieces of the first `length` positions. */
  fork(length: number): PacedCache {
    const fork = new PacedCache(this.memory, this.layers);
    const blocks = Math.ceil(length / BLOCK_POSITIONS);
    this.blocks.forEach((ofLayer, layer) => fork.blocks[layer]?.push(...ofLayer.slice(0, blocks)));
    fork.states = length > 0 ? this.states : undefined;
    for (const { get } of fork.allPlaces()) {
      const piece = get();
      if (piece !== undefined) piece.holders += 1;
    }
    return fork;
  }

  /** Null: the memory of the device that does the arithmetic counts. */
  bytesToWrite(position: number, end: number): number | null {
    if (end <= position) return this.memory.bytesOf(0, 0);
    const [first, behind] = [Math.floor(position / BLOCK_POSITIONS), Math.ceil(end / BLOCK_POSITIONS)];
    let missing = 0;
    // Counts without making arrays: main asks this for tens of thousands of positions at a time.
    for (const ofLayer of this.blocks)
      for (let block = first; block < behind; block++) if (ofLayer[block]?.holders !== 1) missing += 1;
    return this.memory.bytesOf(missing, this.states?.holders === 1 ? 0 : 1);
  }

  /**
   * Replaces missing or shared pieces for positions [position, end) of these layers by unshared ones. Returns a function that restores the
   * earlier pieces.
   * @throws DEVICE_OUT_OF_MEMORY; then nothing has changed
   */
  reserve(position: number, end: number, layers: readonly number[]): () => void {
    const missing = this.missingPlaces(position, end, layers);
    this.memory.take(...countOf(missing));
    const undone = missing.map((place) => {
      const shared = place.get();
      if (shared !== undefined) shared.holders -= 1;
      place.set({ holders: 1 });
      return { place, shared };
    });
    return () => {
      if (this.released) return;
      for (const { place, shared } of undone) {
        // If all other holders have gone meanwhile, this piece can stay in place of the shared one.
        if (shared?.holders === 0) continue;
        if (shared !== undefined) shared.holders += 1;
        this.leave(place.kind, place.get());
        place.set(shared);
      }
    };
  }

  /** Idempotent. */
  release(): void {
    if (this.released) return;
    this.released = true;
    for (const { kind, get } of this.allPlaces()) this.leave(kind, get());
  }

  private leave(kind: PieceKind, piece: Piece | undefined): void {
    if (piece === undefined) return;
    piece.holders -= 1;
    if (piece.holders === 0) this.memory.letGo(kind, 1);
  }

  private missingPlaces(position: number, end: number, layers: readonly number[]): Place[] {
    if (end <= position) return [];
    const first = Math.floor(position / BLOCK_POSITIONS);
    const blocks = Array.from({ length: Math.ceil(end / BLOCK_POSITIONS) - first }, (_, index) => first + index);
    const places = layers.flatMap((layer) => blocks.map((block) => this.blockPlace(layer, block)));
    return [...places, this.statesPlace()].filter(({ get }) => get()?.holders !== 1);
  }

  private allPlaces(): Place[] {
    const blocks = this.blocks.flatMap((ofLayer, layer) => ofLayer.map((_, block) => this.blockPlace(layer, block)));
    return [...blocks, this.statesPlace()];
  }

  private blockPlace(layer: number, block: number): Place {
    const ofLayer = this.blocks[layer] ?? [];
    return { kind: 'block', get: () => ofLayer[block], set: (piece) => (ofLayer[block] = piece) };
  }

  private statesPlace(): Place {
    return { kind: 'states', get: () => this.states, set: (piece) => (this.states = piece) };
  }
}

function countOf(places: readonly Place[]): [blocks: number, states: number] {
  const blocks = places.filter(({ kind }) => kind === 'block').length;
  return [blocks, places.length - blocks];
}
