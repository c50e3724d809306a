import assert from 'node:assert/strict';
import { bytesOfHop, liveHopsTable, noHopTimed, ratioOf } from '../../../bench/hop/live-hops.js';
import { compareHops } from '../../../bench/hop/measure-hops.js';
import type { HopStages, LinkBytes, NodeStatus, RoleName, WorkerHops } from '../../../shared/wire/messages.js';
import { NO_CAPACITIES } from '../../../shared/decisions/caching/pool-capacities.js';

const stages = (roundTripMs: number, executeMs: number): HopStages => ({
  roundTripMs,
  transitMs: roundTripMs - executeMs,
  callMs: 0,
  handOffMs: 0,
  executeMs,
  replyMs: 0,
});
const worker = (id: string, hops: number, median = stages(1, 0.5)): WorkerHops => ({
  worker: id,
  hops,
  median,
  p99: median,
});
const link = (peer: string, sentBytes: number): LinkBytes => ({ peer, sentBytes, receivedBytes: 0, roundTripMs: 0 });
const times = (medianUs: number) => ({
  p10Us: medianUs / 2,
  medianUs,
  p99Us: 2 * medianUs,
  roundTrips: 10,
  processorUs: medianUs,
});

describe('bench hop --live', () => {
  it('sends bare hops of as many bytes as main has sent to workers for each hop meanwhile', () => {
    const before = { workerHops: [worker('a', 100)], links: [link('a', 1e6), link('shadow', 5)] };
    const after = {
      workerHops: [worker('a', 300), worker('b', 200)],
      links: [link('a', 1e6 + 200 * 4000), link('b', 200 * 4200), link('shadow', 1e9)],
    };
    assert.equal(bytesOfHop(before, after), 4100);
    assert.equal(bytesOfHop({ links: [], workerHops: [] }, { links: [], workerHops: [] }), 4, 'a value at least');
  });

  it("compares the time beside the slowest worker's execution with a bare hop", () => {
    const workers = [worker('a', 1, stages(1, 0.5)), worker('b', 1, stages(1.5, 0.9))];
    assert.ok(Math.abs(ratioOf(workers, { grpc: times(200) }) - 3) < 1e-9);
    const hop = { name: '', bytes: 4100, workers: 1 };
    const bare = compareHops(hop, { tcp: times(100), grpc: times(200), tls: times(300) });
    const lines = liveHopsTable({ workers, bare, ratio: 3 }).split('\n');
    assert.deepEqual(lines.slice(3), [
      'bare hop of 4100 bytes: 200/400',
      'round trip less execution, of the slowest worker: 3.00 bare hops',
      '',
    ]);
  });

  it('explains why no hop was timed', () => {
    const none = NO_CAPACITIES;
    const node = (id: string, role: RoleName, capacities: typeof none | null): NodeStatus => {
      const cache = capacities && { policy: 'planned', bytes: 1, capacities, kept: none, hits: none, misses: 0 };
      return { identity: { id, role }, cache } as NodeStatus;
    };
    const why = (...nodes: NodeStatus[]): [string, string] => {
      const { code, message } = noHopTimed({ nodes: [node('main', 'ROLE_MAIN', null), ...nodes] });
      return [code, message];
    };
    const worker = (id: string, capacities: typeof none | null): NodeStatus => node(id, 'ROLE_WORKER', capacities);
    const inPart = { ...none, compressed: 3 };
    assert.equal(why()[0], 'NO_WORKERS');
    assert.match(
      why(worker('a', inPart), worker('b', { ...none, exponent: 1 })).join(),
      /^USAGE.*\(a, b\) keep.*compressed/,
    );
    for (const other of [null, none, { ...inPart, full: 1 }]) {
      assert.match(why(worker('a', inPart), worker('b', other)).join(), /^USAGE.*ask for more tokens/);
    }
  });
});
