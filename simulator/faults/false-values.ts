/** Replaces the bytes of an expert's output by false values: FP32, little-endian. */
export type Falsify = (output: Uint8Array) => void;

const FLOAT_BYTES = 4;
/** One of this many uses of an expert gives false values. */
const ONE_IN = 3;
const NOT_NUMBERS = [0x7fc00000, 0xffc00000, 0x7f800000, 0xff800000, 0x7f800001] as const;

/**
 * A device that gives NaN, infinities, or noise with a NaN in it, for some experts and rows. The choice of outputs and their false values
 * follow from the true values and the seed.
 */
export function falseValues(seed: number): Falsify {
  return (output) => {
    const values = new DataView(output.buffer, output.byteOffset, output.byteLength);
    const drawn = (Math.imul(values.getUint32(0, true) ^ seed, 0x9e3779b1) >>> 8) >>> 0;
    if (drawn % ONE_IN !== 0) return;
    const count = output.byteLength / FLOAT_BYTES;
    const pattern = NOT_NUMBERS[drawn % NOT_NUMBERS.length] ?? NOT_NUMBERS[0];
    // Half of the false outputs also contain noise.
    if (drawn % 2 === 0) for (let place = 0; place < output.byteLength; place += 7) output[place] = drawn & 0xff;
    values.setUint32((drawn % count) * FLOAT_BYTES, pattern, true);
  };
}

/**
 * A device that lies: it gives zeros, or flips the last bit of a number, in one of some outputs. All are finite numbers. `lied`: called at each lie.
 */
export function falseNumbers(seed: number, lied: () => void): Falsify {
  const oneIn = 1 + ((seed >>> 1) % 8);
  let outputs = 0;
  return (output) => {
    outputs += 1;
    if (outputs % oneIn !== 0) return;
    lied();
    if (seed % 2 === 0) output.fill(0);
    else output[0] = (output[0] ?? 0) ^ 1;
  };
}
