import assert from 'node:assert/strict';
import fc from 'fast-check';
import type { Execute } from '../../shared/wire/messages.js';
import { ExpertExecutor, type ExecutingSlots } from '../../worker-node/executor/expert-executor.js';
import { inPlaces, readingOrder } from '../../worker-node/executor/reading-order.js';
import { plainExecute } from './wire-messages.js';
import { silentLog } from './worker-test-slots.js';

const ROW_BYTES = 4;
const asked = fc.array(fc.boolean(), { minLength: 1, maxLength: 40 });
const placesOf = (isUpper: readonly boolean[]): number[] => [...isUpper.keys()].filter((place) => isUpper[place]);

/** The expert in every slot adds 1 to a row that reads both slices, and 2 to another one. */
const ADDING_SLOTS: ExecutingSlots = {
  execute: async (_slot, rows, hidden, output, readings = []) => {
    for (let row = 0; row < rows; row += 1) {
      const added = readings.length === 0 || readings[row] === 'both' ? 1 : 2;
      output[row * ROW_BYTES] = (hidden[row * ROW_BYTES] ?? 0) + added;
    }
    return { executeMs: 0 };
  },
};

describe('worker: the order of rows with different readings', () => {
  it('puts rows of one reading together, and outputs back in their places', () => {
    fc.assert(
      fc.property(asked, (isUpper) => {
        const { readings, places } = readingOrder(isUpper.length, placesOf(isUpper));
        const order = places ?? [...isUpper.keys()];
        assert.deepEqual(
          order.map((place) => isUpper[place] === true),
          order.map((_, at) => readings.length > 0 && readings[at] !== 'both'),
        );
        assert.ok(readings.filter((reading, at) => at > 0 && reading !== readings[at - 1]).length <= 1);
        assert.deepEqual([...inPlaces(Buffer.from(order), places, 1)], [...isUpper.keys()]);
      }),
    );
  });

  it('changes no result of an executor, whichever rows of a message an expert has', async () => {
    const chosen = fc.array(fc.record({ isChosen: fc.boolean(), isUpper: fc.boolean() }), {
      minLength: 1,
      maxLength: 12,
    });
    await fc.assert(
      fc.asyncProperty(chosen, async (all) => {
        const rows = [...all.keys()].filter((row) => all[row]?.isChosen === true);
        if (rows.length === 0) return;
        const isUpper = rows.map((row) => all[row]?.isUpper === true);
        const hidden = Buffer.alloc(all.length * ROW_BYTES);
        for (const row of all.keys()) hidden[row * ROW_BYTES] = 10 * row;
        const request: Execute = {
          ...plainExecute({ layer: 0, expert: 0, rows: all.length, hidden }),
          experts: [{ expert: 0, rows: rows.length === all.length ? [] : rows, last: true, upper: placesOf(isUpper) }],
        };
        const outputs: Uint8Array[] = [];
        const executor = new ExpertExecutor(ADDING_SLOTS, 4, () => 0, silentLog);
        executor.hold(0, request, (reply) => {
          if (reply.kind === 'result') outputs.push(...reply.result.experts.map(({ output }) => output));
        });
        await executor.run(0, 0, true, { endedMs: 0, tookMs: 0 });
        const values = rows.map((_, at) => outputs[0]?.[at * ROW_BYTES]);
        assert.deepEqual(
          values,
          rows.map((row, at) => (10 * row + (isUpper[at] === true ? 2 : 1)) % 256),
        );
      }),
    );
  });
});
