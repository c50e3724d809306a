import assert from 'node:assert/strict';
import fc from 'fast-check';
import type { Sequence } from '../../native/index.js';
import { RowAlignment } from '../../shadow-node/predictor/row-alignment.js';
import { RowInbox } from '../../shadow-node/predictor/row-inbox.js';
import type { AlignRows } from '../../shared/wire/messages.js';
import { plainShape } from './plain-shape.js';

const ROW_BYTES = 4;

/** Every row holds its layer and position, so that a row out of place shows. */
function rowsOf(layer: number, position: number, rows: number): AlignRows {
  const values = new Uint8Array(rows * ROW_BYTES);
  for (let row = 0; row < rows; row += 1) values.set([layer, position + row], row * ROW_BYTES);
  return { epoch: 1, sequence: 1, layer, position, rows, values };
}

describe('shadow: row alignment', () => {
  it('retries rows that could not be written, each once and in order', () => {
    const written: string[] = [];
    let failing = 2;
    const cache = {
      oldestPosition: 0,
      writeRows: (layer: number, position: number, rows: number) => {
        if (written.length === 2 && failing-- > 0) throw new Error('no memory');
        written.push(`${layer}:${position}-${position + rows}`);
      },
    } as unknown as Sequence;
    const alignment = new RowAlignment(plainShape({ expertLayers: 2 }));
    for (const [layer, position] of [
      [0, 0],
      [1, 0],
      [0, 3],
      [1, 3],
    ] as const)
      assert.ok(alignment.add(rowsOf(layer, position, 3)));
    for (let time = 0; time < 2; time += 1) assert.throws(() => alignment.write(cache, 6), /no memory/);
    assert.equal(written.length, 2);
    alignment.write(cache, 6);
    assert.deepEqual([...written].sort(), ['0:0-3', '0:3-6', '1:0-3', '1:3-6']);
    assert.equal(alignment.alignedBelow, 6);
    assert.equal(alignment.write(cache, 6), 0);
  });
});

describe('shadow: the row inbox', () => {
  it('gives out every row once, in order, cut at the requested position', () => {
    const stretch = fc.record({
      layer: fc.nat(3),
      position: fc.nat(20),
      rows: fc.integer({ min: 1, max: 6 }),
    });
    fc.assert(
      fc.property(fc.array(stretch, { maxLength: 20 }), fc.array(fc.nat(30), { maxLength: 6 }), (stretches, cuts) => {
        const inbox = new RowInbox();
        for (const { layer, position, rows } of stretches) assert.ok(inbox.add(rowsOf(layer, position, rows)));
        const given: string[] = [];
        for (const cut of [...cuts, 100]) {
          for (const rows of inbox.takeBelow(cut)) {
            assert.ok(rows.position + rows.rows <= cut);
            assert.deepEqual([...rows.values], [...rowsOf(rows.layer, rows.position, rows.rows).values]);
            for (let row = 0; row < rows.rows; row += 1) given.push(`${rows.layer}:${rows.position + row}`);
          }
        }
        const expected = stretches.flatMap(({ layer, position, rows }) =>
          Array.from({ length: rows }, (_, row) => `${layer}:${position + row}`),
        );
        assert.deepEqual(given.sort(), expected.sort());
        assert.equal(inbox.waitingBytes, 0);
      }),
    );
  });

  it('drops the rows from a position on, and cuts a range that crosses it', () => {
    const inbox = new RowInbox();
    for (const [layer, position] of [
      [0, 2],
      [1, 4],
      [2, 6],
    ] as const) {
      inbox.add(rowsOf(layer, position, 3));
    }
    inbox.dropFrom(5);
    assert.equal(inbox.waitingBytes, (3 + 1) * ROW_BYTES);
    const left = inbox.takeBelow(100).map(({ layer, position, rows }) => [layer, position, rows]);
    assert.deepEqual(left, [
      [0, 2, 3],
      [1, 4, 1],
    ]);
  });

  it('holds no more than its limit, and has room again when rows have been taken', () => {
    const inbox = new RowInbox(4 * ROW_BYTES);
    assert.equal(inbox.add(rowsOf(0, 0, 3)), true);
    assert.equal(inbox.add(rowsOf(0, 3, 2)), false);
    assert.equal(inbox.add(rowsOf(0, 3, 1)), true);
    assert.equal(inbox.takeBelow(2).length, 1);
    assert.equal(inbox.waitingBytes, 2 * ROW_BYTES);
    assert.equal(inbox.add(rowsOf(0, 4, 2)), true);
  });
});
