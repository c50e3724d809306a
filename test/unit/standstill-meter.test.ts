import assert from 'node:assert/strict';
import { Metadata } from '@grpc/grpc-js';
import { standstillOf } from '../../shared/transport/peer-keepalive.js';
import { REMEMBERED_MS, StandstillMeter } from '../../shared/base/runtime/standstill-meter.js';
import { VirtualClock } from '../../shared/base/runtime/virtual-clock.js';
import { VirtualRuntime } from '../../shared/base/runtime/virtual-runtime.js';

describe('the standstill meter of a process', () => {
  let clock: VirtualClock;
  let runtime: VirtualRuntime;
  let meter: StandstillMeter;
  beforeEach(() => {
    clock = new VirtualClock();
    runtime = new VirtualRuntime(clock, 1);
    meter = new StandstillMeter(runtime);
  });
  const passes = (ms: number): Promise<void> => clock.run(() => false, { untilMs: clock.nowMs + ms });
  const stop = async (ms: number): Promise<void> => {
    runtime.pause();
    await passes(ms);
    runtime.resume();
    await passes(1);
  };

  it('shows nothing where the process runs all the time, and leaves nothing behind', async () => {
    await passes(60_000);
    assert.equal(meter.recentMs, 0);
    meter.stop();
    assert.equal(runtime.openCounts.timers, 0);
  });

  it('shows the longest standstill, nearly in full', async () => {
    await passes(1050);
    for (const ms of [300, 1500, 700]) {
      await stop(ms);
      await passes(1050);
    }
    assert.ok(meter.recentMs > 1350 && meter.recentMs <= 1500, `${meter.recentMs} ms`);
  });

  it('remembers a standstill for a while, and then forgets it', async () => {
    await passes(REMEMBERED_MS / 2);
    await stop(1000);
    await passes(REMEMBERED_MS - 10);
    assert.ok(meter.recentMs >= 900);
    await passes(REMEMBERED_MS + 2000);
    assert.equal(meter.recentMs, 0);
  });

  it('is sent to peers as digits, and any other text counts as no standstill', () => {
    const counterOf = (text: string): number => {
      const metadata = new Metadata();
      metadata.set('odmoe-stall-ms', text);
      return standstillOf(metadata);
    };
    assert.equal(counterOf('1500'), 1500);
    for (const strange of ['', '-1', '1e9', '1.5', 'long', '9'.repeat(400)])
      assert.equal(counterOf(strange), 0, strange);
    assert.equal(standstillOf(new Metadata()), 0);
  });
});
