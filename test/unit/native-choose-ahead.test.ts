import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Device, Model, Pass } from '../../native/index.js';
import { densePlaces } from '../../shared/model/dense-roles.js';
import {
  denseName,
  FIXTURE_SHAPE,
  fixtureReference,
  loadFixture,
  openTestDevice,
  sourceOf,
} from './native-test-model.js';

const { hiddenSize, expertsPerToken } = FIXTURE_SHAPE;
const TOKENS = (fixtureReference.references[0]?.prompt_token_ids ?? []).slice(0, 6);
const FLOAT_BYTES = 4;
const QUERY_SIZE = 4 * 16;

/** The fixture's model, but the attention of layer 1 gives zeros. */
async function loadSilenced(device: Device): Promise<Model> {
  const directory = mkdtempSync(join(tmpdir(), 'odmoe-ahead-'));
  const path = join(directory, 'zeros');
  const bytes = hiddenSize * QUERY_SIZE * 2;
  const chunk = { plane: 0, path, offsetBytes: 0, storedBytes: bytes, plainBytes: bytes };
  const chunks = [{ ...chunk, codec: 'raw' as const, crc32c: null }];
  const zeros = { rows: hiddenSize, columns: QUERY_SIZE, split: 'none-bf16' as const, chunks, view: null };
  const model = device.createModel(FIXTURE_SHAPE);
  try {
    writeFileSync(path, new Uint8Array(bytes));
    for (const { role, layer } of densePlaces(FIXTURE_SHAPE, true)) {
      const silenced = role === 'mixerOutput' && layer === 1;
      await model.loadDense(role, layer, silenced ? zeros : sourceOf(denseName(role, layer)), 'bf16');
    }
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
  return model;
}

async function begun(
  model: Model,
  allScores = false,
): Promise<{ pass: Pass; hidden: Uint8Array; outputs: Uint8Array }> {
  const pass = model.createPass(TOKENS.length, allScores);
  const positions = Int32Array.from(TOKENS.keys());
  await pass.begin([model.createSequence()], new Int32Array(TOKENS.length), positions, Int32Array.from(TOKENS));
  const hidden = new Uint8Array(TOKENS.length * hiddenSize * FLOAT_BYTES);
  return { pass, hidden, outputs: new Uint8Array(expertsPerToken * hidden.length) };
}

describe('the early choice of a router', () => {
  it('equals its later choice where nothing comes in between', async () => {
    const device = openTestDevice({ threads: 1 });
    const model = await loadSilenced(device);
    const { pass, hidden, outputs } = await begun(model);
    const first = await pass.attend(0, hidden);
    const ahead = await pass.chooseAhead(1);
    // The experts give zeros, as layer 1's attention does.
    await pass.combine(0, outputs, first.weights);
    const chosen = await pass.attend(1, hidden);
    assert.deepEqual(ahead, chosen);
    assert.notDeepEqual(ahead.experts, first.experts);
    device.dispose();
  });

  it('has no scores of the experts that were not chosen, though the pass answers them', async () => {
    const device = openTestDevice({ threads: 1 });
    const model = await loadFixture(device, { experts: false });
    const { pass, hidden } = await begun(model, true);
    assert.ok((await pass.attend(0, hidden)).scores !== undefined);
    const { logits, scores } = await pass.chooseAhead(1);
    assert.deepEqual([logits, scores], [undefined, undefined]);
    device.dispose();
  });

  it('changes no output of the pass', async () => {
    const device = openTestDevice({ threads: 1 });
    const model = await loadFixture(device, { experts: false });
    const run = async (asks: boolean): Promise<unknown[]> => {
      const { pass, hidden, outputs } = await begun(model);
      const seen: unknown[] = [];
      for (let layer = 0; layer < FIXTURE_SHAPE.expertLayers; layer += 1) {
        const choice = await pass.attend(layer, hidden);
        for (let next = layer + 1; asks && next < FIXTURE_SHAPE.expertLayers; next += 1) await pass.chooseAhead(next);
        outputs.set(new Uint8Array(Float32Array.from({ length: outputs.length / 4 }, (_, i) => Math.sin(i)).buffer));
        await pass.combine(layer, outputs, choice.weights);
        seen.push(choice, hidden.slice());
      }
      seen.push(await pass.logits(Int32Array.from(TOKENS.keys())));
      pass.dispose();
      return seen;
    };
    assert.deepEqual(await run(true), await run(false));
    device.dispose();
  });

  it('works between attend and combine, for a later layer only; otherwise the pass goes on unharmed', async () => {
    const device = openTestDevice({ threads: 1 });
    const model = await loadFixture(device, { experts: false });
    const { pass, hidden, outputs } = await begun(model);
    await assert.rejects(pass.chooseAhead(1), { code: 'INTERNAL' });
    const choice = await pass.attend(0, hidden);
    for (const layer of [0, FIXTURE_SHAPE.expertLayers]) {
      await assert.rejects(pass.chooseAhead(layer), { code: 'INTERNAL' });
    }
    await pass.combine(0, outputs, choice.weights);
    await assert.rejects(pass.chooseAhead(2), { code: 'INTERNAL' });
    await pass.attend(1, hidden);
    device.dispose();
  });
});
