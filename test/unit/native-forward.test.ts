import assert from 'node:assert/strict';
import { join } from 'node:path';
import {
  FROM_STORAGE,
  PLAIN_LOADER,
  instructionSets,
  type Device,
  type DeviceOptions,
  type RouterChoice,
  type Model,
  type Pass,
  type Sequence,
} from '../../native/index.js';
import { openCheckpoint } from '../../packs/checkpoint/checkpoint.js';
import { packageRoot } from '../../shared/base/files/package-root.js';
import { plainGlu } from '../../engine/emulation/plain-shape.js';
import {
  FIXTURE_SIZES,
  bits,
  expertSource,
  fixtureShape,
  fixtureReference,
  loadFixture,
  openTestDevice,
  sourceOf,
} from './native-test-model.js';
import { PlainForward } from './plain-forward.js';

const { hiddenSize, layers, expertsPerToken, vocabSize } = FIXTURE_SIZES;
const PROMPT = [1, 5, 9, 200, 31, 77, 120, 176, 297, 95, 56, 72];
/** FP32 against FP64 over four layers of sums of at most 96 terms: far above 96 * 2^-24, far below a wrong operator. */
const LOGIT_TOLERANCE = 2e-4;

const range = (from: number, to: number): number[] => Array.from({ length: to - from }, (_, i) => from + i);

/** Tokens from `from` on as one pass of one sequence. */
async function beginRows(pass: Pass, sequence: Sequence, tokens: readonly number[], from: number): Promise<void> {
  await pass.begin(
    [sequence],
    new Int32Array(tokens.length),
    Int32Array.from(range(from, from + tokens.length)),
    Int32Array.from(tokens),
  );
}

/** Logits of every row, with the sequence fed in pieces of the sizes given. */
async function logitsInPieces(
  model: Model,
  tokens: readonly number[],
  pieces: readonly number[],
): Promise<Float32Array> {
  const sequence = model.createSequence();
  const pass = model.createPass(Math.max(...pieces));
  const logits = new Float32Array(tokens.length * vocabSize);
  let from = 0;
  for (const size of pieces) {
    await beginRows(pass, sequence, tokens.slice(from, from + size), from);
    await pass.forward(null);
    logits.set(await pass.logits(Int32Array.from(range(0, size))), from * vocabSize);
    from += size;
  }
  assert.equal(from, tokens.length);
  assert.equal(sequence.length, tokens.length);
  pass.dispose();
  sequence.dispose();
  return logits;
}

/** Repeats the call until it gives a result. It gives null until the device's thread is idle, a moment after the last job's promise settles. */
async function onceIdle<T>(call: () => T | null): Promise<T> {
  for (;;) {
    const given = call();
    if (given !== null) return given;
    await new Promise((resolve) => setImmediate(resolve));
  }
}

/** attend, the experts in slots as a worker runs them, combine; `here`: all on this thread. */
async function logitsLayerwise(
  device: Device,
  model: Model,
  tokens: readonly number[],
  here = false,
): Promise<Float32Array> {
  const sequence = model.createSequence();
  const pass = model.createPass(tokens.length);
  const slots = device.createExpertSlots(
    { hiddenSize, glu: plainGlu(FIXTURE_SIZES.intermediateSize), format: 'bf16' },
    1,
    1,
    PLAIN_LOADER,
  );
  const hidden = new Uint8Array(tokens.length * hiddenSize * 4);
  const rowBytes = hiddenSize * 4;
  await beginRows(pass, sequence, tokens, 0);
  for (let layer = 0; layer < layers; layer++) {
    const choice = here
      ? await onceIdle(() => pass.attendHere?.(layer, hidden) ?? null)
      : await pass.attend(layer, hidden);
    const outputs = new Uint8Array(tokens.length * expertsPerToken * rowBytes);
    for (const [place, expert] of choice.experts.entries()) {
      await slots.load(0, slots.register(expertSource(layer, expert)), FROM_STORAGE);
      const row = Math.floor(place / expertsPerToken);
      const input = hidden.subarray(row * rowBytes, (row + 1) * rowBytes);
      await slots.execute(0, 1, input, outputs.subarray(place * rowBytes, (place + 1) * rowBytes));
    }
    if (here) await onceIdle(() => (pass.combineHere?.(layer, outputs, choice.weights) === true ? true : null));
    else await pass.combine(layer, outputs, choice.weights);
  }
  const logits = await pass.logits(Int32Array.from(range(0, tokens.length)));
  slots.dispose();
  pass.dispose();
  sequence.dispose();
  return logits;
}

describe('the native forward pass', () => {
  let device: Device;
  let model: Model;
  let whole: Float32Array;

  before(async () => {
    device = openTestDevice();
    model = await loadFixture(device, { experts: true });
    whole = await logitsInPieces(model, PROMPT, [PROMPT.length]);
  });

  after(() => {
    model.dispose();
    device.dispose();
  });

  it('comes within rounding of an FP64 reference', async () => {
    const fixture = await openCheckpoint(join(packageRoot(), 'test', 'fixtures', 'mixtral'));
    new PlainForward(fixture).run(PROMPT).forEach((row, position) => {
      row.forEach((logit, id) => {
        const native = whole[position * vocabSize + id] ?? Number.NaN;
        assert.ok(
          Math.abs(native - logit) < LOGIT_TOLERANCE,
          `position ${position}, token ${id}: ${native}, not ${logit}`,
        );
      });
    });
  });

  it('gives the first logits and the experts that the reference implementation recorded', async () => {
    for (const reference of fixtureReference.references) {
      const prompt = reference.prompt_token_ids;
      const sequence = model.createSequence();
      const pass = model.createPass(prompt.length);
      const choices: [number, RouterChoice][] = [];
      await beginRows(pass, sequence, prompt, 0);
      await pass.forward((layer, choice) => choices.push([layer, choice]));
      const logits = await pass.logits(Int32Array.of(prompt.length - 1));
      reference.first_logits.forEach((logit, id) => {
        assert.ok(Math.abs((logits[id] ?? Number.NaN) - logit) < LOGIT_TOLERANCE, `token ${id}`);
      });
      assert.deepEqual(
        choices.map(([layer]) => layer),
        range(0, layers),
      );
      for (const [layer, choice] of choices) {
        const expected = reference.experts[layer]?.slice(0, prompt.length).flat();
        assert.deepEqual([...choice.experts], expected, `layer ${layer}`);
      }
      pass.dispose();
      sequence.dispose();
    }
  });

  it('is the same to the bit for tokens alone, in pieces and in one batch', async () => {
    for (const pieces of [PROMPT.map(() => 1), [5, 7], [1, 3, 8], [11, 1]]) {
      assert.deepEqual(bits(await logitsInPieces(model, PROMPT, pieces)), bits(whole), `pieces ${pieces.join('+')}`);
    }
  });

  it('is the same to the bit across a border of KV blocks', async () => {
    const long = range(0, 300).map((i) => (i * 7 + 3) % vocabSize);
    const atOnce = await logitsInPieces(model, long, [300]);
    assert.deepEqual(bits(await logitsInPieces(model, long, [250, 1, 1, 20, 28])), bits(atOnce));
  });

  it('is the same to the bit layer by layer with experts in slots', async () => {
    assert.deepEqual(bits(await logitsLayerwise(device, model, PROMPT)), bits(whole));
  });

  it('is the same to the bit on the calling thread, where wrongly ordered calls throw and change nothing', async () => {
    assert.deepEqual(bits(await logitsLayerwise(device, model, PROMPT, true)), bits(whole));
    const pass = model.createPass(1);
    const outOfOrder = (): true | null =>
      pass.combineHere?.(0, new Uint8Array(), new Float32Array()) === true ? true : null;
    await assert.rejects(onceIdle(outOfOrder), { code: 'INTERNAL' });
    pass.dispose();
    assert.deepEqual(bits(await logitsLayerwise(device, model, PROMPT, true)), bits(whole));
  });

  it('is the same to the bit with every instruction set and thread count', async () => {
    const sets = instructionSets();
    assert.ok(sets.includes('scalar'));
    for (const instructionSet of sets as DeviceOptions['instructionSet'][]) {
      for (const threads of [1, 3]) {
        const other = openTestDevice({ instructionSet, threads });
        assert.equal(other.info().instructionSet, instructionSet);
        assert.equal(other.info().threads, threads);
        const otherModel = await loadFixture(other, { experts: true });
        const logits = await logitsInPieces(otherModel, PROMPT, [4, 8]);
        assert.deepEqual(bits(logits), bits(whole), `${instructionSet} with ${threads} threads`);
        otherModel.dispose();
        other.dispose();
      }
    }
  });

  it('keeps several sequences of one pass separate', async () => {
    const other = [7, 7, 250, 12, 99];
    const otherAlone = await logitsInPieces(model, other, [other.length]);
    const first = model.createSequence();
    const second = model.createSequence();
    const pass = model.createPass(8);
    await beginRows(pass, first, PROMPT.slice(0, 7), 0);
    await pass.forward(null);
    await pass.begin(
      [second, first],
      Int32Array.of(0, 0, 1, 0, 0, 0),
      Int32Array.of(0, 1, 7, 2, 3, 4),
      Int32Array.of(other[0] ?? 0, other[1] ?? 0, PROMPT[7] ?? 0, other[2] ?? 0, other[3] ?? 0, other[4] ?? 0),
    );
    await pass.forward(null);
    const logits = await pass.logits(Int32Array.of(0, 1, 3, 4, 5, 2));
    assert.deepEqual(bits(logits.slice(0, 5 * vocabSize)), bits(otherAlone));
    assert.deepEqual(bits(logits.slice(5 * vocabSize)), bits(whole.slice(7 * vocabSize, 8 * vocabSize)));
    for (const handle of [pass, first, second]) handle.dispose();
  });

  it('uses the embedding where no LM head was loaded', async () => {
    const tied = await loadFixture(device, { experts: true, lmHead: false });
    const explicit = await loadFixture(device, { experts: true, lmHead: false });
    await explicit.loadDense('lmHead', 0, sourceOf('model.embed_tokens.weight'), 'bf16');
    const logits = await logitsInPieces(tied, PROMPT, [PROMPT.length]);
    assert.deepEqual(bits(logits), bits(await logitsInPieces(explicit, PROMPT, [PROMPT.length])));
    assert.notDeepEqual(bits(logits), bits(whole));
    tied.dispose();
    explicit.dispose();
  });

  it('stays near the BF16 model with INT8 and NF4 weights', async () => {
    const distances: number[] = [];
    for (const format of ['int8', 'nf4'] as const) {
      const quantized = await loadFixture(device, { experts: true, format });
      const logits = await logitsInPieces(quantized, PROMPT, [PROMPT.length]);
      const squares = logits.reduce((sum, logit, i) => sum + (logit - (whole[i] ?? 0)) ** 2, 0);
      distances.push(Math.sqrt(squares / logits.length));
      quantized.dispose();
    }
    const [int8 = Number.NaN, nf4 = Number.NaN] = distances;
    assert.ok(int8 > 0 && int8 < nf4 && nf4 < 1, `INT8 ${int8}, NF4 ${nf4}`);
  });

  it('ignores positions beyond a sliding window', async () => {
    const windowed = await loadFixture(device, { experts: true, shape: fixtureShape({ window: 4 }) });
    const logits = await logitsInPieces(windowed, PROMPT, [PROMPT.length]);
    const row = (values: Float32Array, position: number): Uint32Array =>
      bits(values.slice(position * vocabSize, (position + 1) * vocabSize));
    assert.deepEqual(row(logits, 3), row(whole, 3));
    assert.notDeepEqual(row(logits, 4), row(whole, 4));
    windowed.dispose();
  });
});
