/**
 * Checks the texts of a message before it is decoded. proto3 wants UTF-8, but protobufjs puts U+FFFD in place of wrong bytes and
 * reads a text that is cut short as a shorter one: neither could be told from what was sent.
 */
import { isUtf8 } from 'node:buffer';
import type { PackageDefinition } from '@grpc/proto-loader';
import { OdmoeError } from '../errors/odmoe-error.js';
import { FieldReader, WIRE_LENGTH_DELIMITED } from './wire-format.js';

/** A message's fields that are texts or hold texts, by their numbers. */
export interface TextFields {
  readonly message: string;
  readonly fields: ReadonlyMap<number, { name: string; inner: TextFields | null }>;
}

/** What proto-loader tells of a field. */
interface DescribedField {
  name: string;
  number: number;
  type: string;
  typeName: string;
}

/** The text fields of a message that proto-loader has read. No message of odmoe.v1 holds one of its own kind. */
export function textFieldsOf(definitions: PackageDefinition, message: string): TextFields {
  const fields = new Map<number, { name: string; inner: TextFields | null }>();
  for (const { name, number, type, typeName } of describedFields(definitions, message)) {
    if (type === 'TYPE_STRING') fields.set(number, { name, inner: null });
    if (type !== 'TYPE_MESSAGE') continue;
    const inner = textFieldsOf(definitions, typeName);
    fields.set(number, { name, inner });
  }
  return { message, fields };
}

function describedFields(definitions: PackageDefinition, message: string): DescribedField[] {
  const definition = definitions[`odmoe.v1.${message}`];
  if (definition === undefined || !('type' in definition)) {
    throw new OdmoeError('INTERNAL', `proto/odmoe/v1 has no message ${message}`);
  }
  return (definition.type as { field: DescribedField[] }).field;
}

/** Throws PROTOCOL_VIOLATION when a text is not UTF-8, or is longer than the bytes that came. */
export function requireWholeTexts(bytes: Buffer, { message, fields }: TextFields): void {
  const reader = new FieldReader(bytes, 0, bytes.length);
  while (!reader.done) {
    const tag = reader.uint32();
    const field = fields.get(tag >>> 3);
    if (field === undefined) {
      reader.skip(tag & 7);
      continue;
    }
    if ((tag & 7) !== WIRE_LENGTH_DELIMITED) {
      throw violation(`${field.name} of a ${message} has the wire type ${tag & 7} and not that of a text or message`);
    }
    const value = reader.lengthDelimited();
    if (field.inner !== null) requireWholeTexts(value, field.inner);
    else if (!isUtf8(value)) throw violation(`${field.name} of a ${message} is not UTF-8`);
  }
}

function violation(message: string): OdmoeError {
  return new OdmoeError('PROTOCOL_VIOLATION', message);
}
