import type { WeightDtype } from '../../shared/model/weight-dtype.js';

/** Levels of radius and of angle. Their product is the number of different values: one for each 16-bit number. */
const LEVELS = 256;

/** 65,536 values with a standard Gaussian distribution: the Box-Muller transform of an even grid. */
function gaussianTable(): Float64Array {
  const table = new Float64Array(LEVELS * LEVELS);
  for (let i = 0; i < LEVELS; i += 1) {
    const radius = Math.sqrt(-2 * Math.log((i + 0.5) / LEVELS));
    for (let j = 0; j < LEVELS; j += 1) table[i * LEVELS + j] = radius * Math.cos((2 * Math.PI * (j + 0.5)) / LEVELS);
  }
  return table;
}

/** Bits of the nearest FP32 number. */
export function singleBits(value: number): number {
  return new Uint32Array(Float32Array.of(value).buffer)[0] ?? 0;
}

/** Bits of the nearest BF16 number, ties to even; for finite values. */
export function bfloat16Bits(value: number): number {
  const bits = singleBits(value);
  return (bits + 0x7fff + ((bits >>> 16) & 1)) >>> 16;
}

/** Bits of a nearest FP16 number; for values within its range. */
export function halfBits(value: number): number {
  const sign = value < 0 || Object.is(value, -0) ? 0x8000 : 0;
  const magnitude = Math.abs(value);
  const exponent = Math.max(-14, magnitude === 0 ? -14 : Math.floor(Math.log2(magnitude)));
  const steps = Math.round(magnitude / 2 ** (exponent - 10));
  // The bit above ten mantissa bits counts as one exponent: normal numbers have it, subnormal numbers do not.
  return sign + ((exponent + 14) << 10) + steps;
}

/** Bits of a nearest number of the type; for values within its range. */
export function bitsOf(value: number, dtype: WeightDtype): number {
  return { BF16: bfloat16Bits, F16: halfBits, F32: singleBits }[dtype](value);
}

/** A stream of random 32-bit numbers, always the same for the same two seeds (Marsaglia's xorshift). */
export class RandomBits {
  private state: number;

  constructor(seed: number, stream: number) {
    let mixed = (Math.imul(seed, 0x9e3779b1) ^ Math.imul(stream + 1, 0x85ebca6b)) >>> 0;
    mixed = Math.imul(mixed ^ (mixed >>> 15), 0x2c1b3c6d) >>> 0;
    this.state = (mixed ^ (mixed >>> 12)) >>> 0 || 1;
  }

  next(): number {
    let x = this.state;
    x ^= x << 13;
    x ^= x >>> 17;
    x ^= x << 5;
    this.state = x >>> 0;
    return this.state;
  }
}

/** Fills buffers with Gaussian weights of one type and deviation. It is fast enough for billions of weights. */
export class GaussianFiller {
  private readonly bits: Uint32Array;

  constructor(
    private readonly dtype: WeightDtype,
    deviation: number,
  ) {
    this.bits = Uint32Array.from(gaussianTable(), (value) => bitsOf(value * deviation, dtype));
  }

  /** `bytes` begins at a multiple of four in its buffer. The number of values is even, except in the last call for a tensor. */
  fill(bytes: Uint8Array, random: RandomBits): void {
    const { bits } = this;
    if (this.dtype === 'F32') {
      const values = new Uint32Array(bytes.buffer, bytes.byteOffset, bytes.length / 4);
      for (let i = 0; i < values.length; i += 1) {
        const drawn = random.next();
        // The table gives the upper half, and random bits the lower half, so that mantissas do not repeat.
        values[i] = ((bits[drawn >>> 16] ?? 0) & 0xffff0000) | (drawn & 0xffff);
      }
      return;
    }
    const values = new Uint16Array(bytes.buffer, bytes.byteOffset, bytes.length / 2);
    for (let i = 0; i < values.length; i += 2) {
      const drawn = random.next();
      values[i] = bits[drawn >>> 16] ?? 0;
      if (i + 1 < values.length) values[i + 1] = bits[drawn & 0xffff] ?? 0;
    }
  }
}
