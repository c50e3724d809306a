import assert from 'node:assert/strict';
import { setImmediate } from 'node:timers/promises';
import { type Device, type Model, type Pass } from '../../native/index.js';
import { FIXTURE_SHAPE, bits, fixtureReference, loadFixture, openTestDevice } from './native-test-model.js';
import { onPaced } from './paced-device-setting.js';

const { hiddenSize, expertLayers, expertsPerToken } = FIXTURE_SHAPE;
const TOKENS = (fixtureReference.references[0]?.prompt_token_ids ?? []).slice(0, 3);
const FLOATS = TOKENS.length * hiddenSize;
const FLOAT_BYTES = Float32Array.BYTES_PER_ELEMENT;

async function begin(model: Model, pass: Pass): Promise<void> {
  const rows = new Int32Array(TOKENS.length);
  await pass.begin([model.createSequence()], rows, Int32Array.from(TOKENS.keys()), Int32Array.from(TOKENS));
}

/** The residual stream before each expert layer and behind the last; experts give the output 0.5 everywhere. */
async function streams(device: Device): Promise<string[]> {
  const model = await loadFixture(device, { experts: false });
  const pass = model.createPass(TOKENS.length);
  const hidden = new Uint8Array(FLOATS * FLOAT_BYTES);
  const outputs = new Uint8Array(new Float32Array(FLOATS * expertsPerToken).fill(0.5).buffer);
  const states = new Float32Array(FLOATS);
  const seen: string[] = [];
  const look = async (): Promise<void> => {
    await pass.residual(states);
    seen.push(bits(states).join());
  };
  await begin(model, pass);
  for (let layer = 0; layer < expertLayers; layer += 1) {
    await look();
    const { weights } = await pass.attend(layer, hidden);
    await pass.combine(layer, outputs, weights);
  }
  await look();
  return seen;
}

describe('the residual stream of a pass', () => {
  let device: Device;

  beforeEach(() => {
    device = openTestDevice({ threads: 1 });
  });

  afterEach(() => device.dispose());

  it('changes from layer to layer, and is the same on a paced device', async () => {
    const seen = await streams(device);
    assert.equal(new Set(seen).size, expertLayers + 1);
    await onPaced(async (paced) => assert.deepEqual(await streams(paced), seen));
  });

  it('does not change by being read, on either thread', async () => {
    const model = await loadFixture(device, { experts: true });
    const pass = model.createPass(TOKENS.length);
    const states = new Float32Array(FLOATS);
    await begin(model, pass);
    await pass.forward(null);
    const expected = bits(await pass.logits(Int32Array.of(2)));
    await begin(model, pass);
    await pass.residual(states);
    const here = new Float32Array(FLOATS);
    const copied = (): boolean => pass.residualHere?.(here) ?? assert.fail('a processor works on any thread');
    // The executor may not have put the last call away yet.
    while (!copied()) await setImmediate();
    assert.deepEqual(bits(here), bits(states));
    await pass.forward(null);
    assert.deepEqual(bits(await pass.logits(Int32Array.of(2))), expected);
  });

  it('is refused before begin, between attend and combine, and for an array of another size', async () => {
    const model = await loadFixture(device, { experts: false });
    const pass = model.createPass(TOKENS.length);
    const states = new Float32Array(FLOATS);
    await assert.rejects(pass.residual(states), /after begin and after combine/);
    await begin(model, pass);
    await assert.rejects(pass.residual(new Float32Array(FLOATS + 1)), /does not fit the pass's 3 rows/);
    const { weights } = await pass.attend(0, new Uint8Array(FLOATS * FLOAT_BYTES));
    await assert.rejects(pass.residual(states), /after begin and after combine/);
    await pass.combine(0, new Uint8Array(FLOATS * FLOAT_BYTES * expertsPerToken), weights);
    await pass.residual(states);
  });
});
