import assert from 'node:assert/strict';
import fc from 'fast-check';
import { CLUSTER_JOIN, INFERENCE_GENERATE, WORKER_SERVE } from '../../shared/rpc/codecs.js';

import { emptyNodeStatus } from '../../shared/rpc/node-status.js';

import { PACK_SOURCES_LIMIT, ROWS_LIMIT, TEXT_LENGTH_LIMIT } from '../../shared/rpc/limits.js';
import type { GenerateRequest, NodeIdentity, WorkerReply, WorkerRequest } from '../../shared/rpc/messages.js';

import { plainExecute } from './wire-messages.js';

const identity: NodeIdentity = {
  id: 'main-1',
  role: 'ROLE_MAIN',
  cluster: 'c',
  protocolVersion: 1,
  modelName: 'm',
  packDigest: 'd',
  bootId: 'b',
  address: 'h:1',
  device: 'cpu',
  release: '0.1.0',
};

const PLAIN_REQUEST: GenerateRequest = {
  text: 'a',
  messages: [],
  promptTokenIds: [],
  raw: false,
  maxTokens: 1,
  sampling: null,
  stop: [],
  ignoreEos: false,
  logprobs: 0,
};

function violates(decode: () => unknown, pattern: RegExp): void {
  assert.throws(decode, (error: unknown) => {
    assert.ok(error instanceof Error && 'code' in error);
    assert.equal(error.code, 'PROTOCOL_VIOLATION');
    assert.match(error.message, pattern);
    return true;
  });
}

describe('the texts and limits of messages', () => {
  it('refuses a text that is not UTF-8, at any depth, and one that is cut short', () => {
    const bytes = CLUSTER_JOIN.request.encode({ identity: { ...identity, id: 'main-%' } });
    assert.equal(CLUSTER_JOIN.request.decode(bytes).identity.id, 'main-%');
    const wrong = Buffer.from(bytes);
    wrong[wrong.indexOf('%')] = 0xff;
    violates(() => CLUSTER_JOIN.request.decode(wrong), /id of a NodeIdentity is not UTF-8/);
    const half = Buffer.from(bytes);
    half[half.indexOf('%')] = 0xc3;
    violates(() => CLUSTER_JOIN.request.decode(half), /not UTF-8/);
    // Field 1 with 200 bytes announced, of which two come: protobufjs would take the two.
    violates(() => INFERENCE_GENERATE.request.decode(Buffer.from([0x0a, 200, 1, 0x41, 0x42])), /middle of a field/);
    violates(() => INFERENCE_GENERATE.request.decode(Buffer.from([0x08, 1])), /text of a GenerateRequest/);
  });

  it('takes every text that is UTF-8, U+FFFD too', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'binary', minLength: 1 }), (text) => {
        const { request } = INFERENCE_GENERATE;
        assert.equal(request.decode(request.encode({ ...PLAIN_REQUEST, text })).text, text);
      }),
    );
    const { request } = INFERENCE_GENERATE;
    const replaced = request.encode({ ...PLAIN_REQUEST, text: 'a\uFFFDb' });
    assert.equal(request.decode(replaced).text, 'a\uFFFDb');
  });

  it('bounds the texts of refusals and errors: at the limit taken, one beyond it refused', () => {
    const error = { code: 'TIMEOUT', requestId: 1, epoch: 1 };
    const texts: ((length: number) => WorkerReply)[] = [
      (length) => ({ kind: 'refusal', refusal: { code: 'NODE_REFUSED', message: 'x'.repeat(length) } }),
      (length) => ({ kind: 'refusal', refusal: { code: 'x'.repeat(length), message: 'no' } }),
      (length) => ({ kind: 'error', error: { ...error, message: 'x'.repeat(length) } }),
      (length) => ({ kind: 'error', error: { ...error, code: 'x'.repeat(length), message: 'no' } }),
      (length) => ({ kind: 'status', status: emptyNodeStatus({ ...identity, device: 'x'.repeat(length) }) }),
      (length) => ({ kind: 'status', status: { ...emptyNodeStatus(identity), fetchProblem: 'x'.repeat(length) } }),
    ];
    for (const text of texts) {
      const through = (length: number): WorkerReply =>
        WORKER_SERVE.reply.decode(WORKER_SERVE.reply.encode(text(length)));
      assert.equal(through(TEXT_LENGTH_LIMIT).kind, text(1).kind);
      violates(() => through(TEXT_LENGTH_LIMIT + 1), /^.{0,300}too long$/);
    }
  });

  it('names a stranger in a placement in a message of bounded length', () => {
    const workers = [{ id: 'w', address: 'h:2', slots: 2 }];
    const groups = [{ workerIds: ['x'.repeat(100_000)] }];
    const placement = { epoch: 1, workers, groups, layers: 1, experts: 1, expertsPerToken: 1, homes: 0 };
    const bytes = WORKER_SERVE.request.encode({ kind: 'placement', placement });
    violates(() => WORKER_SERVE.request.decode(bytes), /^a group of a placement names x{10}.{0,300}$/);
  });

  it('takes as many rows and sources as the limits name, and not one more', () => {
    const execute = (rows: number): WorkerRequest => ({
      kind: 'execute',
      execute: plainExecute({
        ...{ layer: 0, expert: 0, rows },
        ...{ hiddenSize: 1, dtype: 'TENSOR_TYPE_BF16', hidden: Buffer.alloc(rows * 2) },
      }),
    });
    const through = (request: WorkerRequest): WorkerRequest =>
      WORKER_SERVE.request.decode(WORKER_SERVE.request.encode(request));
    assert.equal(through(execute(ROWS_LIMIT)).kind, 'execute');
    violates(() => through(execute(ROWS_LIMIT + 1)), /1 to 65536 are allowed/);
    const placement = { epoch: 1, workers: [], groups: [], layers: 1, experts: 1, expertsPerToken: 1, homes: 0 };
    const prospect = (count: number): WorkerRequest => ({
      kind: 'prospect',
      prospect: { number: 1, placement, sources: Array.from({ length: count }, () => 'h:1') },
    });
    assert.equal(through(prospect(PACK_SOURCES_LIMIT)).kind, 'prospect');
    violates(
      () => through(prospect(PACK_SOURCES_LIMIT + 1)),
      /sources of a Prospect has 65 entries or more; at most 64 are taken/,
    );
  });
});
