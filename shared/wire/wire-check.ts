/**
 * Checks the bytes of a message before it is decoded, in one pass that builds nothing. A message that exceeds the table of wire-limits.ts is
 * refused while it is still bytes. Texts must be valid, complete UTF-8: protobufjs would put U+FFFD in place of wrong bytes, and read a
 * truncated text as a shorter one. Every field must have its wire type: protobufjs would accept another type, continue at another offset than
 * this pass, and could meet elements that were not counted here.
 */
import { isUtf8 } from 'node:buffer';
import { OdmoeError } from '../base/errors/odmoe-error.js';
import type { ErrorCode } from '../base/errors/registry.js';
import { WIRE_FIXED32, WIRE_FIXED64, WIRE_LENGTH_DELIMITED, WIRE_VARINT } from './wire-format.js';
import { bytesLimitOf, INNER_MESSAGES_LIMIT, INNER_VALUES_LIMIT, SPARE_FIELDS_LIMIT } from './wire-limits.js';
import type { MessageOutline, OutlinedField } from './wire-outline.js';

/** Most levels of nested messages, and most lists of one message, in odmoe.v1. */
const DEPTH = 16;
const LISTS = 16;
/** Bytes of a varint of 32 bits, and of a negative one. For lengths between the two, decoders differ. */
const VARINT32_BYTES = 5;
const VARINT_BYTES = 10;

export interface CheckOptions {
  /** Code of an error about an exceeded limit. Bytes that are not a valid message are always PROTOCOL_VIOLATION. */
  code: ErrorCode;
  /** Most inner messages of the message. */
  innerMessages: number;
}

/** Options for messages of peers. */
export const PEER_CHECK: CheckOptions = { code: 'PROTOCOL_VIOLATION', innerMessages: INNER_MESSAGES_LIMIT };

/** Throws PROTOCOL_VIOLATION, or `options.code` if a limit is exceeded. */
export function checkWire(bytes: Buffer, outline: MessageOutline, options = PEER_CHECK): void {
  new WireWalk(bytes, outline, options).run();
}

/** Elements so far of each list, for each open message. A walk calls no other code, so all walks share this array. */
const counts = new Uint32Array(DEPTH * LISTS);

function countAt(depth: number, place: number): number {
  return counts[depth * LISTS + place] ?? 0;
}

class WireWalk {
  private at = 0;
  /** The fields of the open messages, by depth. */
  private readonly open: OutlinedField[] = [];
  private innerMessages = 0;
  private innerValues = 0;
  /** Bytes so far of messages that may be long. */
  private longBytes = 0;

  constructor(
    private readonly bytes: Buffer,
    private readonly outline: MessageOutline,
    private readonly options: CheckOptions,
  ) {}

  run(): void {
    const { bytes, outline } = this;
    if (outline.bytesLimit !== null) this.requireLength(outline, bytes.length);
    this.walk(outline, bytes.length, 0);
    if (outline.bytesLimit === null) this.requireLength(outline, bytes.length - this.longBytes);
  }

  private walk(outline: MessageOutline, end: number, depth: number): void {
    const first = depth * LISTS;
    counts.fill(0, first, first + outline.lists);
    let spare = outline.fieldCount + SPARE_FIELDS_LIMIT;
    while (this.at < end) {
      const tag = this.varint32(end);
      const field = outline.fields[tag >>> 3];
      if (field === undefined || field.limit === null) {
        spare -= 1;
        if (spare < 0) throw this.tooMany(`a ${outline.message} holds more than ${SPARE_FIELDS_LIMIT} fields too many`);
      } else if ((tag & 7) === field.wireType) this.count(outline, field, depth, 1);
      if (field === undefined) this.skip(tag & 7, end);
      else this.readField(outline, field, tag & 7, end, depth);
    }
    if (this.at !== end) throw truncated();
  }

  private readField(outline: MessageOutline, field: OutlinedField, wireType: number, end: number, depth: number): void {
    if (wireType !== field.wireType) {
      if (wireType === WIRE_LENGTH_DELIMITED && field.kind === 'number' && field.limit !== null) {
        this.readPacked(outline, field, end, depth);
        return;
      }
      const kind = field.kind === 'number' ? 'number' : 'text or message';
      throw violation(`${field.name} of a ${outline.message} has the wire type ${wireType} and not that of a ${kind}`);
    }
    if (field.kind === 'number') {
      this.skipNumber(field, end);
      return;
    }
    const length = this.varint32(end);
    const start = this.at;
    const behind = start + length;
    if (behind > end) throw truncated();
    if (field.inner !== null) {
      this.innerMessages += 1;
      if (this.innerMessages > this.options.innerMessages) {
        throw this.tooMany(`a ${this.outline.message} holds more than ${this.options.innerMessages} messages`);
      }
      if (field.inner.bytesLimit !== null) {
        this.requireLength(field.inner, length);
        this.longBytes += length;
      }
      this.open[depth] = field;
      this.walk(field.inner, behind, depth + 1);
    } else if (field.kind === 'text' && length > 0 && !isUtf8(this.bytes.subarray(start, behind))) {
      throw violation(`${field.name} of a ${outline.message} is not UTF-8`);
    }
    this.at = behind;
  }

  /** Each byte below 128 ends a number. */
  private readPacked(outline: MessageOutline, field: OutlinedField, end: number, depth: number): void {
    const length = this.varint32(end);
    const behind = this.at + length;
    if (behind > end) throw truncated();
    let elements = 0;
    if (field.wireType === WIRE_VARINT) {
      for (let at = this.at; at < behind; at += 1) if ((this.bytes[at] ?? 0) < 128) elements += 1;
    } else elements = Math.ceil(length / (field.wireType === WIRE_FIXED64 ? 8 : 4));
    this.count(outline, field, depth, elements);
    this.at = behind;
  }

  private count({ message }: MessageOutline, field: OutlinedField, depth: number, elements: number): void {
    const { name, limit, place, inner } = field;
    const now = countAt(depth, place) + elements;
    counts[depth * LISTS + place] = now;
    if (limit !== null && now > limit) {
      const path = this.pathTo(name, depth);
      throw this.tooMany(`${name} of a ${message} has ${limit + 1} entries or more; at most ${limit} are taken`, path);
    }
    if (inner !== null) return;
    this.innerValues += elements;
    if (this.innerValues <= INNER_VALUES_LIMIT) return;
    throw this.tooMany(`the lists of a ${this.outline.message} have more than ${INNER_VALUES_LIMIT} entries`);
  }

  /** "messages[3].tool_calls" */
  private pathTo(name: string, depth: number): string {
    const above = this.open.slice(0, depth).map((field, level) => {
      return field.limit === null ? field.name : `${field.name}[${countAt(level, field.place) - 1}]`;
    });
    return [...above, name].join('.');
  }

  private requireLength({ message }: MessageOutline, length: number): void {
    const limit = bytesLimitOf(message);
    if (length <= limit) return;
    const code = this.options.code === 'REQUEST_INVALID' ? 'REQUEST_TOO_LARGE' : this.options.code;
    throw new OdmoeError(code, `a ${message} has ${length} bytes; at most ${limit} are taken`);
  }

  private skipNumber({ wireType, isLong }: OutlinedField, end: number): void {
    if (wireType !== WIRE_VARINT) {
      this.skip(wireType, end);
      return;
    }
    const start = this.at;
    this.skip(WIRE_VARINT, end);
    const length = this.at - start;
    if (isLong || length <= VARINT32_BYTES || length === VARINT_BYTES) return;
    throw violation(`a message holds a number of 32 bits in ${length} bytes`);
  }

  private skip(wireType: number, end: number): void {
    switch (wireType) {
      case WIRE_VARINT: {
        const start = this.at;
        while ((this.bytes[this.at] ?? 0) >= 128 && this.at < end) this.at += 1;
        this.at += 1;
        if (this.at - start > VARINT_BYTES) throw violation('a message holds a varint of more than ten bytes');
        break;
      }
      case WIRE_LENGTH_DELIMITED: {
        // Not in one step with the addition: that would take the place from before the length was read, as release 0.2 does.
        const length = this.varint32(end);
        this.at += length;
        break;
      }
      case WIRE_FIXED64:
      case WIRE_FIXED32:
        this.at += wireType === WIRE_FIXED64 ? 8 : 4;
        break;
      default:
        throw violation(`a message holds a field of wire type ${wireType}`);
    }
    if (this.at > end) throw truncated();
  }

  /** Reads a tag or a length. More than 32 bits are invalid. */
  private varint32(end: number): number {
    let value = 0;
    for (let shift = 0; shift < 35; shift += 7) {
      const byte = this.bytes[this.at] ?? 0;
      if (this.at >= end) throw truncated();
      this.at += 1;
      value += shift < 28 ? (byte & 127) << shift : (byte & 15) * 2 ** 28;
      if (byte < 128) return value;
    }
    throw violation('a message holds a tag or length of more than five bytes');
  }

  private tooMany(message: string, field = ''): OdmoeError {
    const { code } = this.options;
    return new OdmoeError(code, message, code === 'REQUEST_INVALID' && field !== '' ? { field } : {});
  }
}

function truncated(): OdmoeError {
  return violation('a message ends in the middle of a field');
}

function violation(message: string): OdmoeError {
  return new OdmoeError('PROTOCOL_VIOLATION', message);
}
