import assert from 'node:assert/strict';
import { IDLE_LIMIT_MS, processorMsOf, SEED_LIMIT_MS, SeedWatch } from '../../bench/faults/run-seeds.js';

const BEGUN = { processorMs: 5_000, wallMs: 1_000 };

describe('the time limit of one bench seed', () => {
  it('counts processor time: a busy machine causes no failure', () => {
    const watch = new SeedWatch(BEGUN);
    for (let wallMs = 1_000; wallMs < 20 * SEED_LIMIT_MS; wallMs += 5_000) {
      const processorMs = BEGUN.processorMs + (wallMs - BEGUN.wallMs) / 25;
      assert.equal(watch.judge({ processorMs, wallMs }), null, `after ${wallMs} ms`);
    }
  });

  it('ends a seed that computes for ever', () => {
    const watch = new SeedWatch(BEGUN);
    const usedMs = SEED_LIMIT_MS;
    assert.equal(watch.judge({ processorMs: BEGUN.processorMs + usedMs, wallMs: 1_000 + usedMs }), null);
    const more = { processorMs: BEGUN.processorMs + usedMs + 10, wallMs: 1_000 + usedMs };
    assert.match(watch.judge(more) ?? '', /180 s of the processor/);
  });

  it('ends a seed that waits for ever, although it uses no processor', () => {
    const watch = new SeedWatch(BEGUN);
    assert.equal(watch.judge({ processorMs: 5_000, wallMs: 1_000 + IDLE_LIMIT_MS }), null);
    assert.match(watch.judge({ processorMs: 5_100, wallMs: 1_001 + IDLE_LIMIT_MS }) ?? '', /nothing for 180 s/);
  });

  it('is measured on the process and its threads', () => {
    const before = processorMsOf(process.pid, 0);
    const until = process.cpuUsage().user + 100_000;
    while (process.cpuUsage().user < until) Math.sqrt(2);
    if (process.platform === 'linux') assert.ok(processorMsOf(process.pid, 0) - before >= 50);
    assert.equal(processorMsOf(2 ** 30, 77), 77, 'the wall where nothing is known');
  });
});
