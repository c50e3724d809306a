/** Messages, as bytes, that hold far more of something than is allowed. Pure, except that it reads the proto files. */
import { loadSync } from '@grpc/proto-loader';
import { join } from 'node:path';
import { packageRoot } from '../../shared/base/files/package-root.js';
import {
  MessageWriter,
  tagOf,
  WIRE_FIXED64,
  WIRE_LENGTH_DELIMITED,
  WIRE_VARINT,
} from '../../shared/wire/wire-format.js';
import { type MessageOutline, type OutlinedField, outlineOf } from '../../shared/wire/wire-outline.js';

const FILES = ['node', 'placement', 'worker', 'shadow', 'inference'].map((name) => `odmoe/v1/${name}.proto`);

/** A list within a message of the protocol. */
export interface ListPlace {
  /** For example "execute.experts". */
  name: string;
  /** Numbers of the enclosing fields, from the outermost, and its own number. */
  path: readonly number[];
  field: OutlinedField;
}

/** All lists of a message and of the messages within it, in this version of the protocol. */
export function listsOf(message: string): ListPlace[] {
  const definitions = loadSync(FILES, { includeDirs: [join(packageRoot(), 'proto')] });
  return listsWithin(outlineOf(definitions, message), [], []);
}

function listsWithin({ fields }: MessageOutline, names: readonly string[], path: readonly number[]): ListPlace[] {
  return fields.flatMap((field, number) => {
    if (field === undefined) return [];
    const place = { name: [...names, field.name].join('.'), path: [...path, number], field };
    const own = field.limit === null ? [] : [place];
    const inner = field.inner === null ? [] : listsWithin(field.inner, [...names, field.name], place.path);
    return [...own, ...inner];
  });
}

/** A message whose one list has `count` elements: empty ones, or ones of one byte. */
export function withElements({ path, field }: ListPlace, count: number): Buffer {
  const around = path.slice(0, -1);
  const own = path.at(-1) ?? 0;
  const elements =
    field.kind === 'number' ? packedNumbers(own, field, count) : repeated(tagOf(own, WIRE_LENGTH_DELIMITED), count);
  return around.reduceRight((content, number) => new MessageWriter().bytes(number, content).encode(), elements);
}

/** A message in which the field occurs `count` times, empty each time. */
export function repeatedField(field: number, count: number): Buffer {
  return repeated(tagOf(field, WIRE_LENGTH_DELIMITED), count);
}

function repeated(tag: number, count: number): Buffer {
  return Buffer.alloc(count * 2, Buffer.from([tag, 0]));
}

function packedNumbers(number: number, { wireType }: OutlinedField, count: number): Buffer {
  const bytes = wireType === WIRE_VARINT ? count : count * (wireType === WIRE_FIXED64 ? 8 : 4);
  return new MessageWriter().bytes(number, Buffer.alloc(bytes, 1)).encode();
}
