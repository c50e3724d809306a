import assert from 'node:assert/strict';
import { chosenCases } from '../../../bench/limits/index.js';
import { listsOf, repeatedField, withElements } from '../../../bench/limits/hostile-bytes.js';
import { busyMsOf, memoryOfStatus, processorMsOfStat } from '../../../bench/limits/process-usage.js';
import {
  BESIDE_LIMIT_MS,
  type CaseFigures,
  GROWTH_LIMIT_BYTES,
  LOG_LIMIT_BYTES_PER_S,
  passedBounds,
  PROCESSOR_LIMIT_MS,
  STALL_LIMIT_MS,
} from '../../../bench/limits/verdict.js';
import { METHODS } from '../../../shared/transport/methods.js';

const FIGURES: CaseFigures = {
  answer: '400',
  expected: true,
  messages: 1,
  elapsedMs: 1000,
  processorMs: 0,
  growthBytes: 0,
  stallMs: 0,
  quietStallMs: 0,
  busyMs: 0,
  besideMs: 0,
  logBytesPerS: 0,
  alive: true,
};

describe('the process record of Linux', () => {
  it('is read behind the last bracket of a name that holds brackets and spaces', () => {
    const stat = '42 (odd) name (x) S 1 42 42 0 -1 4194304 9 8 7 6 1234 56 3 2 20 0 11 0 99 123456 789\n';
    assert.equal(processorMsOfStat(stat), 12_900);
  });

  it('has sizes in kibibytes, and times of a thread in nanoseconds', () => {
    const status = 'Name:\tnode\nVmPeak:\t 9 kB\nVmHWM:\t  2048 kB\nVmRSS:\t  1024 kB\nThreads:\t11\n';
    assert.deepEqual(memoryOfStatus(status), { peakBytes: 2 * 1024 * 1024, residentBytes: 1024 * 1024 });
    assert.equal(busyMsOf('2500000 77 3\n'), 2.5);
  });

  it('is refused where a number is missing', () => {
    for (const read of [
      () => processorMsOfStat('42 (node) S 1'),
      () => memoryOfStatus('VmRSS: 1 kB'),
      () => busyMsOf(''),
    ]) {
      assert.throws(read, { code: 'INTERNAL' });
    }
  });
});

describe('the verdict on a case of bench limits', () => {
  const BOUNDS: [name: string, at: Partial<CaseFigures>, above: Partial<CaseFigures>][] = [
    ['alive', { alive: true }, { alive: false }],
    ['answer', { expected: true }, { expected: false }],
    ['memory', { growthBytes: GROWTH_LIMIT_BYTES }, { growthBytes: GROWTH_LIMIT_BYTES + 1 }],
    ['processor', { processorMs: PROCESSOR_LIMIT_MS }, { processorMs: PROCESSOR_LIMIT_MS + 1 }],
    ['stall', { busyMs: STALL_LIMIT_MS, stallMs: 10_000 }, { busyMs: STALL_LIMIT_MS + 1 }],
    ['beside', { besideMs: BESIDE_LIMIT_MS }, { besideMs: null }],
    ['beside', {}, { besideMs: BESIDE_LIMIT_MS + 1 }],
    ['log', { logBytesPerS: LOG_LIMIT_BYTES_PER_S }, { logBytesPerS: LOG_LIMIT_BYTES_PER_S + 1 }],
  ];

  it('names each bound that was passed, and none that was only reached', () => {
    for (const [name, at, above] of BOUNDS) {
      assert.deepEqual(passedBounds({ ...FIGURES, ...at }), [], name);
      assert.deepEqual(passedBounds({ ...FIGURES, ...above }), [name]);
    }
  });

  it('includes the processor time of each message, and the bounds of the case', () => {
    const costly = {
      ...FIGURES,
      messages: 3,
      processorMs: 3 * PROCESSOR_LIMIT_MS,
      growthBytes: 2 * GROWTH_LIMIT_BYTES,
    };
    assert.deepEqual(passedBounds(costly, { growthBytes: 2 * GROWTH_LIMIT_BYTES }), []);
    assert.deepEqual(passedBounds(costly, { processorMs: PROCESSOR_LIMIT_MS - 1 }), ['memory', 'processor']);
  });
});

describe('hostile messages of bench limits', () => {
  const CODECS = { WorkerRequest: METHODS.worker.serve.request, ShadowRequest: METHODS.shadow.serve.request };

  for (const [message, codec] of Object.entries(CODECS)) {
    it(`hold one entry too many of the list that they name: each list of ${message}`, () => {
      const lists = listsOf(message);
      assert.ok(lists.length > 5, `${lists.length} lists`);
      for (const list of lists) {
        const { name, limit } = list.field;
        assert.throws(() => codec.decode(withElements(list, (limit ?? 0) + 1)), {
          code: 'PROTOCOL_VIOLATION',
          message: new RegExp(`^${name} of a \\w+ has ${(limit ?? 0) + 1} entries or more`),
        });
      }
    });
  }

  it('repeat a field as often as declared', () => {
    assert.deepEqual(repeatedField(2, 3), Buffer.from([0x12, 0, 0x12, 0, 0x12, 0]));
  });
});

describe('the cases of bench limits', () => {
  it('have unique names, and are chosen by the beginnings of their names', () => {
    const names = chosenCases(undefined).map(({ name }) => name);
    assert.equal(new Set(names).size, names.length);
    const chosen = chosenCases(['generate', 'tokenize']).map(({ name }) => name);
    assert.deepEqual(
      chosen,
      names.filter((name) => /^(generate|tokenize)/.test(name)),
    );
    assert.throws(() => chosenCases(['nothing']), { code: 'USAGE', message: /"nothing"/ });
  });
});
