import assert from 'node:assert/strict';
import { EventEmitter } from 'node:events';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { ClientLine } from '../../http-api/delivery/client-line.js';
import { DELIVERY_LIMITS } from '../../http-api/delivery/delivery-limits.js';
import { VirtualClock } from '../../shared/base/runtime/virtual-clock.js';
import { VirtualRuntime } from '../../shared/base/runtime/virtual-runtime.js';
import { TestLog } from '../integration/harness/test-log.js';

/** A response that accepts no bytes. */
class BlockedResponse extends EventEmitter {
  writableFinished = false;
  ends = 0;
  write = (): boolean => false;
  destroy = (): void => undefined;
  end = (): void => {
    this.ends += 1;
  };
}

describe('the connection to a client', () => {
  const runtime = new VirtualRuntime(new VirtualClock(), 1);

  it('does not wait for a client that leaves while the end of its answer is pending', async () => {
    const raw = new BlockedResponse();
    const socket = new EventEmitter();
    const request = { raw: { socket }, account: null } as unknown as FastifyRequest;
    const reply = { raw, request } as unknown as FastifyReply;
    const log = new TestLog().logger('http');
    const line = new ClientLine(request, reply, { runtime, limits: DELIVERY_LIMITS, log });
    line.write('a piece');
    assert.deepEqual([line.isBlocked, runtime.openCounts.timers], [true, 1]);
    const ended = line.end('the last one');
    line.leave();
    await ended;
    assert.deepEqual([line.isBlocked, runtime.openCounts.timers, raw.ends], [false, 0, 0]);
    raw.emit('close');
    assert.deepEqual([socket.listenerCount('end'), socket.listenerCount('close')], [0, 0]);
  });
});
