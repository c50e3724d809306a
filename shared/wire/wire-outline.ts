/** The description of a message for the walk over its bytes: its fields by their numbers, as proto-loader has read them. */
import type { PackageDefinition } from '@grpc/proto-loader';
import { OdmoeError } from '../base/errors/odmoe-error.js';
import { LIST_LIMITS, LONG_MESSAGES } from './wire-limits.js';
import { WIRE_FIXED32, WIRE_FIXED64, WIRE_LENGTH_DELIMITED, WIRE_VARINT } from './wire-format.js';

export interface OutlinedField {
  readonly name: string;
  readonly kind: 'text' | 'bytes' | 'message' | 'number';
  /** Wire type of the field. Numbers of a list may also come packed. */
  readonly wireType: number;
  /** A varint of 64 bits. */
  readonly isLong: boolean;
  /** Most elements of the list; null: the field is not a list. */
  readonly limit: number | null;
  /** Place among the lists of its message; 0 if it is not a list. */
  readonly place: number;
  /** Outline of the inner message; null: the field holds no message. */
  readonly inner: MessageOutline | null;
}

export interface MessageOutline {
  readonly message: string;
  /** Fields by their numbers. */
  readonly fields: readonly (OutlinedField | undefined)[];
  readonly fieldCount: number;
  readonly lists: number;
  /** Most bytes of the message if it may be long; null: the usual limit. */
  readonly bytesLimit: number | null;
}

/** Description of a field by proto-loader. */
export interface DescribedField {
  name: string;
  number: number;
  type: string;
  typeName: string;
  label: string;
}

/** Outlines of a message and of all messages within it. No message of odmoe.v1 contains itself. */
export function outlineOf(definitions: PackageDefinition, message: string): MessageOutline {
  const fields: (OutlinedField | undefined)[] = [];
  const described = describedFields(definitions, message);
  let lists = 0;
  for (const { name, number, type, typeName, label } of described) {
    const isList = label === 'LABEL_REPEATED';
    const wireName = name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
    fields[number] = {
      name: wireName,
      kind: KINDS[type] ?? 'number',
      wireType: wireTypeOf(type),
      isLong: LONG_TYPES.has(type),
      limit: isList ? limitOf(`${message}.${wireName}`) : null,
      place: isList ? lists++ : 0,
      inner: type === 'TYPE_MESSAGE' ? outlineOf(definitions, typeName) : null,
    };
  }
  return { message, fields, fieldCount: described.length, lists, bytesLimit: LONG_MESSAGES[message] ?? null };
}

const KINDS: Readonly<Record<string, OutlinedField['kind']>> = {
  TYPE_STRING: 'text',
  TYPE_BYTES: 'bytes',
  TYPE_MESSAGE: 'message',
};

const LONG_TYPES: ReadonlySet<string> = new Set(['TYPE_INT64', 'TYPE_UINT64', 'TYPE_SINT64']);
const FIXED64_TYPES: ReadonlySet<string> = new Set(['TYPE_DOUBLE', 'TYPE_FIXED64', 'TYPE_SFIXED64']);
const FIXED32_TYPES: ReadonlySet<string> = new Set(['TYPE_FLOAT', 'TYPE_FIXED32', 'TYPE_SFIXED32']);

function wireTypeOf(type: string): number {
  if (type in KINDS) return WIRE_LENGTH_DELIMITED;
  if (FIXED64_TYPES.has(type)) return WIRE_FIXED64;
  return FIXED32_TYPES.has(type) ? WIRE_FIXED32 : WIRE_VARINT;
}

function limitOf(list: string): number {
  const limit = LIST_LIMITS[list];
  if (limit !== undefined) return limit;
  throw new OdmoeError(
    'INTERNAL',
    `nothing says how many elements ${list} may have; add it to shared/wire/wire-limits.ts`,
  );
}

export function describedFields(definitions: PackageDefinition, message: string): readonly DescribedField[] {
  return describedMessage(definitions, message).field;
}

/** Names of the message's oneofs: `kind`, and `_seed` for an optional field `seed`. */
export function oneofsOf(definitions: PackageDefinition, message: string): string[] {
  return describedMessage(definitions, message).oneofDecl.map(({ name }) => name);
}

interface DescribedMessage {
  field: DescribedField[];
  oneofDecl: { name: string }[];
}

function describedMessage(definitions: PackageDefinition, message: string): DescribedMessage {
  const definition = definitions[`odmoe.v1.${message}`];
  if (definition === undefined || !('type' in definition)) {
    throw new OdmoeError('INTERNAL', `proto/odmoe/v1 has no message ${message}`);
  }
  return definition.type as unknown as DescribedMessage;
}
