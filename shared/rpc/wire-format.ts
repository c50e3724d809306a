/**
 * The part of protobuf's encoding that the hot messages use: varints, length-delimited fields, skipping of the unknown.
 * https://protobuf.dev/programming-guides/encoding/
 */
import { OdmoeError } from '../errors/index.js';

export const WIRE_VARINT = 0;
export const WIRE_LENGTH_DELIMITED = 2;
const WIRE_FIXED64 = 1;
const WIRE_FIXED32 = 5;

const TWO_TO_32 = 2 ** 32;

/** Bytes of a non-negative safe integer as a varint. */
export function varintBytes(value: number): number {
  let bytes = 1;
  for (let rest = value; rest >= 128; rest = Math.floor(rest / 128)) bytes += 1;
  return bytes;
}

/** Bytes of a varint field with a tag of one byte; nothing for 0, which proto3 leaves out. */
export function varintFieldBytes(value: number): number {
  return value === 0 ? 0 : 1 + varintBytes(value);
}

/** Writes a non-negative safe integer and returns the offset behind it. */
export function writeVarint(target: Buffer, start: number, value: number): number {
  let offset = start;
  let rest = value;
  while (rest >= 128) {
    target[offset++] = (rest % 128) | 128;
    rest = Math.floor(rest / 128);
  }
  target[offset++] = rest;
  return offset;
}

export function writeVarintField(target: Buffer, start: number, field: number, value: number): number {
  if (value === 0) return start;
  target[start] = (field << 3) | WIRE_VARINT;
  return writeVarint(target, start + 1, value);
}

/** Walks over the fields of one message. Throws PROTOCOL_VIOLATION when the bytes end early or make no sense. */
export class FieldReader {
  constructor(
    private readonly bytes: Buffer,
    private offset: number,
    private readonly end: number,
  ) {
    if (end > bytes.length) throw truncated();
  }

  get done(): boolean {
    return this.offset >= this.end;
  }

  get position(): number {
    return this.offset;
  }

  /** A varint as a number; 64-bit values above 2^53 lose low bits, as with proto-loader's `longs: Number`. */
  varint(): number {
    let low = 0;
    let high = 0;
    for (let shift = 0; shift < 70; shift += 7) {
      const byte = this.bytes[this.offset];
      if (byte === undefined || this.offset >= this.end) throw truncated();
      this.offset += 1;
      const bits = byte & 127;
      if (shift < 28) low += bits * 2 ** shift;
      else high += bits * 2 ** (shift - 28);
      if (byte < 128) return low + (high % 2 ** 36) * 2 ** 28;
    }
    throw new OdmoeError('PROTOCOL_VIOLATION', 'a message holds a varint of more than ten bytes');
  }

  uint32(): number {
    return this.varint() % TWO_TO_32;
  }

  /** A view of the field's bytes, at whatever offset they came. */
  lengthDelimited(): Buffer {
    const length = this.varint();
    const start = this.offset;
    if (length > this.end - start) throw truncated();
    this.offset = start + length;
    return this.bytes.subarray(start, this.offset);
  }

  skip(wireType: number): void {
    switch (wireType) {
      case WIRE_VARINT:
        this.varint();
        return;
      case WIRE_LENGTH_DELIMITED:
        this.lengthDelimited();
        return;
      case WIRE_FIXED64:
      case WIRE_FIXED32:
        this.offset += wireType === WIRE_FIXED64 ? 8 : 4;
        if (this.offset > this.end) throw truncated();
        return;
      default:
        throw new OdmoeError('PROTOCOL_VIOLATION', `a message holds a field of wire type ${wireType}`);
    }
  }
}

function truncated(): OdmoeError {
  return new OdmoeError('PROTOCOL_VIOLATION', 'a message ends in the middle of a field');
}
