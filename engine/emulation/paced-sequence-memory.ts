import { HeldMemory, type PacedMemoryKind, type PacedMemory } from './paced-memory.js';

/** The device allocates cache rows in row blocks of this many positions (native's kAttentionChunk). */
const ROW_BLOCK_POSITIONS = 256;

/** Memory that sequences share until one of them writes to it: a row block of a layer, or the recurrent states of a sequence. */
interface SharedMemory {
  holders: number;
}

type SharedKind = 'rowBlock' | 'states';

const SHARED_KINDS: Record<SharedKind, { what: PacedMemoryKind; count: number }> = {
  rowBlock: { what: 'cacheRowBytes', count: ROW_BLOCK_POSITIONS },
  states: { what: 'stateBytes', count: 1 },
};

/** The memory of all sequences of a model on a paced device. What they share counts once. */
export class PacedSequenceMemory {
  private readonly held: HeldMemory;
  private readonly counts: Record<SharedKind, number> = { rowBlock: 0, states: 0 };

  constructor(private readonly memory: PacedMemory | null) {
    this.held = new HeldMemory(memory);
  }

  /** Null: the memory of the device that does the arithmetic counts. */
  get bytes(): number | null {
    return this.bytesOf(this.counts.rowBlock, this.counts.states);
  }

  bytesOf(rowBlocks: number, states: number): number | null {
    if (this.memory === null) return null;
    const bytesOf = (kind: SharedKind, count: number): number =>
      (this.memory?.bytesOf(SHARED_KINDS[kind].what) ?? 0) * SHARED_KINDS[kind].count * count;
    return bytesOf('rowBlock', rowBlocks) + bytesOf('states', states);
  }

  /** Takes all of it or nothing. @throws DEVICE_OUT_OF_MEMORY */
  take(rowBlocks: number, states: number): void {
    this.hold('rowBlock', rowBlocks);
    try {
      this.hold('states', states);
    } catch (thrown) {
      this.letGo('rowBlock', rowBlocks);
      throw thrown;
    }
  }

  letGo(kind: SharedKind, count: number): void {
    this.held.letGo(SHARED_KINDS[kind].what, count * SHARED_KINDS[kind].count);
    this.counts[kind] -= count;
  }

  private hold(kind: SharedKind, count: number): void {
    this.held.hold(SHARED_KINDS[kind].what, count * SHARED_KINDS[kind].count);
    this.counts[kind] += count;
  }
}

/** A place of a sequence: for one row block of a layer, or for the states. */
interface Place {
  readonly kind: SharedKind;
  readonly get: () => SharedMemory | undefined;
  readonly set: (shared: SharedMemory | undefined) => void;
}

/** The row blocks and states of one sequence. It writes only to those that it does not share. */
export class PacedCache {
  /** By layer. */
  private readonly rowBlocks: (SharedMemory | undefined)[][];
  private states: SharedMemory | undefined;
  private released = false;

  constructor(
    private readonly memory: PacedSequenceMemory,
    private readonly layers: number,
  ) {
    this.rowBlocks = Array.from({ length: layers }, () => []);
  }

  /** A fork that shares the row blocks and states of the first `length` positions. */
  fork(length: number): PacedCache {
    const fork = new PacedCache(this.memory, this.layers);
    const rowBlocks = Math.ceil(length / ROW_BLOCK_POSITIONS);
    this.rowBlocks.forEach((ofLayer, layer) => fork.rowBlocks[layer]?.push(...ofLayer.slice(0, rowBlocks)));
    fork.states = length > 0 ? this.states : undefined;
    for (const { get } of fork.allPlaces()) {
      const shared = get();
      if (shared !== undefined) shared.holders += 1;
    }
    return fork;
  }

  /** Null: the memory of the device that does the arithmetic counts. */
  bytesToWrite(position: number, end: number): number | null {
    if (end <= position) return this.memory.bytesOf(0, 0);
    const [first, behind] = [Math.floor(position / ROW_BLOCK_POSITIONS), Math.ceil(end / ROW_BLOCK_POSITIONS)];
    let missing = 0;
    // Counts without making arrays: main asks this for tens of thousands of positions at a time.
    for (const ofLayer of this.rowBlocks)
      for (let rowBlock = first; rowBlock < behind; rowBlock++) if (ofLayer[rowBlock]?.holders !== 1) missing += 1;
    return this.memory.bytesOf(missing, this.states?.holders === 1 ? 0 : 1);
  }

  /**
   * Replaces missing or shared row blocks and states for positions [position, end) of these layers by unshared ones. Returns a
   * function that restores the earlier ones.
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
        // If all other holders have gone meanwhile, this one can stay in place of the shared one.
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

  private leave(kind: SharedKind, shared: SharedMemory | undefined): void {
    if (shared === undefined) return;
    shared.holders -= 1;
    if (shared.holders === 0) this.memory.letGo(kind, 1);
  }

  private missingPlaces(position: number, end: number, layers: readonly number[]): Place[] {
    if (end <= position) return [];
    const first = Math.floor(position / ROW_BLOCK_POSITIONS);
    const rowBlocks = Array.from({ length: Math.ceil(end / ROW_BLOCK_POSITIONS) - first }, (_, index) => first + index);
    const places = layers.flatMap((layer) => rowBlocks.map((rowBlock) => this.rowBlockPlace(layer, rowBlock)));
    return [...places, this.statesPlace()].filter(({ get }) => get()?.holders !== 1);
  }

  private allPlaces(): Place[] {
    const rowBlocks = this.rowBlocks.flatMap((ofLayer, layer) =>
      ofLayer.map((_, rowBlock) => this.rowBlockPlace(layer, rowBlock)),
    );
    return [...rowBlocks, this.statesPlace()];
  }

  private rowBlockPlace(layer: number, rowBlock: number): Place {
    const ofLayer = this.rowBlocks[layer] ?? [];
    return { kind: 'rowBlock', get: () => ofLayer[rowBlock], set: (shared) => (ofLayer[rowBlock] = shared) };
  }

  private statesPlace(): Place {
    return { kind: 'states', get: () => this.states, set: (shared) => (this.states = shared) };
  }
}

function countOf(places: readonly Place[]): [rowBlocks: number, states: number] {
  const rowBlocks = places.filter(({ kind }) => kind === 'rowBlock').length;
  return [rowBlocks, places.length - rowBlocks];
}
