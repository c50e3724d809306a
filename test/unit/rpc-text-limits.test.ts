import assert from 'node:assert/strict';
import fc from 'fast-check';

import type { GenerateRequest, NodeIdentity } from '../../shared/wire/messages.js';
import { METHODS } from '../../shared/transport/methods.js';
import { plainIdentity } from './plain-identity.js';

const identity: NodeIdentity = plainIdentity({ id: 'main-1', role: 'ROLE_MAIN', cluster: 'c', address: 'h:1' });

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

describe('the wire check of texts in messages', () => {
  it('refuses a text that is not UTF-8, at any depth, and one that is cut short', () => {
    const bytes = METHODS.cluster.join.request.encode({ identity: { ...identity, id: 'main-%' } });
    assert.equal(METHODS.cluster.join.request.decode(bytes).identity.id, 'main-%');
    const wrong = Buffer.from(bytes);
    wrong[wrong.indexOf('%')] = 0xff;
    violates(() => METHODS.cluster.join.request.decode(wrong), /id of a NodeIdentity is not UTF-8/);
    const half = Buffer.from(bytes);
    half[half.indexOf('%')] = 0xc3;
    violates(() => METHODS.cluster.join.request.decode(half), /not UTF-8/);
    // Field 1 with 200 bytes announced, of which two come: protobufjs would take the two.
    violates(
      () => METHODS.inference.generate.request.decode(Buffer.from([0x0a, 200, 1, 0x41, 0x42])),
      /middle of a field/,
    );
    violates(() => METHODS.inference.generate.request.decode(Buffer.from([0x08, 1])), /text of a GenerateRequest/);
  });

  it('takes every text that is UTF-8, U+FFFD too', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'binary', minLength: 1 }), (text) => {
        const { request } = METHODS.inference.generate;
        assert.equal(request.decode(request.encode({ ...PLAIN_REQUEST, text })).text, text);
      }),
    );
    const { request } = METHODS.inference.generate;
    const replaced = request.encode({ ...PLAIN_REQUEST, text: 'a\uFFFDb' });
    assert.equal(request.decode(replaced).text, 'a\uFFFDb');
  });
});
