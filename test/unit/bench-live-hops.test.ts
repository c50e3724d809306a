import assert from 'node:assert/strict';
import { bytesOfHop, liveHopsTable, ratioOf } from '../../bench/hop/live-hops.js';
import type { HopStages, LinkBytes, WorkerHops } from '../../shared/rpc/messages.js';

const stages = (roundTripMs: number, executeMs: number): HopStages => ({
  ...{ roundTripMs, transitMs: roundTripMs - executeMs, callMs: 0, handOffMs: 0, executeMs, replyMs: 0 },
});
const worker = (id: string, hops: number, median = stages(1, 0.5)): WorkerHops => ({
  ...{ worker: id, hops, median, p99: median },
});
const link = (peer: string, sentBytes: number): LinkBytes => ({ peer, sentBytes, receivedBytes: 0, roundTripMs: 0 });
const times = (medianUs: number) => ({ medianUs, p99Us: 2 * medianUs, roundTrips: 10 });

describe('bench hop --live', () => {
  it('has bare hops of as many bytes as main has sent to workers for each hop meanwhile', () => {
    const before = { workerHops: [worker('a', 100)], links: [link('a', 1e6), link('shadow', 5)] };
    const after = {
      workerHops: [worker('a', 300), worker('b', 200)],
      links: [link('a', 1e6 + 200 * 4000), link('b', 200 * 4200), link('shadow', 1e9)],
    };
    assert.equal(bytesOfHop(before, after), 4100);
    assert.equal(bytesOfHop({ links: [] }, { links: [] }), 4, 'a value at least');
  });

  it('sets what is not the execution of the slowest worker beside a bare hop', () => {
    const workers = [worker('a', 1, stages(1, 0.5)), worker('b', 1, stages(1.5, 0.9))];
    assert.ok(Math.abs(ratioOf(workers, { grpc: times(200) }) - 3) < 1e-9);
    const bare = { name: '', bytes: 4100, workers: 1, tcp: times(100), grpc: times(200), ratio: 2 };
    const lines = liveHopsTable({ workers, bare, ratio: 3 }).split('\n');
    assert.deepEqual(lines.slice(3), [
      'bare hop of 4100 bytes: 200/400',
      'round trip less execution, of the slowest worker: 3.00 bare hops',
      '',
    ]);
  });
});
