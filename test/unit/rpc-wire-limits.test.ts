import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { loadSync } from '@grpc/proto-loader';
import { packageRoot } from '../../shared/base/files/package-root.js';
import { type MessageCodec } from '../../shared/wire/codecs.js';
import { WIRE_CODECS } from './golden-messages.js';
import { MESSAGE_SIZE_LIMIT_BYTES, PLAIN_MESSAGE_LIMIT_BYTES } from '../../shared/wire/limits.js';
import { tagOf, WIRE_LENGTH_DELIMITED, WIRE_VARINT } from '../../shared/wire/wire-format.js';
import {
  ASKED_MESSAGES_LIMIT,
  INNER_MESSAGES_LIMIT,
  LIST_LIMITS,
  LONG_MESSAGES,
  SPARE_FIELDS_LIMIT,
} from '../../shared/wire/wire-limits.js';
import { type MessageOutline, type OutlinedField, outlineOf } from '../../shared/wire/wire-outline.js';
import { METHODS } from '../../shared/transport/methods.js';

const PROTO = join(packageRoot(), 'proto', 'odmoe', 'v1');
const FILES = readdirSync(PROTO);
const definitions = loadSync(
  FILES.map((name) => `odmoe/v1/${name}`),
  { includeDirs: [join(packageRoot(), 'proto')] },
);

function varint(value: number): Buffer {
  const bytes: number[] = [];
  for (let rest = value; ; rest = Math.floor(rest / 128)) {
    bytes.push(rest < 128 ? rest : (rest % 128) | 128);
    if (rest < 128) return Buffer.from(bytes);
  }
}

function times(bytes: Uint8Array, count: number): Buffer {
  return Buffer.alloc(bytes.length * count, bytes);
}

function delimited(number: number, content: Uint8Array): Buffer {
  return Buffer.concat([varint(number * 8 + WIRE_LENGTH_DELIMITED), varint(content.length), content]);
}

interface Place {
  /** Field numbers that lead to the message with the field, from the outermost message. */
  around: readonly number[];
  outline: MessageOutline;
  number: number;
  field: OutlinedField;
}

function placesOf(outline: MessageOutline, around: readonly number[] = []): Place[] {
  return outline.fields.flatMap((field, number) => {
    if (field === undefined) return [];
    const within = field.inner === null ? [] : placesOf(field.inner, [...around, number]);
    return [{ around, outline, number, field }, ...within];
  });
}

const PLACES = WIRE_CODECS.map(([name, codec]) => ({ name, codec, places: placesOf(outlineOf(definitions, name)) }));

function within({ around }: Place, content: Uint8Array): Buffer {
  return around.reduceRight((inner: Uint8Array, number) => delimited(number, inner), content) as Buffer;
}

function elements({ number, field }: Place, count: number): Buffer {
  const one =
    field.wireType === WIRE_VARINT
      ? Buffer.concat([varint(number * 8 + WIRE_VARINT), Buffer.from([0])])
      : delimited(number, Buffer.alloc(0));
  return times(one, count);
}

function refusalOf(codec: MessageCodec<unknown>, bytes: Buffer): { code: string; message: string } {
  try {
    codec.decode(bytes);
  } catch (thrown) {
    assert.ok(thrown instanceof Error && 'code' in thrown, String(thrown));
    return { code: String(thrown.code), message: thrown.message };
  }
  return { code: '', message: 'it was taken' };
}

describe('the wire limits of a message', () => {
  it('exist for every list of proto/odmoe/v1, and for nothing else', () => {
    const lists = FILES.flatMap((name) => {
      const text = readFileSync(join(PROTO, name), 'utf8').replace(/\/\/.*/g, '');
      return [...text.matchAll(/message (\w+) \{((?:[^{}]|\{[^{}]*\})*)\}/g)].flatMap(([, message, body]) =>
        [...(body ?? '').matchAll(/repeated [\w.]+ (\w+) =/g)].map(([, field]) => `${message}.${field}`),
      );
    });
    assert.deepEqual(Object.keys(LIST_LIMITS).sort(), [...new Set(lists)].sort());
    const messages = new Set(PLACES.flatMap(({ places }) => places.map(({ outline }) => outline.message)));
    for (const message of Object.keys(LONG_MESSAGES)) assert.ok(messages.has(message), message);
  });

  it('are checked before decoding: one element too many of any list is refused, wherever the list stands', () => {
    let tried = 0;
    for (const { name, codec, places } of PLACES) {
      for (const place of places) {
        const { limit, name: field } = place.field;
        if (limit === null) continue;
        tried += 1;
        const refusal = refusalOf(codec, within(place, elements(place, limit + 1)));
        // A list of millions of single numbers is too long as a message first.
        const words = /at most \d+ are taken$/;
        assert.match(refusal.message, words, `${name}: ${place.outline.message}.${field}`);
        const asked = name === 'GenerateRequest' ? /^REQUEST_(INVALID|TOO_LARGE)$/ : /^PROTOCOL_VIOLATION$/;
        assert.match(refusal.code, asked);
        if (limit <= 65_536) {
          assert.ok(refusal.message.startsWith(`${field} of a ${place.outline.message} has ${limit + 1} entries`));
          const taken = refusalOf(codec, within(place, elements(place, limit)));
          assert.doesNotMatch(taken.message, words, `${name}: ${place.outline.message}.${field} at its limit`);
        }
        if (place.field.wireType !== WIRE_VARINT) continue;
        const packed = delimited(place.number, Buffer.alloc(limit + 1));
        assert.match(refusalOf(codec, within(place, packed)).message, words);
      }
    }
    assert.ok(tried > 40, `${tried} lists`);
  });

  it('count bytes beside those of tensors', () => {
    const tooLong = Buffer.alloc(PLAIN_MESSAGE_LIMIT_BYTES + 1, 'a');
    for (const { name, codec, places } of PLACES) {
      for (const place of places) {
        if (place.field.kind !== 'text' && place.field.kind !== 'bytes') continue;
        const above = [name, ...namesOf(name, place.around)];
        const isLong = above.some((message) => message in LONG_MESSAGES);
        const { message } = refusalOf(codec, within(place, delimited(place.number, tooLong)));
        assert.equal(/ has \d+ bytes; at most \d+ are taken$/.test(message), !isLong, `${above.join('.')}: ${message}`);
      }
    }
    const most = Math.max(...Object.values(LONG_MESSAGES));
    assert.ok(most <= MESSAGE_SIZE_LIMIT_BYTES);
  });

  it('count messages within messages together', () => {
    const call = delimited(3, Buffer.alloc(0));
    const message = delimited(2, times(call, 100));
    const many = times(message, Math.ceil(ASKED_MESSAGES_LIMIT / 100));
    assert.match(refusalOf(METHODS.inference.generate.request, many).message, /holds more than 32768 messages$/);
    const tokens = delimited(2, times(delimited(2, Buffer.alloc(0)), 1024));
    const pieces = delimited(4, delimited(4, times(tokens, 64)));
    assert.doesNotMatch(refusalOf(METHODS.inference.generate.reply, pieces).message, /holds more than/);
    assert.ok(INNER_MESSAGES_LIMIT > 64 * 1025);
  });

  it('bound repeated fields that are no lists, and unknown fields', () => {
    for (const { codec, name } of PLACES) {
      const unknown = times(Buffer.from([...varint(4000 * 8), 1]), 200);
      assert.match(
        refusalOf(codec, unknown).message,
        new RegExp(`holds more than ${SPARE_FIELDS_LIMIT} fields too many`),
        name,
      );
    }
    const hello = delimited(1, Buffer.alloc(0));
    const again = times(hello, 200);
    assert.match(refusalOf(METHODS.worker.serve.request, again).message, /fields too many/);
  });

  it('refuse input that the decoder would read from another place, so that all of its input is counted', () => {
    const hidden = times(delimited(2, Buffer.alloc(0)), 10_000);
    const behind: [string, Buffer][] = [
      ['a flag that comes as a text', delimited(4, hidden)],
      [
        'a number of 32 bits in seven bytes',
        Buffer.concat([Buffer.from([5 << 3, 128, 128, 128, 128, 128, 128, 0]), hidden]),
      ],
      ['a tag of seven bytes', Buffer.concat([Buffer.from([0x80, 128, 128, 128, 128, 128, 0]), hidden])],
      ['a group', Buffer.concat([Buffer.from([tagOf(2, 3)]), hidden])],
      ['a text that comes as a number', Buffer.concat([Buffer.from([tagOf(1, WIRE_VARINT), 1]), hidden])],
    ];
    for (const [what, bytes] of behind) {
      const { code } = refusalOf(METHODS.inference.generate.request, bytes);
      assert.equal(code, 'PROTOCOL_VIOLATION', what);
    }
  });
});

/** Names of the messages on the path of these field numbers. */
function namesOf(root: string, around: readonly number[]): string[] {
  let outline: MessageOutline | null = outlineOf(definitions, root);
  return around.map((number) => {
    outline = outline?.fields[number]?.inner ?? null;
    return outline?.message ?? '';
  });
}
