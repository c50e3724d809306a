import assert from 'node:assert/strict';
import { join } from 'node:path';
import protobuf from 'protobufjs';
import { packageRoot } from '../../shared/base/files/package-root.js';
import {
  CHECKED_ELSEWHERE,
  MESSAGES_OF_USERS,
  NUMBER_BOUNDS,
  type BoundedMessage,
} from '../../shared/wire/wire-numbers.js';
import { codecOf, fromJson, type GoldenMessage, goldenMessages, recordedReleases } from './golden-messages.js';

const NUMBER_TYPES = [
  'uint32',
  'uint64',
  'double',
  'int32',
  'int64',
  'float',
  'sint32',
  'sint64',
  'fixed32',
  'fixed64',
];

const root = new protobuf.Root();
root.resolvePath = (_origin, target) => join(packageRoot(), 'proto', target);
root.loadSync(['worker', 'shadow', 'inference', 'pack'].map((name) => `odmoe/v1/${name}.proto`));
root.resolveAll();
const namespace = root.lookup('odmoe.v1');
assert.ok(namespace instanceof protobuf.Namespace);
const messages = namespace.nestedArray.filter((nested) => nested instanceof protobuf.Type);

type Message = Record<string, unknown>;

interface BoundedField {
  name: string;
  kind: string;
  field: string;
  most: number;
  /** The message with another value in that field. */
  withValue: (value: number | string) => Message;
}

/** Every number with a bound in the message, wherever it stands. */
function boundedFields(type: protobuf.Type, message: Message, within: (inner: Message) => Message): BoundedField[] {
  const bounds: Record<string, number> = NUMBER_BOUNDS[type.name as BoundedMessage] ?? {};
  const own = Object.entries(bounds).map(([field, most]): BoundedField => {
    const withValue = (value: number | string): Message => within({ ...message, [field]: value });
    return { name: `${type.name}.${field}`, kind: type.fields[field]?.type ?? '', field, most, withValue };
  });
  const inner = type.fieldsArray.flatMap((field) => {
    const value = message[field.name];
    const inside = field.resolvedType;
    if (!(inside instanceof protobuf.Type) || value === undefined || value === null) return [];
    if (!Array.isArray(value))
      return boundedFields(inside, value as Message, (changed) => within({ ...message, [field.name]: changed }));
    const [first, ...others] = value as readonly Message[];
    if (first === undefined) return [];
    return boundedFields(inside, first, (changed) => within({ ...message, [field.name]: [changed, ...others] }));
  });
  return [...own, ...inner];
}

/** Each bounded field once, in a recorded message. */
const FIELDS = [...new Map(goldenMessages(recordedReleases().at(-1) ?? '').flatMap(fieldsOf)).values()];

function fieldsOf({
  message: within,
  json,
}: GoldenMessage): [string, BoundedField & { within: string; decode: (message: Message) => unknown }][] {
  const wire = root.lookupType(`odmoe.v1.${within}`);
  const codec = codecOf(within);
  const decode = (message: Message): unknown =>
    codec.decode(Buffer.from(wire.encode(wire.fromObject(message)).finish()));
  return boundedFields(wire, fromJson(json) as Message, (message) => message).map((field) => [
    `${within} ${field.name}`,
    { ...field, decode, within },
  ]);
}

describe('numbers in messages between daemons:', () => {
  it('each has a bound, or a listed check, and no table names a missing field', () => {
    const ofWire = messages
      .filter(({ name }) => !MESSAGES_OF_USERS.includes(name))
      .flatMap(({ name, fieldsArray }) =>
        fieldsArray.filter(({ type }) => NUMBER_TYPES.includes(type)).map((field) => `${name}.${field.name}`),
      );
    const tables: Record<string, Record<string, unknown>>[] = [NUMBER_BOUNDS, CHECKED_ELSEWHERE];
    const inTables = tables.flatMap((table) =>
      Object.entries(table).flatMap(([name, fields]) => Object.keys(fields).map((field) => `${name}.${field}`)),
    );
    assert.deepEqual(inTables.sort(), ofWire.sort());
    const known = new Set(messages.map(({ name }) => name));
    assert.deepEqual(
      MESSAGES_OF_USERS.filter((name) => !known.has(name)),
      [],
    );
  });

  it('each one with a bound is in one of the messages of this test', () => {
    const bounded = Object.entries(NUMBER_BOUNDS).flatMap(([name, fields]) =>
      Object.keys(fields).map((field) => `${name}.${field}`),
    );
    assert.deepEqual([...new Set(FIELDS.map(({ name }) => name))].sort(), bounded.sort());
  });

  for (const { name, field, within, kind, most, withValue, decode } of FIELDS) {
    it(`${name} in a ${within}: ${most} is taken, and nothing above it`, () => {
      decode(withValue(String(most)));
      const wrong: (number | string)[] =
        kind === 'double' ? [NaN, Infinity, -1, most * 2] : [String(BigInt(most) * 2n)];
      const named = new RegExp(`^${field} of `);
      for (const value of wrong)
        assert.throws(() => decode(withValue(value)), { code: 'PROTOCOL_VIOLATION', message: named }, String(value));
    });
  }
});
