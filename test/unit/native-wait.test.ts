import assert from 'node:assert/strict';
import { waitUntil } from '../../native/index.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';

const nowMs = (): number => Number(process.hrtime.bigint()) / 1e6;
/** The native clock counts whole nanoseconds, which a number of milliseconds cannot express exactly. */
const NANOSECOND_MS = 1e-6;
const isMisuse = (thrown: unknown): boolean => thrown instanceof OdmoeError && thrown.code === 'INTERNAL';

describe('the function waitUntil', () => {
  it('never resolves early, whatever the order', async () => {
    const startMs = nowMs();
    const delaysMs = [7, 3.3, 0.2, 25, -5, 12.75, 3.3, 1, 18, 0];
    await Promise.all(
      delaysMs.map(async (delayMs) => {
        await waitUntil(startMs + delayMs);
        const earlyMs = startMs + delayMs - nowMs();
        assert.ok(earlyMs <= NANOSECOND_MS, `${earlyMs} ms early`);
      }),
    );
  });

  it('resolves at once for a past time and refuses an invalid time', async () => {
    await waitUntil(-1e300);
    await waitUntil(0);
    await assert.rejects(waitUntil(Number.NaN), isMisuse);
    await assert.rejects(waitUntil(Infinity), isMisuse);
  });
});
