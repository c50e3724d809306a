/**
 * Writes DER (ITU-T X.690), the form of certificates: tag, length of the contents, contents. There is no reader here: OpenSSL reads whatever
 * comes from outside.
 */

/** Tags of X.690, with the bit for constructed values where it belongs. */
const BOOLEAN = 0x01;
const INTEGER = 0x02;
const BIT_STRING = 0x03;
const OCTET_STRING = 0x04;
const OBJECT_IDENTIFIER = 0x06;
const UTF8_STRING = 0x0c;
const SEQUENCE = 0x30;
const SET = 0x31;
const UTC_TIME = 0x17;
const GENERALIZED_TIME = 0x18;
const CONTEXT = 0x80;
const CONSTRUCTED = 0x20;

/** A value of this tag. The length takes the shortest form, as DER demands. */
export function der(tag: number, ...contents: readonly Uint8Array[]): Buffer {
  const body = Buffer.concat(contents);
  return Buffer.concat([Buffer.from([tag]), lengthOf(body.length), body]);
}

function lengthOf(bytes: number): Buffer {
  if (bytes < 0x80) return Buffer.from([bytes]);
  const digits = bytesOf(bytes, 8);
  return Buffer.from([0x80 | digits.length, ...digits]);
}

/** The digits of a whole number, of this many bits each, the highest first. At least one. */
function bytesOf(value: number, bits: 7 | 8): number[] {
  const base = 1 << bits;
  const digits = [value % base];
  for (let rest = Math.floor(value / base); rest > 0; rest = Math.floor(rest / base)) digits.unshift(rest % base);
  return digits;
}

export function sequence(...contents: readonly Uint8Array[]): Buffer {
  return der(SEQUENCE, ...contents);
}

/** A set of one element. Sets of several need an order, and nothing here has one. */
export function setOf(element: Uint8Array): Buffer {
  return der(SET, element);
}

export function boolean(value: boolean): Buffer {
  return der(BOOLEAN, Buffer.from([value ? 0xff : 0]));
}

/** A whole number that is not negative, from its bytes, the highest first. */
export function unsignedInteger(magnitude: Uint8Array): Buffer {
  const first = magnitude.findIndex((byte) => byte !== 0);
  const digits = first < 0 ? Buffer.from([0]) : magnitude.subarray(first);
  // A set highest bit would make the number negative.
  const sign = (digits[0] ?? 0) >= 0x80 ? Buffer.from([0]) : Buffer.alloc(0);
  return der(INTEGER, sign, digits);
}

/** An object identifier, as numbers with points: "2.5.29.17". */
export function objectIdentifier(text: string): Buffer {
  const [first = 0, second = 0, ...others] = text.split('.').map(Number);
  const digits = [first * 40 + second, ...others].flatMap((arc) => {
    const groups = bytesOf(arc, 7);
    return groups.map((group, index) => (index < groups.length - 1 ? group | 0x80 : group));
  });
  return der(OBJECT_IDENTIFIER, Buffer.from(digits));
}

export function utf8String(text: string): Buffer {
  return der(UTF8_STRING, Buffer.from(text));
}

export function octetString(contents: Uint8Array): Buffer {
  return der(OCTET_STRING, contents);
}

/** `unusedBits`: bits at the end of the last byte that do not belong to the value. */
export function bitString(contents: Uint8Array, unusedBits = 0): Buffer {
  return der(BIT_STRING, Buffer.from([unusedBits]), contents);
}

/** "700101000000Z" */
export function utcTime(text: string): Buffer {
  return der(UTC_TIME, Buffer.from(text));
}

/** "99991231235959Z" */
export function generalizedTime(text: string): Buffer {
  return der(GENERALIZED_TIME, Buffer.from(text));
}

/** A whole value under a tag of its context. */
export function explicitTag(tag: number, value: Uint8Array): Buffer {
  return der(CONTEXT | CONSTRUCTED | tag, value);
}

/** Contents under a tag of their context, which stands in place of their own. */
export function implicitTag(tag: number, contents: Uint8Array): Buffer {
  return der(CONTEXT | tag, contents);
}
