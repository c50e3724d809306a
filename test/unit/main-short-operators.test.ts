import assert from 'node:assert/strict';
import fc from 'fast-check';
import {
  CALLS_OF_FORECAST,
  SHORT_CALL_MS,
  SHORT_PASS_ROWS,
  ShortOperators,
} from '../../main-node/pass/reusable-passes.js';
import type { Pass, RouterChoice } from '../../native/index.js';

const LAYERS = 3;
const ROW = { rows: 1, awaitsMessages: false };
const BYTES = new Uint8Array();

/** A pass whose calls take a set time and record where they ran. */
class TimedPass implements Pick<Pass, 'attend' | 'attendHere' | 'combine' | 'combineHere'> {
  readonly calls: string[] = [];
  nowMs = 0;
  takesMs = SHORT_CALL_MS / 2;
  isBusy = false;
  fault: Error | null = null;

  async attend(): Promise<RouterChoice> {
    return this.run('attend');
  }

  attendHere = (): RouterChoice | null => (this.isBusy ? null : this.run('attend here'));

  async combine(): Promise<void> {
    this.run('combine');
  }

  combineHere = (): boolean => !this.isBusy && this.run('combine here') !== null;

  private run(call: string): RouterChoice {
    this.calls.push(call);
    this.nowMs += this.takesMs;
    if (this.fault !== null) throw this.fault;
    return { experts: Int32Array.of(this.calls.length), weights: new Float32Array() };
  }
}

describe('main: short operators', () => {
  let pass: TimedPass;
  let operators: ShortOperators;
  const attend = (options = ROW): Promise<RouterChoice> => operators.attend(pass, 0, BYTES, options);
  const combine = (layer = 0, rows = 1): Promise<void> =>
    operators.combine(pass, layer, BYTES, { rows, weights: new Float32Array() });
  const learn = async (): Promise<void> => {
    for (let call = 0; call < CALLS_OF_FORECAST; call++) {
      await attend();
      for (let layer = 0; layer < LAYERS; layer++) await combine(layer);
    }
    assert.ok(pass.calls.slice(0, CALLS_OF_FORECAST).every((call) => !call.endsWith('here')));
    pass.calls.length = 0;
  };

  beforeEach(() => {
    pass = new TimedPass();
    operators = new ShortOperators(LAYERS, () => pass.nowMs);
  });

  it('run on the thread of the event loop once some have been measured', async () => {
    await learn();
    assert.equal((await attend()).experts[0], 1, 'what was chosen there is what is given');
    await combine();
    await combine(LAYERS - 1);
    assert.deepEqual(pass.calls, ['attend here', 'combine here', 'combine here']);
  });

  it('run elsewhere where the device is busy, many rows are run, or messages are awaited', async () => {
    await learn();
    await attend({ rows: SHORT_PASS_ROWS + 1, awaitsMessages: false });
    await combine(0, SHORT_PASS_ROWS + 1);
    await attend({ rows: 1, awaitsMessages: true });
    pass.isBusy = true;
    await attend();
    await combine();
    assert.deepEqual(pass.calls, ['attend', 'combine', 'attend', 'attend', 'combine']);
  });

  it('run elsewhere on a device that does not support it', async () => {
    const { calls } = pass;
    const plain = { attend: () => pass.attend(), combine: () => pass.combine() };
    for (let call = 0; call <= CALLS_OF_FORECAST; call++) {
      await operators.attend(plain, 0, BYTES, ROW);
      await operators.combine(plain, 0, BYTES, { rows: 1, weights: new Float32Array() });
    }
    assert.ok(!calls.some((call) => call.endsWith('here')));
  });

  it('behind the last layer say nothing about the time of the others', async () => {
    await learn();
    pass.takesMs = SHORT_CALL_MS * 2;
    for (let call = 0; call < CALLS_OF_FORECAST; call++) await combine(LAYERS - 1);
    pass.calls.length = 0;
    await combine(LAYERS - 1);
    await combine();
    assert.deepEqual(pass.calls, ['combine', 'combine here']);
  });

  it('throw the error that occurred', async () => {
    await learn();
    pass.fault = new Error('no');
    await assert.rejects(attend(), /no/);
    await assert.rejects(combine(), /no/);
    assert.deepEqual(pass.calls, ['attend here', 'combine here']);
  });

  it('never run on the event loop while the latest ones all took longer', async () => {
    const times = fc.array(fc.double({ min: 0, max: 4 * SHORT_CALL_MS, noNaN: true }), { maxLength: 60 });
    await fc.assert(
      fc.asyncProperty(times, async (durationsMs) => {
        pass = new TimedPass();
        operators = new ShortOperators(LAYERS, () => pass.nowMs);
        for (const [index, durationMs] of durationsMs.entries()) {
          pass.takesMs = durationMs;
          await attend();
          const last = durationsMs.slice(Math.max(0, index - CALLS_OF_FORECAST), index);
          const isShort = last.length === CALLS_OF_FORECAST && Math.min(...last) < SHORT_CALL_MS;
          const isLong = last.length < CALLS_OF_FORECAST || Math.min(...last) > SHORT_CALL_MS + 1e-9;
          if (pass.calls.at(-1) === 'attend here') assert.ok(!isLong);
          else assert.ok(!isShort || Math.min(...last) > SHORT_CALL_MS - 1e-9);
        }
      }),
    );
  });
});
