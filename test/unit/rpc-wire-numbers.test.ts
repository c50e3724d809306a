import assert from 'node:assert/strict';
import { join } from 'node:path';
import protobuf from 'protobufjs';
import { packageRoot } from '../../shared/base/files/package-root.js';
import { NODE_COUNTS, SHADOW_SERVE, WORKER_SERVE, type MessageCodec } from '../../shared/wire/codecs.js';
import { emptyNodeStatus } from '../../shared/wire/node-status.js';
import {
  CHECKED_ELSEWHERE,
  MESSAGES_OF_USERS,
  NUMBER_BOUNDS,
  type BoundedMessage,
} from '../../shared/wire/wire-numbers.js';

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

const identity = {
  id: 'w',
  role: 'ROLE_WORKER',
  cluster: 'c',
  protocolVersion: 1,
  modelName: 'm',
  packDigest: 'd',
  bootId: 'b',
  address: 'w:1',
  device: 'cpu',
  release: '0',
};
const pass = { sequence: 1, position: 0 };
const rows = [{ sequence: 1, position: 0, rows: 1 }];
const placement = { epoch: 1, workers: [{ id: 'w', address: 'w:1', slots: 1 }], groups: [{ workerIds: ['w'] }] };
const layer = { epoch: 1, pass, rows, layer: 0, experts: [0] };
const pools = { full: 0, compressed: 0, signMantissa: 0, exponent: 0 };
const status = {
  ...emptyNodeStatus({ ...identity, role: 'ROLE_WORKER' }),
  deviceDriverUsedBytes: 1,
  cache: { policy: 'lru', bytes: 0, capacities: pools, kept: pools, hits: pools, misses: 0, packed: 0 },
  hostMemory: { budgetBytes: 0, heldBytes: 0, experts: 0, loads: 0, loadedBytes: 0, filledBytes: 0 },
};
const error = { code: 'INTERNAL', message: '', requestId: 0, epoch: 0 };
const result = { expert: 0, rows: 1, output: new Uint8Array(4) };

/** A message of each kind that one daemon sends to another, with everything in it that it may hold. */
const SAMPLES: readonly { type: string; codec: MessageCodec<unknown>; messages: readonly Message[] }[] = [
  {
    type: 'WorkerRequest',
    codec: WORKER_SERVE.request,
    messages: [
      { placement },
      { prediction: layer },
      { execute: { ...layer, requestId: 1, hiddenSize: 1, dtype: 1, experts: [{ expert: 0 }], hidden: result.output } },
      { release: layer },
      { prospect: { number: 1, placement, sources: [] } },
      { end: { sequence: 1 } },
    ],
  },
  {
    type: 'WorkerReply',
    codec: WORKER_SERVE.reply,
    messages: [
      { result: { requestId: 1, epoch: 1, hiddenSize: 1, dtype: 1, experts: [result] } },
      { error },
      { status },
    ],
  },
  {
    type: 'ShadowRequest',
    codec: SHADOW_SERVE.request,
    messages: [
      { placement },
      { begin: { epoch: 1, sequence: 1, tokenIds: [1], promptTokens: 1, maxPositions: 9, prefixSequence: 1 } },
      { token: { epoch: 1, sequence: 1, position: 1, tokenId: 1 } },
      { cacheRows: { epoch: 1, sequence: 1, layer: 0, position: 0, rows: 1, values: new Uint8Array(4) } },
      { end: { sequence: 1 } },
    ],
  },
  {
    type: 'ShadowReply',
    codec: SHADOW_SERVE.reply,
    messages: [
      { prediction: layer },
      { error },
      { status },
      { draft: { epoch: 1, sequence: 1, position: 1, tokenId: 1 } },
      { prefixKept: { sequence: 1, positions: 1 } },
    ],
  },
  { type: 'CountsReply', codec: NODE_COUNTS.reply, messages: [{ counts: [{ name: 'living timer', count: 1 }] }] },
];

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

const FIELDS = SAMPLES.flatMap(({ type, codec, messages: samples }) => {
  const wire = root.lookupType(`odmoe.v1.${type}`);
  const decode = (message: Message): unknown =>
    codec.decode(Buffer.from(wire.encode(wire.fromObject(message)).finish()));
  return samples.flatMap((sample) =>
    boundedFields(wire, sample, (message) => message).map((field) => ({ ...field, decode, within: type })),
  );
});

describe('numbers of messages between daemons', () => {
  it('each number of the wire has a bound, or a place that checks it, and no table names a field that is not there', () => {
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

  it('each number with a bound is in one of the messages that are tried here', () => {
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
