import assert from 'node:assert/strict';
import { join } from 'node:path';
import protobuf from 'protobufjs';
import { packageRoot } from '../../shared/base/files/package-root.js';
import { MESSAGES_OF_USERS } from '../../shared/wire/wire-numbers.js';
import { codecOf, fromJson, type GoldenMessage, goldenMessages, recordedReleases } from './golden-messages.js';

/** A copy of the number in shared/wire/limits.ts. A change there must be repeated here. */
const TEXT_LIMIT = 4096;
/** Longest message of an error. It is logged, so it must be short whatever the peer has sent. */
const ERROR_TEXT_LIMIT = 400;
/** Messages whose texts are cleaned only when they are shown. */
const MESSAGES_OF_ERRORS = ['Refusal', 'StreamError', 'ExpertFailure'];

const root = new protobuf.Root();
root.resolvePath = (_origin, target) => join(packageRoot(), 'proto', target);
root.loadSync(['worker', 'shadow', 'inference', 'pack'].map((name) => `odmoe/v1/${name}.proto`));
root.resolveAll();

type Message = Record<string, unknown>;

interface Place {
  /** The recorded message that it is in. */
  root: string;
  /** The message that has the field, and the field. */
  message: string;
  field: protobuf.Field;
  /** Decodes the recorded message with another value in the field; undefined: without it. */
  decodeWith(value: unknown): unknown;
}

/** Each field of each message within a recorded one, once. */
function placesOf({ message, json }: GoldenMessage): Place[] {
  const wire = root.lookupType(`odmoe.v1.${message}`);
  const codec = codecOf(message);
  const decode = (changed: Message): unknown =>
    codec.decode(Buffer.from(wire.encode(wire.fromObject(changed)).finish()));
  return fieldsWithin(message, wire, fromJson(json) as Message, decode);
}

function fieldsWithin(
  root: string,
  type: protobuf.Type,
  message: Message,
  decode: (changed: Message) => unknown,
): Place[] {
  return type.fieldsArray.flatMap((field) => {
    const value = message[field.name];
    if (value === undefined || value === null || (Array.isArray(value) && value.length === 0)) return [];
    const [first, ...others] = (field.repeated ? value : [value]) as unknown[];
    const decodeWith = (changed: unknown): unknown => {
      const members = changed === undefined ? others : [changed, ...others];
      return decode({ ...message, [field.name]: field.repeated ? members : changed });
    };
    const place: Place = { root, message: type.name, field, decodeWith };
    const inner = field.resolvedType instanceof protobuf.Type ? field.resolvedType : null;
    return inner === null ? [place] : [place, ...fieldsWithin(root, inner, first as Message, decodeWith)];
  });
}

const PLACES = goldenMessages(recordedReleases().at(-1) ?? '').flatMap(placesOf);

function namesOf(places: readonly Place[]): string[] {
  return [...new Set(places.map(({ message, field }) => `${message}.${field.name}`))];
}

function isRefused(decode: () => unknown, place: Place, what: string): void {
  const name = `${place.message}.${place.field.name}: ${what}`;
  assert.throws(
    decode,
    (thrown: Error & { code?: unknown }) => {
      assert.equal(thrown.code, 'PROTOCOL_VIOLATION', `${name}: ${thrown.message}`);
      assert.ok(thrown.message.length <= ERROR_TEXT_LIMIT, `${name}: ${thrown.message.length} characters of an error`);
      return true;
    },
    `${name} is taken`,
  );
}

describe('a message from a peer', () => {
  it('has every inner message that the .proto file does not call optional', () => {
    const inner = PLACES.filter(({ field }) => field.resolvedType instanceof protobuf.Type && !field.repeated);
    const required = inner.filter(({ field }) => field.partOf === null);
    assert.ok(namesOf(required).length >= 12, namesOf(required).join());
    for (const place of required) isRefused(() => place.decodeWith(undefined), place, 'absent');
    const optional = inner.filter(({ field }) => field.partOf?.isProto3Optional === true);
    assert.ok(namesOf(optional).length >= 8, namesOf(optional).join());
    for (const place of optional) place.decodeWith(undefined);
  });

  it('has a value, where it is one of several alternatives', () => {
    for (const message of [
      'WorkerRequest',
      'WorkerReply',
      'ShadowRequest',
      'ShadowReply',
      'GenerateReply',
      'JoinReply',
    ]) {
      assert.throws(() => codecOf(message).decode(Buffer.alloc(0)), {
        code: 'PROTOCOL_VIOLATION',
        message: /nothing in it/,
      });
    }
  });

  const texts = PLACES.filter(
    ({ root, message, field }) =>
      field.type === 'string' && !MESSAGES_OF_USERS.includes(root) && !MESSAGES_OF_USERS.includes(message),
  );

  it(`has texts of ${TEXT_LIMIT} characters at most, whichever field they are in`, () => {
    assert.ok(namesOf(texts).length >= 25, namesOf(texts).join());
    for (const place of texts) isRefused(() => place.decodeWith('x'.repeat(TEXT_LIMIT + 1)), place, 'a long text');
  });

  it('has no text with terminal controls, except in errors', () => {
    for (const place of texts) {
      for (const control of ['\u001b', '\n', '\u009b', '\u0000', '\u007f']) {
        const decode = (): unknown => place.decodeWith(`a${control}b`);
        if (MESSAGES_OF_ERRORS.includes(place.message)) decode();
        else isRefused(decode, place, JSON.stringify(control));
      }
    }
  });

  it('may hold any text for a user, who cleans it', () => {
    const named = PLACES.filter(({ root, message, field }) => {
      return root === 'StatusReply' && message === 'NodeStatus' && field.type === 'string';
    });
    assert.ok(named.length > 0);
    for (const place of named) place.decodeWith('a\u001bb');
  });

  it(`may have texts of ${TEXT_LIMIT} characters`, () => {
    const free = texts.filter(({ message }) =>
      ['NodeStatus', 'CacheStatus', 'Count', ...MESSAGES_OF_ERRORS].includes(message),
    );
    for (const place of free) place.decodeWith('x'.repeat(TEXT_LIMIT));
  });
});
