/**
 * The part of protobuf's encoding that the hot messages use: varints, length-delimited fields, skipping of unknown fields.
 * https://protobuf.dev/programming-guides/encoding/
 */
import { timesPowerOfTwo } from '../base/arithmetic/elementary.js';
import { isUtf8 } from 'node:buffer';
import { OdmoeError } from '../base/errors/odmoe-error.js';

export const WIRE_VARINT = 0;
export const WIRE_LENGTH_DELIMITED = 2;
export const WIRE_FIXED64 = 1;
export const WIRE_FIXED32 = 5;

const TWO_TO_32 = 2 ** 32;

/** Bytes of a non-negative safe integer as a varint. */
function varintBytes(value: number): number {
  let bytes = 1;
  for (let rest = value; rest >= 128; rest = Math.floor(rest / 128)) bytes += 1;
  return bytes;
}

/** Writes a non-negative safe integer and returns the offset behind it. */
function writeVarint(target: Buffer, start: number, value: number): number {
  let offset = start;
  let rest = value;
  while (rest >= 128) {
    target[offset++] = (rest % 128) | 128;
    rest = Math.floor(rest / 128);
  }
  target[offset++] = rest;
  return offset;
}

/** The first byte of a field: its number (below 16) and its wire type. */
export function tagOf(field: number, wireType: number): number {
  return (field << 3) | wireType;
}

type FieldContent = number | Uint8Array | readonly number[] | MessageWriter;

/**
 * The fields of one message, collected before they are written, so that the lengths of nested messages are known and big fields are copied once.
 * Default values of proto3 (0, false, empty) are left out. Field numbers are below 16.
 */
export class MessageWriter {
  private readonly fields: { tag: number; content: FieldContent; contentBytes: number }[] = [];
  private length = 0;

  get byteLength(): number {
    return this.length;
  }

  /** Throws INTERNAL if the value is not a whole number from 0 to 2^53. */
  varint(field: number, value: number): this {
    requireWhole(field, value);
    if (value === 0) return this;
    const contentBytes = varintBytes(value);
    this.fields.push({ tag: tagOf(field, WIRE_VARINT), content: value, contentBytes });
    this.length += 1 + contentBytes;
    return this;
  }

  bytes(field: number, content: Uint8Array): this {
    return content.length === 0 ? this : this.delimited(field, content, content.length);
  }

  text(field: number, content: string): this {
    return this.bytes(field, Buffer.from(content));
  }

  /** A repeated number. Throws INTERNAL as `varint` does. */
  packed(field: number, values: readonly number[]): this {
    if (values.length === 0) return this;
    let contentBytes = 0;
    for (const value of values) {
      requireWhole(field, value);
      contentBytes += varintBytes(value);
    }
    return this.delimited(field, values, contentBytes);
  }

  /** A nested message. It is written even if it is empty. */
  message(field: number, content: MessageWriter): this {
    return this.delimited(field, content, content.byteLength);
  }

  encode(): Buffer {
    const target = Buffer.allocUnsafe(this.length);
    this.writeTo(target, 0);
    return target;
  }

  private delimited(field: number, content: FieldContent, contentBytes: number): this {
    this.fields.push({ tag: tagOf(field, WIRE_LENGTH_DELIMITED), content, contentBytes });
    this.length += 1 + varintBytes(contentBytes) + contentBytes;
    return this;
  }

  /** Returns the offset behind the message. */
  private writeTo(target: Buffer, start: number): number {
    let offset = start;
    for (const { tag, content, contentBytes } of this.fields) {
      target[offset++] = tag;
      if (typeof content === 'number') {
        offset = writeVarint(target, offset, content);
        continue;
      }
      offset = writeVarint(target, offset, contentBytes);
      if (content instanceof MessageWriter) offset = content.writeTo(target, offset);
      else if (content instanceof Uint8Array) {
        target.set(content, offset);
        offset += contentBytes;
      } else for (const value of content) offset = writeVarint(target, offset, value);
    }
    return offset;
  }
}

function requireWhole(field: number, value: number): void {
  if (Number.isSafeInteger(value) && value >= 0) return;
  throw new OdmoeError('INTERNAL', `field ${field} of a message is ${value}: it takes whole numbers from 0`);
}

/** Reads the fields of one message in order. Throws PROTOCOL_VIOLATION if the bytes end early or are invalid. */
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

  /** Reads a varint as a number; 64-bit values above 2^53 lose low bits, as with proto-loader's `longs: Number`. */
  varint(): number {
    let low = 0;
    let high = 0;
    for (let shift = 0; shift < 70; shift += 7) {
      const byte = this.bytes[this.offset];
      if (byte === undefined || this.offset >= this.end) throw truncated();
      this.offset += 1;
      const bits = byte & 127;
      if (shift < 28) low += bits << shift;
      else high += timesPowerOfTwo(bits, shift - 28);
      if (byte < 128) return low + (high % 2 ** 36) * 2 ** 28;
    }
    throw new OdmoeError('PROTOCOL_VIOLATION', 'a message holds a varint of more than ten bytes');
  }

  uint32(): number {
    return this.varint() % TWO_TO_32;
  }

  /** A view of the field's bytes, at any offset. */
  lengthDelimited(): Buffer {
    const length = this.varint();
    const start = this.offset;
    if (length > this.end - start) throw truncated();
    this.offset = start + length;
    return this.bytes.subarray(start, this.offset);
  }

  /** A reader of the fields of a nested message. */
  message(): FieldReader {
    const length = this.varint();
    const start = this.offset;
    if (length > this.end - start) throw truncated();
    this.offset = start + length;
    return new FieldReader(this.bytes, start, this.offset);
  }

  text(): string {
    const bytes = this.lengthDelimited();
    if (!isUtf8(bytes)) throw new OdmoeError('PROTOCOL_VIOLATION', 'a text of a message is not UTF-8');
    return bytes.toString('utf8');
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
