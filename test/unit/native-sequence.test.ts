import assert from 'node:assert/strict';
import fc from 'fast-check';
import type { Device, Model, Pass, Sequence } from '../../native/index.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { FIXTURE_SHAPE, FIXTURE_SIZES, ROPE_THETA, bits, loadFixture, openTestDevice } from './native-test-model.js';

const { layers, headDim, keyValueHeads, hiddenSize } = FIXTURE_SIZES;
/** Keys, then values. */
const ROW_BYTES = 2 * keyValueHeads * headDim * 4;
const BLOCK_POSITIONS = 256;

const isInternal = (error: unknown): boolean => error instanceof OdmoeError && error.code === 'INTERNAL';

describe('a native sequence', () => {
  let device: Device;
  let model: Model;
  let sequence: Sequence;
  let pass: Pass;

  const begin = (positions: number[], of = sequence): Promise<void> =>
    pass.begin(
      [of],
      new Int32Array(positions.length),
      Int32Array.from(positions),
      Int32Array.from(positions, (p) => (p * 5 + 1) % 300),
    );

  const positions = (from: number, to: number): number[] => Array.from({ length: to - from }, (_, i) => from + i);

  const fill = async (from: number, to: number, of = sequence): Promise<Float32Array> => {
    await begin(positions(from, to), of);
    await pass.forward(null);
    return await pass.logits(Int32Array.of(to - from - 1));
  };

  before(async () => {
    device = openTestDevice();
    model = await loadFixture(device, { experts: true });
    pass = model.createPass(300);
  });

  after(() => {
    pass.dispose();
    model.dispose();
    device.dispose();
  });

  beforeEach(() => {
    sequence = model.createSequence();
  });

  afterEach(() => {
    sequence.dispose();
  });

  it('takes memory in blocks of positions, for all layers', async () => {
    const before = device.info().usedBytes;
    const blockBytes = ROW_BYTES * BLOCK_POSITIONS * layers;
    for (const [end, blocks] of [
      [10, 1],
      [256, 1],
      [257, 2],
    ] as const) {
      await begin(positions(0, end));
      assert.equal(device.info().usedBytes - before, blocks * blockBytes, `${end} positions`);
    }
    sequence.dispose();
    assert.equal(device.info().usedBytes, before);
    await assert.rejects(pass.forward(null), isInternal);
  });

  it('returns the written rows, across blocks', async () => {
    await fill(0, 280);
    const random = (seed: number, rows: number): Uint8Array =>
      new Uint8Array(Float32Array.from({ length: (rows * ROW_BYTES) / 4 }, (_, i) => Math.sin(i * seed)).buffer);
    fc.assert(
      fc.property(fc.nat(279), fc.integer({ min: 1, max: 40 }), fc.nat(3), (position, rows, layer) => {
        const values = random(position + 2, rows);
        sequence.writeRows(layer, position, rows, values);
        assert.deepEqual(sequence.readRows(layer, position, rows), values);
      }),
      { numRuns: 50 },
    );
  });

  it('continues with copied rows as with its own', async () => {
    await fill(0, 270);
    const copy = model.createSequence();
    for (let layer = 0; layer < layers; layer++) {
      // An odd offset, as rows arrive in a message.
      const rows = sequence.readRows(layer, 0, 270);
      const message = new Uint8Array(rows.length + 1);
      message.set(rows, 1);
      copy.writeRows(layer, 0, 270, message.subarray(1));
    }
    assert.equal(copy.length, 270);
    assert.deepEqual(bits(await fill(270, 275, copy)), bits(await fill(270, 275)));
    copy.dispose();
  });

  it('forgets the positions behind a truncation and computes the same again', async () => {
    await fill(0, 20);
    const once = await fill(20, 30);
    sequence.truncate(20);
    assert.equal(sequence.length, 20);
    assert.throws(() => sequence.readRows(0, 15, 6), isInternal);
    assert.deepEqual(bits(await fill(20, 30)), bits(once));
    sequence.truncate(100);
    assert.equal(sequence.length, 30);
  });

  it('refuses gaps, positions outside the model and rows never written', async () => {
    await fill(0, 5);
    const rows = new Uint8Array(ROW_BYTES);
    assert.throws(() => sequence.writeRows(0, 6, 1, rows), isInternal);
    assert.throws(() => sequence.writeRows(4, 0, 1, rows), isInternal);
    assert.throws(() => sequence.writeRows(0, 0, 2, rows), isInternal);
    assert.throws(() => sequence.readRows(0, 5, 1), isInternal);
    assert.throws(() => sequence.readRows(0, 0, 1000), isInternal);
    assert.throws(() => sequence.readRows(0, 0, 2 ** 31 - 1), isInternal);
    assert.throws(() => sequence.readRows(-1, 0, 1), isInternal);
    await assert.rejects(begin([6]), isInternal);
    await assert.rejects(begin([5, 7]), isInternal);
    await assert.rejects(begin([512]), isInternal);
    sequence.writeRows(0, 5, 1, rows);
    assert.equal(sequence.length, 5);
  });

  it('cannot be changed under a running pass', async () => {
    await fill(0, 5);
    await begin(positions(5, 200));
    const running = pass.forward(null);
    const rows = new Uint8Array(ROW_BYTES);
    assert.throws(() => sequence.writeRows(0, 0, 1, rows), isInternal);
    assert.throws(() => {
      sequence.truncate(0);
    }, isInternal);
    assert.equal(sequence.readRows(0, 0, 5).length, 5 * ROW_BYTES);
    await running;
    sequence.writeRows(0, 0, 1, rows);
  });

  it('keeps written rows readable while later layers run', async () => {
    await begin([0, 1, 2]);
    const hidden = new Uint8Array(3 * hiddenSize * 4);
    await pass.attend(0, hidden);
    assert.equal(sequence.readRows(0, 0, 3).length, 3 * ROW_BYTES);
    assert.throws(() => sequence.readRows(1, 0, 3), isInternal);
    assert.equal(sequence.length, 0);
  });

  it('rotates keys by exact angles far into a context', async () => {
    const position = 20_000;
    const long = await loadFixture(device, { experts: true, shape: { ...FIXTURE_SHAPE, maxPositions: 32_768 } });
    const onePass = long.createPass(1);
    const keyAt = async (at: number): Promise<Float32Array> => {
      const of = long.createSequence();
      const zeros = new Uint8Array(at * ROW_BYTES);
      for (let layer = 0; layer < layers; layer++) of.writeRows(layer, 0, at, zeros);
      await onePass.begin([of], Int32Array.of(0), Int32Array.of(at), Int32Array.of(42));
      await onePass.forward(null);
      const row = of.readRows(0, at, 1);
      of.dispose();
      return new Float32Array(row.buffer);
    };
    const plain = await keyAt(0);
    const rotated = await keyAt(position);
    const half = headDim / 2;
    for (let head = 0; head < keyValueHeads; head++) {
      for (let i = 0; i < half; i++) {
        const frequency = Math.fround(ROPE_THETA ** ((-2 * i) / headDim));
        const angle = Math.fround(position * frequency);
        const low = plain[head * 2 * half + i] ?? Number.NaN;
        const high = plain[head * 2 * half + i + half] ?? Number.NaN;
        const tolerance = 4 * 2 ** -24 * (Math.abs(low) + Math.abs(high));
        const difference =
          (rotated[head * 2 * half + i] ?? Number.NaN) - (low * Math.cos(angle) - high * Math.sin(angle));
        assert.ok(Math.abs(difference) <= tolerance, `head ${head}, pair ${i}: off by ${difference}`);
      }
    }
    onePass.dispose();
    long.dispose();
  });
});
