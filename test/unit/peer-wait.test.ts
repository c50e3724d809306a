import assert from 'node:assert/strict';
import fc from 'fast-check';
import {
  FRESH_STARTS_LIMIT,
  OWN_SLEEP_MS,
  OWN_STANDSTILL_MS,
  PeerTime,
  timeForPeers,
  waitForPeer,
  withPeerDeadline,
} from '../../shared/base/runtime/peer-wait.js';
import { VirtualClock } from '../../shared/base/runtime/virtual-clock.js';
import { VirtualRuntime } from '../../shared/base/runtime/virtual-runtime.js';

const LIMIT_MS = 30_000;

/** Lets the parts of the wait pass. `standstillMs` gives the standstill of this process in each part. Returns the time in which it ran. */
function runFor(time: PeerTime, standstillMs: (part: number) => number): number {
  let ranMs = 0;
  for (let part = 0; time.nextPartMs > 0; part++) {
    const partMs = time.nextPartMs;
    const tookMs = partMs + standstillMs(part);
    time.passed(partMs, tookMs, tookMs);
    ranMs += partMs;
    assert.ok(part < 10_000, 'the wait never ends');
  }
  return ranMs;
}

describe('the time limit of a peer', () => {
  it('is the set limit where this process runs all the time', () => {
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 1_000_000 }), (limitMs) => {
        assert.equal(Math.round(runFor(new PeerTime(limitMs), () => 0)), limitMs);
      }),
    );
  });

  it('starts again after each standstill of this process, and ends however often it stands still', () => {
    const standstills = fc.array(fc.integer({ min: 0, max: 300_000 }), { maxLength: 100 });
    fc.assert(
      fc.property(fc.integer({ min: 50, max: 100_000 }), standstills, (limitMs, lengths) => {
        let lastAt = 0;
        let ranMs = 0;
        const time = new PeerTime(limitMs);
        let fresh = 0;
        for (let part = 0; time.nextPartMs > 0; part++) {
          const partMs = time.nextPartMs;
          const standstillMs = lengths[part] ?? 0;
          time.passed(partMs, partMs + standstillMs, partMs + standstillMs);
          ranMs += partMs;
          if (standstillMs < OWN_STANDSTILL_MS || fresh >= FRESH_STARTS_LIMIT) continue;
          fresh += 1;
          lastAt = ranMs;
        }
        assert.ok(ranMs - lastAt >= limitMs - 1, `${ranMs - lastAt} of ${limitMs} ms behind the last standstill`);
        assert.ok(ranMs <= (1 + FRESH_STARTS_LIMIT) * limitMs + 1, `${ranMs} ms in all`);
      }),
    );
  });

  it('starts again after a sleep of the machine, which only the wall clock shows', () => {
    const time = new PeerTime(LIMIT_MS);
    const partMs = time.nextPartMs;
    time.passed(partMs, partMs, partMs + OWN_SLEEP_MS - 1);
    assert.equal(runFor(time, () => 0) + partMs, LIMIT_MS, 'a small step of the wall clock gives none');
    const slept = new PeerTime(LIMIT_MS);
    slept.passed(partMs, partMs, partMs + OWN_SLEEP_MS);
    assert.equal(
      runFor(slept, () => 0),
      LIMIT_MS,
    );
  });

  it('is not shortened by a wall clock that is set back', () => {
    const time = new PeerTime(LIMIT_MS);
    const partMs = time.nextPartMs;
    time.passed(partMs, partMs, partMs - 3_600_000);
    assert.equal(runFor(time, () => 0) + partMs, LIMIT_MS);
  });
});

describe('waiting for a peer', () => {
  let clock: VirtualClock;
  let runtime: VirtualRuntime;
  let silences: number[];
  beforeEach(() => {
    clock = new VirtualClock();
    runtime = new VirtualRuntime(clock, 1);
    silences = [];
  });
  const passes = (untilMs: number): Promise<void> => clock.run(() => false, { untilMs });
  const stopFor = async (ms: number): Promise<void> => {
    runtime.pause();
    await passes(clock.nowMs + ms);
    runtime.resume();
  };
  const wait = (): ReturnType<typeof waitForPeer> => waitForPeer(runtime, LIMIT_MS, (ms) => silences.push(ms));

  it('calls back once, at the limit, and leaves nothing behind', async () => {
    wait();
    await passes(LIMIT_MS - 1);
    assert.deepEqual(silences, []);
    await passes(10 * LIMIT_MS);
    assert.deepEqual(silences, [LIMIT_MS]);
    assert.deepEqual(runtime.openCounts, { timers: 0, turns: 0, works: 0 });
  });

  for (const stoppedMs of [LIMIT_MS / 2, LIMIT_MS, 7 * LIMIT_MS]) {
    it(`takes the answer that came while this process was stopped for ${stoppedMs / LIMIT_MS} of the limit`, async () => {
      const timer = wait();
      await passes(1000);
      runtime.pause();
      clock.schedule(2000, () => runtime.happen(() => timer.cancel()));
      await passes(clock.nowMs + stoppedMs);
      runtime.resume();
      await passes(clock.nowMs + 10 * LIMIT_MS);
      assert.deepEqual(silences, []);
    });

    it(`gives a silent peer the limit once more when it was stopped for ${stoppedMs / LIMIT_MS} of it, and no more`, async () => {
      wait();
      await passes(1000);
      await stopFor(stoppedMs);
      const goesOnMs = clock.nowMs;
      await passes(goesOnMs + LIMIT_MS - 1);
      assert.deepEqual(silences, []);
      await passes(goesOnMs + 2 * LIMIT_MS);
      assert.equal(silences.length, 1);
    });
  }

  it('ends for a silent peer, though this process stops again and again', async () => {
    wait();
    for (let stop = 0; stop < 100; stop++) {
      await passes(clock.nowMs + 3000);
      await stopFor(60_000);
    }
    assert.equal(silences.length, 1);
  });

  it('handles arrived messages at the limit before it judges the peer', async () => {
    const timer = wait();
    clock.schedule(LIMIT_MS, () => runtime.happen(() => timer.cancel()));
    await passes(10 * LIMIT_MS);
    assert.deepEqual(silences, []);
  });

  it('tells a polling task whether the time has passed, and leaves nothing behind', async () => {
    const looked: boolean[] = [];
    const looking = withPeerDeadline(runtime, LIMIT_MS, async (hasPassed) => {
      for (; !hasPassed(); await runtime.sleep(1000)) looked.push(false);
      return clock.nowMs;
    });
    await passes(1500);
    await stopFor(5 * LIMIT_MS);
    await passes(20 * LIMIT_MS);
    assert.ok((await looking) >= 6 * LIMIT_MS);
    assert.ok(looked.length > LIMIT_MS / 1000);
    assert.deepEqual(runtime.openCounts, { timers: 0, turns: 0, works: 0 });
  });

  it('lets all asked peers use their time, or ends at once when nobody waits any more', async () => {
    const over: number[] = [];
    const abort = new AbortController();
    void timeForPeers(runtime, LIMIT_MS).then(() => over.push(clock.nowMs));
    void timeForPeers(runtime, LIMIT_MS, abort.signal).then(() => over.push(clock.nowMs));
    clock.schedule(10, () => abort.abort());
    await passes(2 * LIMIT_MS);
    assert.deepEqual(over, [10, LIMIT_MS]);
    assert.deepEqual(runtime.openCounts, { timers: 0, turns: 0, works: 0 });
  });
});
