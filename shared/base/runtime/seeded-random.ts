/** Reproducible pseudo-random numbers from a counter and a mixing function (SplitMix64's, in 32-bit steps): the same on every machine. */
export class SeededRandom {
  private state: number;

  constructor(seed: number) {
    this.state = mix(mix(seed >>> 0) ^ Math.floor(seed / 2 ** 32));
  }

  /** A whole number from 0 to `limit` - 1; `limit` is at most 2^48. */
  int(limit: number): number {
    if (limit <= 1) return 0;
    const high = this.word() >>> 8;
    const low = this.word() >>> 8;
    return Math.floor(((high * 2 ** 24 + low) / 2 ** 48) * limit);
  }

  /** A number in [0, 1). */
  fraction(): number {
    return this.int(2 ** 48) / 2 ** 48;
  }

  /** True with this probability. */
  chance(probability: number): boolean {
    return this.fraction() < probability;
  }

  pick<Item>(items: readonly Item[]): Item {
    return items[this.int(items.length)] as Item;
  }

  /** A separate stream of numbers, so that more draws of one kind do not change the draws of another. */
  fork(name: string): SeededRandom {
    let hash = this.state;
    for (let index = 0; index < name.length; index++) hash = mix(hash ^ name.charCodeAt(index));
    return new SeededRandom(hash >>> 0);
  }

  private word(): number {
    this.state = (this.state + 0x9e3779b9) | 0;
    return mix(this.state);
  }
}

function mix(value: number): number {
  let mixed = value | 0;
  mixed = Math.imul(mixed ^ (mixed >>> 16), 0x21f0aaad);
  mixed = Math.imul(mixed ^ (mixed >>> 15), 0x735a2d97);
  return mixed ^ (mixed >>> 15);
}
