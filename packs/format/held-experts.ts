/** The experts of a pack that are on a disk, one bit each. */
export class HeldExperts {
  private constructor(
    readonly layers: number,
    readonly experts: number,
    private readonly bits: Uint8Array,
    private count: number,
  ) {}

  static none(layers: number, experts: number): HeldExperts {
    return new HeldExperts(layers, experts, new Uint8Array(Math.ceil((layers * experts) / 8)), 0);
  }

  static all(layers: number, experts: number): HeldExperts {
    const held = HeldExperts.none(layers, experts);
    for (let layer = 0; layer < layers; layer += 1) {
      for (let expert = 0; expert < experts; expert += 1) held.add(layer, expert);
    }
    return held;
  }

  /** From the bits of a PackDescription. Their length must match layers and experts. */
  static fromBits(layers: number, experts: number, bits: Uint8Array): HeldExperts {
    const held = HeldExperts.none(layers, experts);
    for (let place = 0; place < layers * experts; place += 1) {
      if (((bits[place >> 3] ?? 0) >> (place & 7)) & 1) held.add(Math.floor(place / experts), place % experts);
    }
    return held;
  }

  get isComplete(): boolean {
    return this.count === this.layers * this.experts;
  }

  get isEmpty(): boolean {
    return this.count === 0;
  }

  has(layer: number, expert: number): boolean {
    const place = layer * this.experts + expert;
    return (((this.bits[place >> 3] ?? 0) >> (place & 7)) & 1) === 1;
  }

  add(layer: number, expert: number): void {
    if (this.has(layer, expert)) return;
    const place = layer * this.experts + expert;
    this.bits[place >> 3] = (this.bits[place >> 3] ?? 0) | (1 << (place & 7));
    this.count += 1;
  }

  remove(layer: number, expert: number): void {
    if (!this.has(layer, expert)) return;
    const place = layer * this.experts + expert;
    this.bits[place >> 3] = (this.bits[place >> 3] ?? 0) & ~(1 << (place & 7));
    this.count -= 1;
  }

  /** A copy of the bits: expert e of layer l is bit l * experts + e, the lowest bit of a byte first. */
  toBits(): Uint8Array {
    return Uint8Array.from(this.bits);
  }
}
