import assert from 'node:assert/strict';
import fc from 'fast-check';
import type { Sequence } from '../../native/index.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { BeginSequence } from '../../shared/wire/messages.js';
import {
  retainedLimitsFor,
  RetainedSequences,
  prefixPositions,
  type RetainedLimits,
  type RanSequence,
} from '../../shadow-node/predictor/retained-sequences.js';
import { Predictor } from '../../shadow-node/predictor/predictor.js';
import { begin, cacheRows, PASS_ROWS, ScriptedModel, SHAPE } from './scripted-shadow-model.js';
import { RUNTIME } from '../wall.js';

const settled = () => new Promise((resolve) => setImmediate(resolve));
const ROOM: RetainedLimits = { sequences: 4, bytes: 1000 };

function createPredictor(limits: RetainedLimits = ROOM) {
  const model = new ScriptedModel();
  const sent: string[] = [];
  const failures: string[] = [];
  const predictor = new Predictor(
    model,
    model.createPass(),
    PASS_ROWS,
    {
      onPrediction: (sequence, { position, layer }) => sent.push(`${sequence}@${position}/${layer}`),
      onDraft: () => undefined,
      onRestart: (sequence, position) => sent.push(`${sequence}@${position} restart`),
      onPrefixKept: (sequence, positions) => sent.push(`${sequence} has ${positions}`),
      onFailure: (sequence, error) => failures.push(`${sequence}: ${error.code}`),
    },
    RUNTIME,
    undefined,
    limits,
  );
  const announce = (sequence: number, position: number, tokenId: number): void =>
    predictor.announceToken({ epoch: 1, sequence, position, tokenId, rows: 1, nextRows: 1, branch: 0 });
  /** Native sequence 0, of tokens 1, 2, 3 and 4; it has ended. */
  const keepOne = async (changes: Partial<BeginSequence> = {}): Promise<void> => {
    predictor.begin(begin(1, changes));
    announce(1, 3, 4);
    await settled();
    predictor.end(1);
    sent.length = 0;
    model.passes.length = 0;
  };
  return { model, predictor, sent: sent, failures, announce, keepOne };
}

const after = (sequence: number, tokenIds: number[], positions: number, changes: Partial<BeginSequence> = {}) =>
  begin(sequence, {
    tokenIds,
    promptTokens: tokenIds.length,
    prefixSequence: 1,
    prefixPositions: positions,
    ...changes,
  });

describe('shadow: stored sequences', () => {
  it('include an ended one, and a sequence with the same beginning runs only new rows', async () => {
    const { model, predictor, sent: sent, announce, keepOne } = createPredictor();
    await keepOne();
    assert.deepEqual(model.disposed, []);
    predictor.begin(after(2, [1, 2, 3, 4, 9, 9], 4));
    await settled();
    assert.deepEqual(model.forked, ['0:4 -> 2']);
    assert.deepEqual(sent, ['2 has 4']);
    assert.deepEqual(model.passes, ['2:4,5']);
    announce(2, 6, 5);
    await settled();
    assert.deepEqual(sent.slice(1), ['2@6/0', '2@6/1']);
    predictor.end(2);
    assert.equal(predictor.retainedCount, 2);
  });

  it('include a running one, between two passes', async () => {
    const { model, predictor, sent: sent, announce } = createPredictor();
    predictor.begin(begin(1));
    await settled();
    model.held = true;
    announce(1, 3, 4);
    await settled();
    predictor.begin(after(2, [1, 2, 3, 4, 9, 9], 4));
    announce(2, 6, 5);
    await settled();
    assert.deepEqual(model.forked, [], 'a pass runs on it');
    model.release();
    await settled();
    assert.deepEqual(model.forked, ['0:4 -> 2']);
    assert.deepEqual(model.passes.slice(2), ['2:4,5', '2:6']);
    assert.ok(sent.includes('2 has 4'));
  });

  it('include one that ends during a pass, after that pass, as long as before it', async () => {
    const { model, predictor, announce } = createPredictor();
    predictor.begin(begin(1));
    await settled();
    model.heldLayer = 1;
    announce(1, 3, 4);
    await settled();
    predictor.end(1);
    await settled();
    assert.deepEqual([model.cancelled, model.disposed], [1, []]);
    model.release();
    predictor.begin(after(2, [1, 2, 3, 4, 9, 9], 4));
    await settled();
    assert.deepEqual(model.forked, ['0:3 -> 2']);
  });

  it('exclude one that ends during a pass if main leaves before the pass has ended', async () => {
    const { model, predictor, announce } = createPredictor();
    predictor.begin(begin(1));
    await settled();
    model.heldLayer = 1;
    announce(1, 3, 4);
    await settled();
    predictor.end(1);
    predictor.clear();
    model.release();
    await settled();
    assert.deepEqual([model.disposed, predictor.retainedCount], [[0], 0]);
  });

  it('exclude an unknown one, and shadow then runs all rows', async () => {
    const { model, predictor, sent: sent } = createPredictor();
    predictor.begin(after(2, [1, 2, 3], 2));
    predictor.begin(after(3, [1, 2, 3], 2, { prefixSequence: 3 }));
    await settled();
    assert.deepEqual(sent, ['2 has 0', '3 has 0']);
    assert.deepEqual([...model.passes].sort(), ['0:0,1,2 1:0', '1:1,2']);
  });

  it('restart before rows that main has not aligned, and all arrived rows are written', async () => {
    const { model, predictor, sent: sent, announce } = createPredictor();
    predictor.begin(begin(1, { alignKvPeriod: 1 }));
    for (const layer of [0, 1]) predictor.addRows(cacheRows(1, layer, 0, 3));
    await settled();
    announce(1, 3, 4);
    await settled();
    predictor.addRows(cacheRows(1, 0, 3, 1));
    await settled();
    model.held = true;
    announce(1, 4, 4);
    await settled();
    predictor.addRows(cacheRows(1, 1, 3, 1));
    model.release();
    predictor.end(1);
    await settled();
    assert.ok(model.written.includes('0:1:3+1'));
    sent.length = 0;
    predictor.begin(after(2, [1, 2, 3, 4, 4, 9], 5, { alignKvPeriod: 1 }));
    predictor.begin(after(3, [1, 2, 3, 4, 4, 9], 5));
    await settled();
    assert.deepEqual(sent.slice(0, 2), ['2 has 4', '3 has 4'], 'the last pass had been given up');
  });

  it('refuse a prefix that is longer than the stored one', () => {
    const { predictor } = createPredictor();
    assert.throws(() => predictor.begin(after(2, [1, 2, 3], 4)), { code: 'PROTOCOL_VIOLATION' });
  });

  it('are dropped first where memory is short, then the youngest sequence', async () => {
    const { model, predictor, failures, announce, keepOne } = createPredictor();
    await keepOne();
    for (const id of [2, 3]) predictor.begin(begin(id));
    await settled();
    await settled();
    let most = 2;
    model.failureOf = (ids) =>
      model.disposed.length + most < 3 && ids.length > 0 ? new OdmoeError('DEVICE_OUT_OF_MEMORY', 'full') : null;
    announce(2, 3, 4);
    announce(3, 3, 4);
    await settled();
    assert.deepEqual([model.disposed, failures], [[0], []]);
    most = 1;
    announce(2, 4, 4);
    announce(3, 4, 4);
    await settled();
    assert.deepEqual([model.disposed, failures], [[0, 2], ['3: DEVICE_OUT_OF_MEMORY']]);
    assert.equal(model.passes.at(-1), '1:4');
  });

  it('are all forgotten when main leaves', async () => {
    const { model, predictor, keepOne } = createPredictor();
    await keepOne();
    predictor.clear();
    assert.deepEqual(model.disposed, [0]);
    assert.equal(predictor.retainedCount, 0);
  });
});

describe('shadow: the limits of stored sequences', () => {
  const cacheOf = (disposed: number[], id: number): Sequence =>
    Object.assign(new ScriptedModel().createSequence(), { dispose: () => void disposed.push(id) });

  it('bound their number and memory: the least recently used goes first', () => {
    const disposed: number[] = [];
    const model = { sequenceBytes: 10 };
    const kept = new RetainedSequences(model, { sequences: 3, bytes: 100 });
    for (const id of [1, 2, 3]) kept.add(id, { cache: cacheOf(disposed, id), tokenIds: [], alignedBelow: 0 });
    assert.ok(kept.use(1) !== null);
    kept.add(4, { cache: cacheOf(disposed, 4), tokenIds: [], alignedBelow: 0 });
    assert.deepEqual(disposed, [2]);
    assert.equal(kept.use(2), null);
    model.sequenceBytes = 101;
    kept.dropExcess();
    assert.deepEqual([disposed, kept.size], [[2, 3, 1, 4], 0]);
  });

  it('allow half of the device’s budget beside the weights', () => {
    assert.equal(retainedLimitsFor({ budgetBytes: 1000, usedBytes: 800 }).bytes, 100);
    assert.equal(retainedLimitsFor({ budgetBytes: 1000, usedBytes: 1200 }).bytes, 0);
    assert.ok(retainedLimitsFor({ budgetBytes: 0, usedBytes: 800 }).bytes > 0);
  });

  it('allow a start with equal tokens, except for one, as far as the sequence can be cut back', () => {
    const tokens = fc.array(fc.integer({ min: 1, max: 2 }), { minLength: 1, maxLength: 8 });
    const numbers = fc.integer({ min: 0, max: 8 });
    fc.assert(
      fc.property(
        tokens,
        tokens,
        numbers,
        numbers,
        numbers,
        fc.boolean(),
        (ran, tokenIds, most, aligned, old, aligns) => {
          const oldest = Math.min(old, ran.length);
          const cache = Object.assign(new ScriptedModel(SHAPE).createSequence(), { length: ran.length });
          Object.defineProperty(cache, 'oldestPosition', { value: oldest });
          const source: RanSequence = { cache, tokenIds: ran, alignedBelow: aligned };
          const alignKvPeriod = aligns ? 1 : 0;
          const positions = prefixPositions(source, { tokenIds, prefixPositions: most, alignKvPeriod });
          assert.ok(positions <= most && positions < tokenIds.length && positions <= ran.length);
          assert.deepEqual(ran.slice(0, positions), tokenIds.slice(0, positions));
          assert.ok(positions === 0 || positions >= oldest);
          if (aligns && positions > oldest) assert.ok(positions <= aligned);
          const next = positions + 1;
          const couldBeMore =
            oldest <= next && next <= Math.min(most, tokenIds.length - 1, ran.length) && (!aligns || next <= aligned);
          assert.ok(!couldBeMore || ran[positions] !== tokenIds[positions]);
        },
      ),
    );
  });
});
