import assert from 'node:assert/strict';
import { Writable } from 'node:stream';
import * as fc from 'fast-check';
import { reportedProblems } from '../../main-node/cluster/reported-problems.js';
import { FORGET_REFUSED_AFTER_MS, RefusedPeers, REFUSED_PEERS_LIMITS } from '../../main-node/cluster/membership.js';
import { collectionSizes } from '../../shared/base/runtime/collection-sizes.js';
import { FairAddresses } from '../../shared/transport/discovery/fair-addresses.js';
import {
  LineLimits,
  LINES_OF_EVENT,
  LINES_OF_PEER,
  MOST_LOGGED_PEERS,
  peerOf,
} from '../../shared/base/log/line-limits.js';
import { createLogger } from '../../shared/base/log/logger.js';
import { TokenBuckets } from '../../shared/base/runtime/token-buckets.js';

describe('rate bounds on events that peers cause', () => {
  it('let a burst through and then so many a second, for each kind, and remember a bounded number of kinds', () => {
    let nowMs = 0;
    const buckets = new TokenBuckets({ burst: 3, perSecond: 2 }, 10, () => nowMs);
    const passed = (kind: string, count: number): number =>
      Array.from({ length: count }, () => buckets.take(kind)).filter((isLet) => isLet).length;
    assert.equal(passed('a', 10), 3);
    assert.equal(passed('b', 2), 2, 'another kind has its own');
    nowMs += 1000;
    assert.equal(passed('a', 10), 2);
    nowMs += 60_000;
    assert.equal(passed('a', 10), 3, 'never more than the burst');
    for (let kind = 0; kind < 1000; kind += 1) passed(`stranger ${kind}`, 1);
    assert.equal(buckets.size, 10);
  });

  it('never let more through in a time than burst and rate allow', () => {
    const steps = fc.array(fc.integer({ min: 0, max: 500 }), { maxLength: 200 });
    fc.assert(
      fc.property(
        steps,
        fc.integer({ min: 1, max: 20 }),
        fc.integer({ min: 1, max: 50 }),
        (waits, burst, perSecond) => {
          let nowMs = 0;
          let passed = 0;
          const buckets = new TokenBuckets({ burst, perSecond }, 1, () => nowMs);
          for (const waitMs of waits) {
            nowMs += waitMs;
            if (buckets.take('')) passed += 1;
          }
          assert.ok(passed <= burst + (nowMs / 1000) * perSecond + 1e-6);
        },
      ),
    );
  });
});

describe('the rate-limited log', () => {
  it('writes the first line of each event, whatever others have written, and counts omitted lines', () => {
    let nowMs = 0;
    const limits = new LineLimits(() => nowMs);
    let written = 0;
    const FLOOD = 100_000;
    for (let line = 0; line < FLOOD; line += 1) {
      nowMs += 0.01;
      if (limits.admits('warn', 'refused a peer', `stranger ${line}`)) written += 1;
    }
    assert.ok(written <= LINES_OF_EVENT.warn.burst + 3, `${written} lines`);
    assert.equal(limits.admits('warn', 'worker lost', 'w1'), true);
    assert.deepEqual(
      limits.takeLeftOut().map(({ event, lines }) => [event, lines]),
      [['refused a peer', FLOOD - written]],
    );
    assert.deepEqual(limits.takeLeftOut(), []);
    assert.ok(MOST_LOGGED_PEERS < FLOOD);
  });

  it('leaves room for others beside a peer that appears again and again', () => {
    const limits = new LineLimits(() => 0);
    const linesOf = (peer: string, count: number): number =>
      Array.from({ length: count }, () => limits.admits('warn', 'worker sent an error', peer)).filter((is) => is)
        .length;
    assert.equal(linesOf('liar', 10_000), LINES_OF_PEER.warn.burst);
    assert.equal(linesOf('w1', 5), 5);
  });

  it('recognizes the peer of a line, whichever port it uses', () => {
    for (const [fields, peer] of [
      [{ worker: 'w1', code: 'INTERNAL' }, 'w1'],
      [{ peer: '10.0.0.1:52682', method: 'm' }, '10.0.0.1'],
      [{ peer: '[fe80::1]:52682' }, '[fe80::1]'],
      [{ address: '10.0.0.1:7600', id: 'w1' }, 'w1'],
      [{ requests: 3 }, null],
      [{ peer: 7 }, null],
    ] as const) {
      assert.equal(peerOf(fields), peer);
    }
  });

  it('stays within some kilobytes under a flood of errors from a false worker, and counts the omitted ones', async () => {
    let bytes = 0;
    let text = '';
    const stream = new Writable({
      write: (chunk: Buffer, _encoding, done) => {
        bytes += chunk.length;
        text += chunk.toString();
        done();
      },
    });
    let nowMs = 0;
    const due: (() => void)[] = [];
    const timer = { cancel: () => undefined, unref: () => undefined };
    const clock = {
      nowMs: () => nowMs,
      wallMs: () => nowMs,
      after: (_delayMs: number, run: () => void) => {
        due.push(run);
        return timer;
      },
    };
    const log = createLogger({ level: 'warn', format: 'json' }, { role: 'main', id: 'm' }, clock, stream);
    const SENT = 50_000;
    for (let sent = 0; sent < SENT; sent += 1) {
      nowMs += 0.1;
      log.warn('worker sent an error', { worker: 'liar', message: 'x'.repeat(3000) });
    }
    assert.equal(due.length, 1, 'one timer, however much is left out');
    due[0]?.();
    await new Promise((resolve) => setImmediate(resolve));
    assert.ok(bytes < 100_000, `${bytes} bytes`);
    const written = text.split('\n').filter((line) => line.includes('"worker":"liar"')).length;
    assert.ok(text.includes(`"like":"worker sent an error","lines":${SENT - written},`), text.slice(-300));
  });
});

describe('the addresses of unknown hosts', () => {
  it('replace those of their own host first, then those of the host that has the most', () => {
    const kept = new FairAddresses<string>({ all: 10, ofHost: 4 });
    kept.set('real:7600', 'real');
    const gone: string[] = [];
    for (let port = 1; port <= 100; port += 1) gone.push(...kept.set(`liar:${port}`, `liar:${port}`));
    assert.deepEqual(gone.slice(0, 2), ['liar:1', 'liar:2'], 'the oldest goes');
    assert.equal(kept.size, 5);
    for (let host = 0; host < 100; host += 1) kept.set(`liar${host}:1`, '');
    assert.equal(kept.size, 10);
    assert.equal(kept.delete('nobody:1'), false);
  });

  it('stay within their bounds, whatever comes and goes', () => {
    const step = fc.record({
      host: fc.integer({ min: 0, max: 5 }),
      port: fc.integer({ min: 1, max: 9 }),
      adds: fc.boolean(),
    });
    fc.assert(
      fc.property(fc.array(step, { maxLength: 200 }), (steps) => {
        const kept = new FairAddresses<string>({ all: 12, ofHost: 3 });
        for (const { host, port, adds } of steps) {
          const address = `h${host}:${port}`;
          if (adds) kept.set(address, address);
          else kept.delete(address);
          assert.equal(kept.get(address), adds ? address : undefined);
          const hosts = kept.values().map((one) => one.split(':')[0]);
          assert.ok(kept.size <= 12 && hosts.length === kept.size);
          for (const one of hosts) assert.ok(hosts.filter((other) => other === one).length <= 3);
        }
      }),
    );
  });

  it('leave room for other hosts after refusals, though there are 100,000 of them', () => {
    let nowMs = 0;
    const refused = new RefusedPeers(() => (nowMs += 1));
    const problem = (address: string) => ({ address, id: address, code: 'NODE_REFUSED', message: 'has another pack' });
    refused.add(problem('10.0.0.7:7602'));
    for (let number = 0; number < 100_000; number += 1) refused.add(problem(`10.0.0.66:${number}`));
    const addresses = refused.problems().map(({ address }) => address);
    assert.equal(addresses.length, 1 + REFUSED_PEERS_LIMITS.ofHost);
    assert.equal(addresses[0], '10.0.0.7:7602');
    nowMs += FORGET_REFUSED_AFTER_MS;
    assert.deepEqual(refused.problems(), []);
    assert.ok([...collectionSizes([refused]).values()].every((size) => size === 0));
  });
});

describe('the list of reported problems', () => {
  const problems = Array.from({ length: 100 }, (_, index) => ({
    address: `h:${index}`,
    id: `p${index}`,
    code: 'TIMEOUT',
    message: 'no answer',
  }));

  it('has the most important ones, and the number of the others', () => {
    const reported = reportedProblems(problems, 10);
    assert.equal(reported.length, 10);
    assert.deepEqual(reported.slice(0, 9), problems.slice(0, 9));
    assert.match(reported[9]?.message ?? '', /^and 91 more/);
    assert.deepEqual(reportedProblems(problems.slice(0, 10), 10), problems.slice(0, 10));
  });
});
