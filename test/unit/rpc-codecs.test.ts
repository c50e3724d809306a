import assert from 'node:assert/strict';
import type {
  GenerateReply,
  GenerateRequest,
  NodeIdentity,
  SamplingMessage,
  WorkerReply,
} from '../../shared/wire/messages.js';
import { join } from 'node:path';

import fc from 'fast-check';
import protobuf from 'protobufjs';
import { packageRoot } from '../../shared/base/files/package-root.js';

import { emptyNodeStatus } from '../../shared/wire/node-status.js';

import { WIRE_CODECS } from './golden-messages.js';
import { plainExecute } from './wire-messages.js';
import { METHODS } from '../../shared/transport/methods.js';
import { plainIdentity } from './plain-identity.js';

const root = new protobuf.Root();
root.resolvePath = (_origin, target) => join(packageRoot(), 'proto', target);
root.loadSync(['odmoe/v1/worker.proto', 'odmoe/v1/shadow.proto', 'odmoe/v1/inference.proto']);
const WorkerRequestType = root.lookupType('odmoe.v1.WorkerRequest');
const WorkerReplyType = root.lookupType('odmoe.v1.WorkerReply');

const identity: NodeIdentity = plainIdentity({ id: 'main-1', role: 'ROLE_MAIN', cluster: 'c', address: 'h:1' });

function violates(decode: () => unknown, pattern: RegExp): void {
  assert.throws(decode, (error: unknown) => {
    assert.ok(error instanceof Error && 'code' in error);
    assert.equal(error.code, 'PROTOCOL_VIOLATION');
    assert.match(error.message, pattern);
    return true;
  });
}

const SAMPLING: SamplingMessage = {
  temperature: 0.5,
  topK: 40,
  topP: 0.9,
  minP: 0,
  repetitionPenalty: 1.1,
  presencePenalty: -1.5,
  frequencyPenalty: 0.25,
  logitBias: [
    { tokenId: 0, bias: -100 },
    { tokenId: 150_000, bias: 2.5 },
  ],
  outputFormat: {
    alternatives: [
      {
        parts: [
          { kind: 'literal', literal: '' },
          { kind: 'jsonSchema', jsonSchema: '{}' },
        ],
      },
      {
        parts: [
          { kind: 'until', until: '</think>' },
          { kind: 'schemaText', schemaText: { jsonSchema: '{"maxLength":3}', without: '</' } },
        ],
      },
    ],
  },
};

describe("the decoder of a peer's messages", () => {
  const anyDecoder = fc.constantFrom(...WIRE_CODECS.map(([, codec]) => codec));

  it('answers arbitrary bytes with an OdmoeError or a message, never another exception', () => {
    const allowed = ['PROTOCOL_VIOLATION', 'REQUEST_INVALID'];
    fc.assert(
      fc.property(anyDecoder, fc.uint8Array({ maxLength: 200 }), (codec, garbage) => {
        try {
          codec.decode(Buffer.from(garbage));
        } catch (error) {
          assert.ok(error instanceof Error && 'code' in error && allowed.includes(String(error.code)), String(error));
        }
      }),
      { numRuns: 2000 },
    );
  });

  it('answers every truncation and bit flip of a real Execute in the same way', () => {
    const message = METHODS.worker.serve.request.encode({
      kind: 'execute',
      execute: plainExecute({ layer: 3, expert: 4, rows: 2, hiddenSize: 3, hidden: new Uint8Array(24) }),
    });
    for (let length = 0; length < message.length; length += 1) {
      assert.throws(() => METHODS.worker.serve.request.decode(message.subarray(0, length)), {
        code: 'PROTOCOL_VIOLATION',
      });
    }
    for (let bit = 0; bit < message.length * 8; bit += 1) {
      const flipped = Buffer.from(message);
      flipped[bit >> 3] = (flipped[bit >> 3] ?? 0) ^ (1 << (bit & 7));
      try {
        METHODS.worker.serve.request.decode(flipped);
      } catch (error) {
        assert.ok(error instanceof Error && 'code' in error && error.code === 'PROTOCOL_VIOLATION', String(error));
      }
    }
  });

  it('distinguishes an optional number that is 0 from one that is absent', () => {
    for (const deviceDriverUsedBytes of [0, 7e9, null]) {
      const status: WorkerReply = { kind: 'status', status: { ...emptyNodeStatus(identity), deviceDriverUsedBytes } };
      assert.deepEqual(METHODS.worker.serve.reply.decode(METHODS.worker.serve.reply.encode(status)), status);
    }
  });

  it('refuses messages that lack a part', () => {
    const passless = Buffer.from(WorkerRequestType.encode(WorkerRequestType.fromObject({ execute: {} })).finish());
    violates(() => METHODS.worker.serve.request.decode(passless), /an? Execute came without its pass/);
    violates(() => METHODS.worker.serve.request.decode(Buffer.alloc(0)), /nothing in it/);
    const message = { status: { identity: { ...identity, role: 3 }, cache: { policy: 'lru', kept: {}, hits: {} } } };
    const poolless = Buffer.from(WorkerReplyType.encode(WorkerReplyType.fromObject(message)).finish());
    violates(() => METHODS.worker.serve.reply.decode(poolless), /a CacheStatus came without its capacities/);
    const welcome = Buffer.from(WorkerReplyType.encode(WorkerReplyType.fromObject({ welcome: {} })).finish());
    violates(() => METHODS.worker.serve.reply.decode(welcome), /a Welcome came without its identity/);
  });
});

const PLAIN: SamplingMessage = { temperature: 0, topK: 0, topP: 0, minP: 0, repetitionPenalty: 0 };

/** The message as a decoder gives it, with defaults of absent fields. */
function resolved(sampling: SamplingMessage): SamplingMessage {
  return { presencePenalty: 0, frequencyPenalty: 0, logitBias: [], outputFormat: null, seed: null, ...sampling };
}

describe('a generation request on the wire', () => {
  const request: GenerateRequest = {
    text: 'hello',
    messages: [],
    promptTokenIds: [],
    raw: false,
    maxTokens: 10,
    sampling: SAMPLING,
    stop: ['\n'],
    ignoreEos: false,
    logprobs: 3,
  };
  const through = (change: object): GenerateRequest =>
    METHODS.inference.generate.request.decode(METHODS.inference.generate.request.encode({ ...request, ...change }));

  it('keeps its values; a missing seed stays absent', () => {
    const received = through({});
    assert.equal(received.text, 'hello');
    assert.deepEqual({ ...received.sampling }, resolved(SAMPLING));
    assert.deepEqual({ ...through({ sampling: PLAIN }).sampling }, resolved(PLAIN));
    assert.equal(received.sampling?.seed, null);
    assert.equal(through({ sampling: { ...request.sampling, seed: 0 } }).sampling?.seed, 0);
    assert.equal(through({ sampling: null }).sampling, null);
  });

  it('carries log-probabilities of the prompt', () => {
    const top = [{ tokenId: 150_000, logprob: -1 / 3 }];
    const tokens = [
      { logprob: 0, top: [] },
      { logprob: -1e-9, top },
    ];
    const reply: GenerateReply = { kind: 'prompt', prompt: { first: 64, tokens } };
    assert.deepEqual(METHODS.inference.generate.reply.decode(METHODS.inference.generate.reply.encode(reply)), reply);
  });

  it('is refused by REQUEST_INVALID naming the field when out of range', () => {
    const sampling = (change: object) => ({ sampling: { ...request.sampling, ...change } });
    const broken: [object, RegExp][] = [
      [{ text: '' }, /takes one prompt.*none/],
      [{ promptTokenIds: [1] }, /takes one prompt.*more than one/],
      [{ maxTokens: 0, logprobs: 1025 }, /logprobs/],
      [{ stop: [''] }, /stop string of 0/],
      [
        { stop: Array.from({ length: 65 }, () => 'x') },
        /stop of a GenerateRequest has 65 entries or more; at most 64 are taken/,
      ],
      [{ logprobs: 5000 }, /logprobs/],
      [{ text: '', messages: [{ role: 'root', content: 'a' }] }, /role "root"/],
      [sampling({ temperature: -1 }), /temperature/],
      [sampling({ temperature: Number.NaN }), /temperature/],
      [sampling({ topP: 1.5 }), /top_p/],
      [sampling({ minP: -0.1 }), /min_p/],
      [sampling({ repetitionPenalty: Infinity }), /repetition_penalty/],
      [sampling({ presencePenalty: 101 }), /presence_penalty/],
      [sampling({ frequencyPenalty: -101 }), /frequency_penalty/],
      [sampling({ logitBias: [{ tokenId: 3, bias: 100.5 }] }), /logit_bias\[0\].bias/],
      [sampling({ logitBias: new Array(2).fill({ tokenId: 3, bias: 1 }) }), /token id 3 twice/],
      [sampling({ outputFormat: { alternatives: [] } }), /no alternative/],
      [sampling({ outputFormat: { alternatives: [{ parts: [{}] }] } }), /OutputPart came with nothing in it/],
      [{ ignoreEos: true }, /leave ignore_eos out/],
      [{ promptLogprobs: true, logprobs: 0 }, /give logprobs/],
      [{ continueLast: true }, /must be an assistant/],
    ];
    for (const [change, message] of broken) {
      assert.throws(() => through(change), { code: 'REQUEST_INVALID', message }, JSON.stringify(change));
    }
  });
});
