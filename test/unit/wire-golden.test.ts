import assert from 'node:assert/strict';
import { join } from 'node:path';
import protobuf from 'protobufjs';
import { OLDEST_PROTOCOL } from '../../shared/wire/limits.js';
import { packageRoot } from '../../shared/base/files/package-root.js';
import {
  codecOf,
  fromJson,
  type GoldenMessage,
  goldenMessages,
  type JsonValue,
  recordedReleases,
  toJson,
} from './golden-messages.js';

const root = new protobuf.Root();
root.resolvePath = (_origin, target) => join(packageRoot(), 'proto', target);
root.loadSync(['worker', 'shadow', 'inference', 'pack'].map((name) => `odmoe/v1/${name}.proto`));
root.resolveAll();
const namespace = root.lookup('odmoe.v1') as protobuf.Namespace;

/** Names of the .proto files that occur in a release's messages: 'Message', 'Message.field', 'Enum.VALUE'. */
class Shown {
  readonly #names = new Set<string>();

  has(name: string): boolean {
    return this.#names.has(name);
  }

  message(type: protobuf.Type, json: JsonValue): void {
    this.#names.add(type.name);
    for (const [name, value] of Object.entries(json as Record<string, JsonValue>)) {
      const field = type.fields[name];
      if (field !== undefined) this.#field(type, field, value);
      else assert.ok(name in type.oneofs, `${type.name} has no field ${name}`);
    }
  }

  #field(type: protobuf.Type, field: protobuf.Field, value: JsonValue): void {
    const members = field.repeated ? (value as JsonValue[]) : [value];
    for (const member of members) {
      if (field.resolvedType instanceof protobuf.Type && member !== null) this.message(field.resolvedType, member);
      if (field.resolvedType instanceof protobuf.Enum)
        this.#names.add(`${field.resolvedType.name}.${member as string}`);
    }
    const isSet = field.repeated ? members.length > 1 : !isDefault(value);
    if (isSet) this.#names.add(`${type.name}.${field.name}`);
  }
}

function isDefault(value: JsonValue): boolean {
  const noBytes = typeof value === 'object' && value !== null && 'hex' in value && value.hex === '';
  return noBytes || value === null || value === 0 || value === '' || value === false;
}

/** All names of the .proto files, without the values of enums that mean nothing. */
function declaredNames(): string[] {
  return namespace.nestedArray.flatMap((nested) => {
    if (nested instanceof protobuf.Type) {
      return [nested.name, ...nested.fieldsArray.map((field) => `${nested.name}.${field.name}`)];
    }
    if (!(nested instanceof protobuf.Enum)) return [];
    const values = Object.entries(nested.values).filter(([, number]) => number !== 0);
    return values.map(([name]) => `${nested.name}.${name}`);
  });
}

function titleOf({ message, json }: GoldenMessage): string {
  const { kind } = json as { kind?: string };
  return kind === undefined ? message : `${message} with ${kind}`;
}

const current = recordedReleases().at(-1) ?? 'none';
const golden = goldenMessages(current);

describe(`the wire of release ${current}`, () => {
  it('has a recorded message for each type, each field with a value and each value of an enum', () => {
    const shown = new Shown();
    for (const { message, json } of golden) shown.message(root.lookupType(`odmoe.v1.${message}`), json);
    assert.deepEqual(
      declaredNames().filter((name) => !shown.has(name)),
      [],
      'give them values in test/fixtures/wire and run record.mjs there (a list needs two members)',
    );
  });

  for (const [index, recorded] of golden.entries()) {
    it(`${titleOf(recorded)} (${index}) has the recorded bytes when it is encoded, and the recorded values when it is decoded`, () => {
      const codec = codecOf(recorded.message);
      assert.equal(codec.encode(fromJson(recorded.json)).toString('base64'), recorded.base64);
      assert.deepEqual(toJson(codec.decode(Buffer.from(recorded.base64, 'base64'))), recorded.json);
    });
  }
});

describe('messages of a later release', () => {
  /** Fields 4001 and 4002, which nobody knows: a text, and a number. The last byte of the text would end a message if it were read as a tag. */
  const unknown = Buffer.concat([lengthDelimited(4001, Buffer.from('exact')), Buffer.from([0x90, 0xfa, 0x01, 0x07])]);

  for (const [index, { message, json, base64 }] of golden.entries()) {
    it(`${titleOf({ message, json, base64 })} (${index}) is read without the fields that this release does not know`, () => {
      const bytes = Buffer.from(base64, 'base64');
      for (const longer of [Buffer.concat([bytes, unknown]), Buffer.concat([unknown, bytes])]) {
        assert.deepEqual(toJson(codecOf(message).decode(longer)), json);
      }
    });
  }
});

/** A field of a message: its tag in three bytes, its length in one. */
function lengthDelimited(number: number, content: Buffer): Buffer {
  const tag = number * 8 + 2;
  assert.ok(tag >= 128 ** 2 && tag < 128 ** 3 && content.length < 128);
  return Buffer.concat([
    Buffer.from([(tag & 127) | 128, ((tag >> 7) & 127) | 128, tag >> 14, content.length]),
    content,
  ]);
}

describe('the wire of release 0.2, which this release still speaks,', () => {
  const released = goldenMessages('0.2');

  for (const [index, recorded] of released.entries()) {
    it(`${titleOf(recorded)} (${index}): this release sends the recorded bytes, and reads the recorded values`, () => {
      const codec = codecOf(recorded.message);
      assert.equal(codec.encode(fromJson(recorded.json)).toString('base64'), recorded.base64);
      const read = toJson(codec.decode(Buffer.from(recorded.base64, 'base64')));
      // The reading has the fields of later releases, too.
      assert.deepEqual(onlyFieldsOf(recorded.json, read), recorded.json);
    });
  }

  it('has the protocol that this release names as its oldest', () => {
    const identities = released.flatMap(({ json }) => JSON.stringify(json).match(/"protocolVersion":\d+/g) ?? []);
    assert.deepEqual([...new Set(identities)], [`"protocolVersion":${OLDEST_PROTOCOL}`]);
  });
});

/** `value` without the fields that `known` lacks, at every depth. */
function onlyFieldsOf(known: JsonValue, value: JsonValue): JsonValue {
  if (Array.isArray(known) && Array.isArray(value)) {
    return value.map((member, index) => onlyFieldsOf(known[index] ?? null, member));
  }
  if (!isFields(known) || !isFields(value)) return value;
  const kept = Object.entries(value).filter(([name]) => name in known);
  return Object.fromEntries(kept.map(([name, field]) => [name, onlyFieldsOf(known[name] ?? null, field)]));
}

function isFields(json: JsonValue): json is Record<string, JsonValue> {
  return json !== null && typeof json === 'object' && !Array.isArray(json);
}

describe('the wire of release 0.1, with another protocol,', () => {
  const greeting = goldenMessages('0.1').filter(({ json }) => {
    return ['hello', 'welcome', 'refusal'].includes(String((json as { kind?: string }).kind));
  });

  it('is understood as far as its greeting, so that both sides can explain the refusal', () => {
    assert.ok(greeting.length >= 8, `${greeting.length} messages`);
    for (const { message, json, base64 } of greeting) {
      const decoded = toJson(codecOf(message).decode(Buffer.from(base64, 'base64')));
      assert.deepEqual(withoutEmptyFields(decoded), withoutEmptyFields(json));
    }
  });
});

/** Texts and numbers that a later release added are empty in a message of an earlier one. */
function withoutEmptyFields(json: JsonValue): JsonValue {
  if (json === null || typeof json !== 'object') return json;
  if (Array.isArray(json)) return json.map(withoutEmptyFields);
  const kept = Object.entries(json).filter(([, value]) => value !== '' && value !== 0);
  return Object.fromEntries(kept.map(([name, value]) => [name, withoutEmptyFields(value)]));
}
