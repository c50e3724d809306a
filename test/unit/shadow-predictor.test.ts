import assert from 'node:assert/strict';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { MAX_SHADOW_SEQUENCES, Predictor } from '../../shadow-node/predictor/predictor.js';
import { begin, cacheRows, PASS_ROWS, ScriptedModel } from './scripted-shadow-model.js';
import { RUNTIME } from '../wall.js';

const settled = () => new Promise((resolve) => setImmediate(resolve));

function createPredictor() {
  const model = new ScriptedModel();
  const predictions: string[] = [];
  const failures: { sequence: number; error: OdmoeError }[] = [];
  const predictor = new Predictor(
    model,
    model.createPass(),
    PASS_ROWS,
    {
      onPrediction: (sequence, { position, layer, experts }, late) =>
        predictions.push(`${sequence}@${position}/${layer}: ${experts.join(',')}${late ? ' late' : ''}`),
      onDraft: () => assert.fail('nobody has asked for drafts'),
      onRestart: () => assert.fail('nothing was guessed'),
      onPrefixKept: () => assert.fail('nobody has named a prefix'),
      onFailure: (sequence, error) => failures.push({ sequence, error }),
    },
    RUNTIME,
  );
  return { model, predictor, predictions, failures };
}

describe('shadow: the predictor', () => {
  it('predicts nothing for the prompt, then each layer of each iteration', async () => {
    const { model, predictor, predictions } = createPredictor();
    predictor.begin(begin(9));
    await settled();
    assert.deepEqual(model.passes, ['0:0,1,2']);
    assert.deepEqual(predictions, []);
    predictor.announceToken({ epoch: 1, sequence: 9, position: 3, tokenId: 4, rows: 1, nextRows: 1, branch: 0 });
    await settled();
    assert.deepEqual(model.passes, ['0:0,1,2', '0:3']);
    assert.deepEqual(predictions, ['9@3/0: 3,0', '9@3/1: 0,1']);
    assert.equal(predictor.counts().predictedPositions, 1);
    assert.equal(predictor.counts().alignedTokens, 1);
  });

  it('runs sequences in turns, a long prompt in pieces, and iterations first', async () => {
    const { model, predictor } = createPredictor();
    model.held = true;
    predictor.begin(begin(1, { tokenIds: Array.from({ length: 12 }, () => 1), promptTokens: 12 }));
    predictor.begin(begin(2));
    predictor.announceToken({ epoch: 1, sequence: 2, position: 3, tokenId: 4, rows: 1, nextRows: 1, branch: 0 });
    await settled();
    model.release();
    await settled();
    assert.deepEqual(model.passes, ['0:0,1,2,3', '1:0,1,2 0:4', '1:3', '0:5,6,7,8', '0:9,10,11']);
  });

  it('marks late predictions: those of positions that main has passed', async () => {
    const { predictor, predictions } = createPredictor();
    predictor.begin(begin(1));
    for (const position of [3, 4, 5])
      predictor.announceToken({ epoch: 1, sequence: 1, position, tokenId: 4, rows: 1, nextRows: 1, branch: 0 });
    await settled();
    const late = predictions.filter((prediction) => prediction.endsWith(' late'));
    assert.deepEqual(
      late.map((prediction) => prediction.slice(0, 5)),
      ['1@3/0', '1@4/0', '1@3/1', '1@4/1'],
    );
    assert.equal(predictions.length, 6);
  });

  it('writes main’s rows between passes, as soon as they are due', async () => {
    const { model, predictor } = createPredictor();
    predictor.begin(begin(1, { alignKvPeriod: 1 }));
    await settled();
    for (const layer of [0, 1]) predictor.addRows(cacheRows(1, layer, 0, 3));
    await settled();
    assert.deepEqual(model.written, ['0:0:0+3', '0:1:0+3'], 'the prompt’s rows need not wait for the first token');
    predictor.announceToken({ epoch: 1, sequence: 1, position: 3, tokenId: 4, rows: 1, nextRows: 1, branch: 0 });
    await settled();
    predictor.addRows(cacheRows(1, 0, 3, 1));
    await settled();
    assert.deepEqual(model.written.slice(2), ['0:0:3+1']);
    assert.equal(predictor.counts().alignedRows, 3, 'a row counts once, with its last layer');
  });

  it('never writes rows while a pass of the sequence runs', async () => {
    const { model, predictor } = createPredictor();
    predictor.begin(begin(1, { alignKvPeriod: 1 }));
    await settled();
    predictor.announceToken({ epoch: 1, sequence: 1, position: 3, tokenId: 4, rows: 1, nextRows: 1, branch: 0 });
    model.held = true;
    await settled();
    predictor.addRows(cacheRows(1, 0, 3, 1));
    await settled();
    assert.deepEqual(model.written, []);
    model.release();
    await settled();
    assert.deepEqual(model.written, ['0:0:3+1']);
  });

  it('frees a sequence that ends during its pass after the pass, and then sends nothing more for it', async () => {
    const { model, predictor, predictions } = createPredictor();
    predictor.begin(begin(1));
    await settled();
    model.held = true;
    predictor.announceToken({ epoch: 1, sequence: 1, position: 3, tokenId: 4, rows: 1, nextRows: 1, branch: 0 });
    await settled();
    predictor.end(1);
    assert.deepEqual(model.disposed, []);
    model.release();
    await settled();
    assert.deepEqual(model.disposed, [0]);
    assert.deepEqual(predictions, []);
  });

  it('drops only the affected sequence when the device fails', async () => {
    const { model, predictor, predictions, failures } = createPredictor();
    model.failure = new OdmoeError('DEVICE_OUT_OF_MEMORY', 'full');
    predictor.begin(begin(1));
    await settled();
    assert.deepEqual(
      failures.map(({ sequence, error }) => [sequence, error.code]),
      [[1, 'DEVICE_OUT_OF_MEMORY']],
    );
    assert.deepEqual(model.disposed, [0]);
    model.failure = null;
    predictor.announceToken({ epoch: 1, sequence: 1, position: 3, tokenId: 4, rows: 1, nextRows: 1, branch: 0 });
    predictor.begin(begin(2));
    predictor.announceToken({ epoch: 1, sequence: 2, position: 3, tokenId: 4, rows: 1, nextRows: 1, branch: 0 });
    await settled();
    assert.deepEqual(predictions, ['2@3/0: 3,0', '2@3/1: 0,1']);
  });

  it('fails only the sequence whose event handler throws', async () => {
    const model = new ScriptedModel();
    const failures: number[] = [];
    const predictor = new Predictor(
      model,
      model.createPass(),
      PASS_ROWS,
      {
        onPrediction: () => {
          throw new Error('no use for it');
        },
        onDraft: () => undefined,
        onRestart: () => undefined,
        onPrefixKept: () => assert.fail('nobody has named a prefix'),
        onFailure: (sequence) => failures.push(sequence),
      },
      RUNTIME,
    );
    predictor.begin(begin(1));
    predictor.announceToken({ epoch: 1, sequence: 1, position: 3, tokenId: 4, rows: 1, nextRows: 1, branch: 0 });
    await settled();
    assert.deepEqual(failures, [1]);
  });

  it('begins a sequence again from the start', async () => {
    const { model, predictor } = createPredictor();
    predictor.begin(begin(1));
    await settled();
    predictor.begin(begin(1, { tokenIds: [1, 2, 3, 4, 5] }));
    await settled();
    assert.deepEqual(model.disposed, [0]);
    assert.deepEqual(model.passes.slice(1), ['1:0,1,2,3', '1:4']);
  });

  it('refuses invalid tokens, positions, gaps, rows, and too many sequences', () => {
    const { predictor } = createPredictor();
    const violation = { code: 'PROTOCOL_VIOLATION' };
    assert.throws(() => predictor.begin(begin(1, { tokenIds: [1, 99, 3] })), violation);
    assert.throws(() => predictor.begin(begin(1, { tokenIds: [], promptTokens: 0 })), violation);
    assert.throws(() => predictor.begin(begin(1, { maxPositions: 65 })), violation);
    assert.throws(() => predictor.begin(begin(1, { maxPositions: 2 })), violation);
    predictor.begin(begin(1, { alignKvPeriod: 1 }));
    assert.throws(
      () =>
        predictor.announceToken({ epoch: 1, sequence: 1, position: 5, tokenId: 1, rows: 1, nextRows: 1, branch: 0 }),
      violation,
    );
    assert.throws(
      () =>
        predictor.announceToken({ epoch: 1, sequence: 1, position: 3, tokenId: 50, rows: 1, nextRows: 1, branch: 0 }),
      violation,
    );
    assert.throws(() => predictor.addRows(cacheRows(1, 2, 0, 1)), violation);
    assert.throws(() => predictor.addRows(cacheRows(1, 0, 19, 2)), violation);
    assert.throws(() => predictor.addRows({ ...cacheRows(1, 0, 0, 2), rows: 3 }), violation);
    const rows = cacheRows(1, 0, 0, 1);
    const notNumbers = new Uint8Array(rows.values.byteLength).fill(0xff);
    assert.throws(() => predictor.addRows({ ...rows, values: notNumbers }), {
      ...violation,
      message: /no finite numbers/,
    });
    for (let sequence = 2; sequence <= MAX_SHADOW_SEQUENCES; sequence += 1) predictor.begin(begin(sequence));
    assert.throws(() => predictor.begin(begin(0)), { code: 'QUEUE_FULL' });
  });

  it('stops after the running pass, and does nothing afterwards', async () => {
    const { model, predictor } = createPredictor();
    model.held = true;
    predictor.begin(begin(1));
    await settled();
    let stopped = false;
    const stopping = predictor.stop().then(() => (stopped = true));
    await settled();
    assert.equal(stopped, false);
    model.release();
    await stopping;
    assert.deepEqual(model.disposed, [0]);
    assert.deepEqual(model.passes, ['0:0,1,2']);
  });
});
