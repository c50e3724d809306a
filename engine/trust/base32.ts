/** Base 32 of RFC 4648, in small letters and without "=": 5 bits a character. */
const ALPHABET = 'abcdefghijklmnopqrstuvwxyz234567';
const BITS = 5;

/** Unused bits of the last character are 0. */
export function toBase32(bytes: Uint8Array): string {
  let text = '';
  let bits = 0;
  let held = 0;
  for (const byte of bytes) {
    held = (held << 8) | byte;
    bits += 8;
    for (; bits >= BITS; bits -= BITS) text += ALPHABET.charAt((held >> (bits - BITS)) & 31);
    held &= (1 << bits) - 1;
  }
  return bits === 0 ? text : text + ALPHABET.charAt((held << (BITS - bits)) & 31);
}

/** Null: a character of another alphabet, or unused bits that are not 0. */
export function fromBase32(text: string): Buffer | null {
  const bytes: number[] = [];
  let bits = 0;
  let held = 0;
  for (const character of text) {
    const value = ALPHABET.indexOf(character);
    if (value < 0) return null;
    held = (held << BITS) | value;
    bits += BITS;
    if (bits >= 8) {
      bits -= 8;
      bytes.push(held >> bits);
      held &= (1 << bits) - 1;
    }
  }
  const decoded = Buffer.from(bytes);
  return toBase32(decoded) === text ? decoded : null;
}
