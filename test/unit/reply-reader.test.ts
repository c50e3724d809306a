import assert from 'node:assert/strict';
import { Readable } from 'node:stream';
import type { ClientReadableStream } from '@grpc/grpc-js';
import { METHODS } from '../../shared/transport/methods.js';
import { readReplies } from '../../shared/transport/grpc-connection.js';
import { RUNTIME } from '../wall.js';

/** Time that a reader waits for a rest that never comes. */
const IDLE_LIMIT_MS = 1000;

describe('the replies of a call', () => {
  it('all reach a reader for whom the sender had to wait, many times over', async () => {
    const sent = Array.from({ length: 64 }, (_, index) => Buffer.from([index]));
    const call = Readable.from(sent) as unknown as ClientReadableStream<Buffer>;
    let pauses = 0;
    call.on('pause', () => (pauses += 1));
    const rules = { ...METHODS.pack.read, heldByCaller: 4 };
    const read: Buffer[] = [];
    for await (const bytes of readReplies(call, 'peer', rules, RUNTIME, IDLE_LIMIT_MS)) {
      read.push(bytes);
      await new Promise((resolve) => setImmediate(resolve));
    }
    assert.deepEqual(read, sent);
    assert.ok(pauses > 1, `${pauses} pauses`);
  });
});
