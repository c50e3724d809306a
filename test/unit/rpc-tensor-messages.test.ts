import assert from 'node:assert/strict';
import { join } from 'node:path';
import fc from 'fast-check';
import protobuf from 'protobufjs';
import { packageRoot } from '../../shared/base/files/package-root.js';
import type { Execute, ExecuteResult, ExpertResult, TensorType } from '../../shared/wire/messages.js';
import {
  decodeExecuteRequest,
  decodeResultReply,
  encodeExecuteRequest,
  encodeResultReply,
} from '../../shared/wire/tensor-messages.js';
import { plainExecute } from './wire-messages.js';

const root = new protobuf.Root();
root.resolvePath = (_origin, target) => join(packageRoot(), 'proto', target);
root.loadSync(['odmoe/v1/worker.proto']);
const WorkerRequestType = root.lookupType('odmoe.v1.WorkerRequest');
const WorkerReplyType = root.lookupType('odmoe.v1.WorkerReply');

const AS_OURS = { longs: Number, enums: String, defaults: true, arrays: true } as const;

const uint32 = fc.nat({ max: 2 ** 32 - 1 });
const safe = fc.maxSafeNat();
const tensorType = fc.constantFrom<TensorType>('TENSOR_TYPE_UNSPECIFIED', 'TENSOR_TYPE_F32', 'TENSOR_TYPE_BF16');
const bytes = fc.uint8Array({ maxLength: 700 });
const rowRange = fc.record({ sequence: safe, position: uint32, rows: uint32 });
const executes: fc.Arbitrary<Execute> = fc.record({
  requestId: safe,
  epoch: safe,
  pass: fc.record({ sequence: safe, position: uint32 }),
  rows: fc.array(rowRange, { maxLength: 3 }),
  layer: uint32,
  hiddenSize: uint32,
  dtype: tensorType,
  hidden: bytes,
  experts: fc.array(
    fc.record({
      expert: uint32,
      rows: fc.array(uint32, { maxLength: 5 }),
      last: fc.boolean(),
      upper: fc.array(uint32, { maxLength: 5 }),
    }),
    { maxLength: 4 },
  ),
});
const expertResults: fc.Arbitrary<ExpertResult> = fc.record({
  expert: uint32,
  rows: uint32,
  wasLoaded: fc.boolean(),
  stallUs: uint32,
  executeUs: uint32,
  loadUs: uint32,
  loadedBeforeUs: uint32,
  begunUs: uint32,
  answeredUs: uint32,
  calledUs: uint32,
  endedUs: uint32,
  output: bytes,
  failure: fc.option(fc.record({ code: fc.string(), message: fc.string({ unit: 'grapheme' }) })),
});
const parts = fc.record({
  requestId: safe,
  epoch: safe,
  hiddenSize: uint32,
  dtype: tensorType,
  experts: fc.array(expertResults, { maxLength: 4 }),
  last: fc.boolean(),
});
const kept = fc.option(fc.record({ experts: fc.array(uint32, { maxLength: 4 }) }));
const results: fc.Arbitrary<ExecuteResult> = fc
  .tuple(parts, kept)
  .map(([part, experts]) => ({ ...part, kept: experts }));

/** A message with its tensors as plain arrays, so that views of different kinds compare, and without what is null. */
function comparable(message: unknown): unknown {
  if (message instanceof Uint8Array) return Array.from(message);
  if (Array.isArray(message)) return message.map(comparable);
  if (message === null || typeof message !== 'object') return message;
  const entries = Object.entries(message).filter(([, value]) => value !== null);
  return Object.fromEntries(entries.map(([name, value]) => [name, comparable(value)]));
}

function member(type: protobuf.Type, encoded: Uint8Array, name: string): unknown {
  const object = type.toObject(type.decode(encoded), AS_OURS) as Record<string, object>;
  return comparable(object[name]);
}

describe('the hand-written encoding of Execute and ExecuteResult', () => {
  it('is read by protobufjs as the written message', () => {
    fc.assert(
      fc.property(executes, (execute) => {
        assert.deepEqual(member(WorkerRequestType, encodeExecuteRequest(execute), 'execute'), comparable(execute));
      }),
    );
    fc.assert(
      fc.property(results, (result) => {
        assert.deepEqual(member(WorkerReplyType, encodeResultReply(result), 'result'), comparable(result));
      }),
    );
  });

  it('reads the output of protobufjs', () => {
    fc.assert(
      fc.property(executes, (execute) => {
        const encoded = WorkerRequestType.encode(WorkerRequestType.fromObject({ execute })).finish();
        assert.deepEqual(comparable(decodeExecuteRequest(Buffer.from(encoded))), comparable(execute));
      }),
    );
    fc.assert(
      fc.property(results, (result) => {
        const encoded = WorkerReplyType.encode(WorkerReplyType.fromObject({ result })).finish();
        assert.deepEqual(comparable(decodeResultReply(Buffer.from(encoded))), comparable(result));
      }),
    );
  });

  it('takes no more bytes than the encoding of protobufjs', () => {
    const execute: Execute = {
      requestId: 300,
      epoch: 2,
      layer: 5,
      hiddenSize: 128,
      dtype: 'TENSOR_TYPE_BF16',
      pass: { sequence: 2 ** 40, position: 4 },
      rows: [
        { sequence: 2 ** 40, position: 4, rows: 2 },
        { sequence: 9, position: 300, rows: 1 },
      ],
      experts: [
        { expert: 6, rows: [0, 2], last: true, upper: [1] },
        { expert: 0, rows: [], last: false, upper: [] },
      ],
      hidden: Uint8Array.of(1, 2, 3),
    };
    const theirs = WorkerRequestType.decode(encodeExecuteRequest(execute));
    const reencoded = WorkerRequestType.encode(theirs).finish();
    const ours = encodeExecuteRequest(execute);
    assert.equal(ours.length, reencoded.length);
    assert.deepEqual(comparable(decodeExecuteRequest(Buffer.from(reencoded))), comparable(execute));
  });

  it('skips fields of a later version and takes the last of a repeated one', () => {
    const hidden = Uint8Array.of(0, 0, 128, 63);
    const plain = encodeExecuteRequest(plainExecute({ layer: 1, expert: 1, hidden, last: false }));
    // Field 15 in each wire type, then request_id again.
    const extra = [0x78, 0x96, 0x01, 0x79, 1, 2, 3, 4, 5, 6, 7, 8, 0x7a, 2, 9, 9, 0x7d, 1, 2, 3, 4, 0x08, 42];
    const message = Buffer.concat([plain, Buffer.from(extra)]);
    message[1] = message.length - 2;
    assert.equal(decodeExecuteRequest(message)?.requestId, 42);
    assert.equal(decodeExecuteRequest(message)?.experts[0]?.expert, 1);
  });

  it('refuses numbers that the wire cannot hold', () => {
    const [sample] = fc.sample(results, 1);
    assert.ok(sample);
    for (const requestId of [-1, 0.5, Number.NaN, 2 ** 60]) {
      assert.throws(() => encodeResultReply({ ...sample, requestId }), { code: 'INTERNAL' });
    }
  });
});
