const MASK_64 = (1n << 64n) - 1n;
const GOLDEN_GAMMA = 0x9e3779b97f4a7c15n;

/** The output function of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014): a bijection of 64 bits that mixes well. */
function mix(value: bigint): bigint {
  let bits = value & MASK_64;
  bits = ((bits ^ (bits >> 30n)) * 0xbf58476d1ce4e5b9n) & MASK_64;
  bits = ((bits ^ (bits >> 27n)) * 0x94d049bb133111ebn) & MASK_64;
  return bits ^ (bits >> 31n);
}

/**
 * A number in [0, 1) with 53 random bits. It depends on (seed, position) alone: earlier draws and the machine that draws do not change it. Each
 * seed has a separate SplitMix64 stream; the stream is entered at `position`.
 */
export function counterRandom(seed: number, position: number): number {
  const start = mix(BigInt(seed) + GOLDEN_GAMMA);
  return Number(mix(start + BigInt(position + 1) * GOLDEN_GAMMA) >> 11n) / 2 ** 53;
}
