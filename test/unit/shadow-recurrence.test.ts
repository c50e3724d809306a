import assert from 'node:assert/strict';
import { Predictor } from '../../shadow-node/predictor/predictor.js';
import type { MainToken } from '../../shadow-node/predictor/alignment.js';
import { plainLayer } from './plain-shape.js';
import { begin, PASS_ROWS, ScriptedModel, SHAPE } from './scripted-shadow-model.js';
import { RUNTIME } from '../wall.js';

const settled = () => new Promise((resolve) => setImmediate(resolve));
const ROW_FLOATS = 8;

/** Its second layer is a recurrence that can be cut back by `kept` positions. */
function createPredictor(kept: number) {
  const attention = plainLayer();
  const recurrence = { ...attention, mixer: { kind: 'convolution', taps: 2 } as const };
  const model = new ScriptedModel({ ...SHAPE, layers: [attention, recurrence] });
  model.oldestPosition = (length) => Math.max(0, length - kept);
  const sent: string[] = [];
  const predictor = new Predictor(
    model,
    model.createPass(),
    PASS_ROWS,
    {
      onPrediction: (_sequence, { position, layer }) => void sent.push(`${position}/${layer}`),
      onDraft: () => undefined,
      onRestart: (_sequence, position) => void sent.push(`restart ${position}`),
      onPrefixKept: () => assert.fail('nobody has named a prefix'),
      onFailure: (_sequence, error) => assert.fail(error),
    },
    RUNTIME,
  );
  const announce = async (position: number, tokenId: number, more: Partial<MainToken> = {}): Promise<void> => {
    predictor.announceToken({ epoch: 1, sequence: 1, position, tokenId, rows: 1, nextRows: 1, branch: 0, ...more });
    await settled();
  };
  const addRows = async (layer: number, position: number, rows: number): Promise<void> => {
    const floats = layer === 0 ? 2 : ROW_FLOATS;
    const values = new Uint8Array(rows * floats * 4);
    predictor.addRows({ epoch: 1, sequence: 1, layer, position, rows, values });
    await settled();
  };
  return { model, predictor, sent: sent, announce, addRows };
}

describe('shadow: a recurrent model', () => {
  it("takes main's rows that can still be written, and all rows of attention", async () => {
    const { model, predictor, addRows } = createPredictor(2);
    predictor.begin(begin(1, { tokenIds: [1, 2, 3, 4], promptTokens: 4, alignKvPeriod: 1 }));
    await settled();
    for (const layer of [0, 1]) await addRows(layer, 0, 4);
    assert.deepEqual(model.written, ['0:0:0+4', '0:1:2+2']);
    await addRows(1, 0, 2);
    assert.equal(model.written.length, 2, 'what is too old is let go');
  });

  it('is cut back where a guess was wrong', async () => {
    const { model, predictor, sent: sent, announce } = createPredictor(4);
    predictor.begin(begin(1, { optimistic: true }));
    await announce(3, 5, { nextRows: 3 });
    assert.equal(model.ran.length, 7);
    await announce(4, 20, { nextRows: 3, branch: 1 });
    assert.deepEqual(model.truncated, ['0:4']);
    assert.deepEqual(sent.slice(8, 11), ['restart 4', '4/0', '4/1']);
  });

  it('runs again, and continues where it was, when the wrong guess is too far back for a cut', async () => {
    const { model, predictor, sent: sent, announce } = createPredictor(2);
    predictor.begin(begin(1, { optimistic: true }));
    await announce(3, 5, { nextRows: 3 });
    model.passes.length = 0;
    await announce(4, 20, { nextRows: 3, branch: 1 });
    assert.deepEqual(model.truncated, ['0:0']);
    assert.deepEqual(model.passes.slice(0, 2), ['0:0,1,2,3', '0:4']);
    assert.deepEqual(model.ran.slice(0, 5), [1, 2, 3, 5, 20]);
    assert.deepEqual(sent.slice(8, 11), ['restart 4', '4/0', '4/1'], 'nothing is predicted once more');
  });
});
