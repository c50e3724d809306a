import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { halfValue } from '../../packs/checkpoint/expert-biases.js';
import { readGroup } from '../../bench/slices/sliced-rows.js';
import { plainGlu } from '../../engine/emulation/plain-shape.js';
import {
  FROM_STORAGE,
  PLAIN_LOADER,
  crc32c,
  sliceRows,
  type Device,
  type ExpertSlots,
  type LoaderOptions,
  type LoadRequest,
  type Model,
} from '../../native/index.js';
import { alignUp } from '../../packs/format/pack-layout.js';
import type { Part } from '../../shared/model/expert-parts.js';
import {
  SLICE_READINGS,
  type ChunkLocation,
  type ExpertSource,
  type SlicedSplit,
  type SliceReading,
  type TensorSource,
} from '../../shared/model/tensor-source.js';
import { SLICE_BITS, SLICE_GROUP_COLUMNS, planeRowBytes } from '../../shared/model/weight-dtype.js';
import {
  FIXTURE_SIZES,
  bits,
  bytesOf,
  expertName,
  loadFixture,
  openTestDevice,
  sourceOf,
} from './native-test-model.js';

const { hiddenSize, intermediateSize, experts, layers } = FIXTURE_SIZES;
const ROWS = 12;
const ROW_BYTES = hiddenSize * 4;
const HIDDEN = new Uint8Array(Float32Array.from({ length: ROWS * hiddenSize }, (_, i) => Math.cos(i)).buffer);
const PROMPT = [1, 5, 9, 200, 31, 77];
const SPLITS: readonly SlicedSplit[] = ['sliced84', 'sliced63', 'sliced42'];
/** A rate at which a load of lower slices takes about 50 ms. */
const SLOW_BYTES_PER_S = 2e5;

const NOT_WANTED = { from: 'notWanted', entry: -1 } as const;
const wanting = (part: Part): LoadRequest => ({
  ...FROM_STORAGE,
  parts: { exponent: NOT_WANTED, signMantissa: NOT_WANTED, [part]: { from: 'storage', entry: -1 } },
});
const UPPER = wanting('exponent');
const LOWER = wanting('signMantissa');

/** A file that grows by chunks, as in a pack. */
class ChunkFile {
  private readonly pieces: Uint8Array[] = [];
  private offsetBytes = 0;

  constructor(readonly path: string) {}

  add(plane: number, bytes: Uint8Array): ChunkLocation {
    const padding = alignUp(bytes.length) - bytes.length;
    const chunk: ChunkLocation = {
      plane,
      path: this.path,
      offsetBytes: this.offsetBytes,
      storedBytes: bytes.length,
      plainBytes: bytes.length,
      codec: 'raw',
      crc32c: crc32c(bytes, 0),
    };
    this.pieces.push(bytes, new Uint8Array(padding));
    this.offsetBytes += bytes.length + padding;
    return chunk;
  }

  write(): void {
    writeFileSync(this.path, Buffer.concat(this.pieces));
  }
}

interface Sliced {
  readonly upperPath: string;
  readonly lowerPath: string;
  readonly source: (layer: number, expert: number) => ExpertSource;
  /** The expert whose FP32 weights are those that a product with this reading reads. */
  readonly plain: (reading: SliceReading, layer: number, expert: number) => ExpertSource;
}

/** The weights of a row, each an exact FP32 number. */
function weightsOf(
  split: SlicedSplit,
  slices: [Uint8Array, Uint8Array],
  columns: number,
  reading: SliceReading,
): number[] {
  const step = 2 ** SLICE_BITS[split];
  return Array.from({ length: Math.ceil(columns / SLICE_GROUP_COLUMNS) }, (_, group) => {
    const { scaleBits, zero, upper, lower } = readGroup(split, slices, columns, group);
    const scale = halfValue(scaleBits);
    return upper.map((high, column) => {
      if (reading === 'both') return scale * (high * step + (lower[column] ?? NaN) - zero);
      if (reading === 'upperAmat') return scale * step * (high - Math.floor(zero / step));
      return scale * (high * step + (step - 1) / 2 - zero);
    });
  }).flat();
}

/** Places of experts that most tests need, and of all. */
const SOME_EXPERTS = [
  [0, 0],
  [1, 3],
  [1, 4],
] as const;
const ALL_EXPERTS = Array.from({ length: layers * experts }, (_, i) => [Math.floor(i / experts), i % experts] as const);

/** Cuts experts of the fixture into slices. */
async function storeSliced(
  directory: string,
  split: SlicedSplit,
  places: readonly (readonly [layer: number, expert: number])[] = SOME_EXPERTS,
): Promise<Sliced> {
  const upperFile = new ChunkFile(join(directory, `${split}.upper`));
  const lowerFile = new ChunkFile(join(directory, `${split}.lower`));
  const plainFiles = SLICE_READINGS.map((reading) => new ChunkFile(join(directory, `${split}.${reading}`)));
  const sources = new Map<string, ExpertSource>();
  for (const [layer, expert] of places) {
    const tensors: TensorSource[][] = [[], [], [], []];
    for (const matrix of ['gate', 'up', 'down'] as const) {
      const rows = matrix === 'down' ? hiddenSize : intermediateSize;
      const columns = matrix === 'down' ? intermediateSize : hiddenSize;
      const values = bytesOf(expertName(layer, expert, matrix));
      const [upper, lower] = await sliceRows([values], 'none-bf16', rows, columns, split);
      const tensor = { rows, columns, view: null };
      tensors[0]?.push({ ...tensor, split, chunks: [upperFile.add(0, upper), lowerFile.add(1, lower)] });
      const [upperBytes = 0, lowerBytes = 0] = planeRowBytes(split, columns);
      for (const [index, reading] of SLICE_READINGS.entries()) {
        const weights = new Float32Array(rows * columns);
        for (let row = 0; row < rows; row += 1) {
          const slicesOfRow: [Uint8Array, Uint8Array] = [
            upper.subarray(row * upperBytes, (row + 1) * upperBytes),
            lower.subarray(row * lowerBytes, (row + 1) * lowerBytes),
          ];
          weights.set(weightsOf(split, slicesOfRow, columns, reading), row * columns);
        }
        const chunk = plainFiles[index]?.add(0, new Uint8Array(weights.buffer)) ?? assert.fail();
        tensors[index + 1]?.push({ ...tensor, split: 'none-fp32', chunks: [chunk] });
      }
    }
    for (const [index, [gate, up, down]] of tensors.entries()) {
      assert.ok(gate && up && down);
      sources.set(`${index} ${layer} ${expert}`, { gate, up, down, biases: null });
    }
  }
  for (const file of [upperFile, lowerFile, ...plainFiles]) file.write();
  const found = (index: number, layer: number, expert: number): ExpertSource =>
    sources.get(`${index} ${layer} ${expert}`) ?? assert.fail('no such expert');
  return {
    upperPath: upperFile.path,
    lowerPath: lowerFile.path,
    source: (layer, expert) => found(0, layer, expert),
    plain: (reading, layer, expert) => found(1 + SLICE_READINGS.indexOf(reading), layer, expert),
  };
}

const bytesOfPlane = ({ gate, up, down }: ExpertSource, plane: number): number =>
  [gate, up, down]
    .flatMap(({ chunks }) => chunks)
    .filter((chunk) => chunk.plane === plane)
    .reduce((sum, { storedBytes }) => sum + storedBytes, 0);

describe('native slots with sliced experts', () => {
  let directory: string;
  let device: Device;
  const forms = new Map<SlicedSplit, Sliced>();
  const formOf = (split: SlicedSplit): Sliced => forms.get(split) ?? assert.fail('not stored');

  before(async () => {
    directory = mkdtempSync(join(tmpdir(), 'odmoe-native-slices-'));
    device = openTestDevice();
    for (const split of SPLITS) forms.set(split, await storeSliced(directory, split));
  });

  after(() => {
    device.dispose();
    rmSync(directory, { recursive: true });
  });

  const shapeOf = (format: SlicedSplit | 'fp32' | 'bf16') =>
    ({ hiddenSize, glu: plainGlu(intermediateSize), format }) as const;

  const withSlots = async (
    format: SlicedSplit | 'fp32' | 'bf16',
    use: (slots: ExpertSlots) => Promise<void>,
    options: Partial<LoaderOptions> = {},
  ): Promise<void> => {
    const slots = device.createExpertSlots(shapeOf(format), 2, ROWS, { ...PLAIN_LOADER, ...options });
    try {
      await use(slots);
    } finally {
      slots.dispose();
    }
  };

  const run = async (slots: ExpertSlots, readings: readonly SliceReading[], firstRow = 0): Promise<Uint32Array> => {
    const output = new Uint8Array(readings.length * ROW_BYTES);
    const hidden = HIDDEN.subarray(firstRow * ROW_BYTES, firstRow * ROW_BYTES + output.length);
    await slots.execute(0, readings.length, hidden, output, readings);
    return bits(output);
  };
  const runAll = (slots: ExpertSlots, reading: SliceReading): Promise<Uint32Array> =>
    run(slots, new Array<SliceReading>(ROWS).fill(reading));

  const plainResult = async (form: Sliced, reading: SliceReading): Promise<Uint32Array> => {
    let result: Uint32Array = new Uint32Array();
    await withSlots('fp32', async (slots) => {
      await slots.load(0, slots.register(form.plain(reading, 1, 3)), FROM_STORAGE);
      result = await runAll(slots, 'both');
    });
    return result;
  };

  for (const split of SPLITS) {
    it(`${split} executes to the bit as FP32 weights, upper slices alone and with lower ones that come later`, async () => {
      const form = formOf(split);
      const source = form.source(1, 3);
      const expected = new Map<SliceReading, Uint32Array>();
      for (const reading of SLICE_READINGS) expected.set(reading, await plainResult(form, reading));
      await withSlots(split, async (slots) => {
        const expert = slots.register(source);
        const upper = await slots.load(0, expert, UPPER);
        assert.deepEqual([upper.loaded, upper.readBytes], [true, bytesOfPlane(source, 0)]);
        for (const reading of ['upperCentred', 'upperAmat'] as const)
          assert.deepEqual(await runAll(slots, reading), expected.get(reading), reading);
        await assert.rejects(runAll(slots, 'both'), { code: 'INTERNAL', message: /holds upper slices alone/ });
        await assert.rejects(slots.load(0, expert, LOWER), { code: 'INTERNAL', message: /no memory for lower/ });
        slots.takeLower(0);
        const lower = await slots.load(0, expert, LOWER);
        assert.deepEqual([lower.loaded, lower.readBytes], [true, bytesOfPlane(source, 1)]);
        for (const reading of SLICE_READINGS)
          assert.deepEqual(await runAll(slots, reading), expected.get(reading), reading);
        const whole = await slots.load(0, expert, FROM_STORAGE);
        assert.equal(whole.readBytes, upper.readBytes + lower.readBytes);
        for (const reading of SLICE_READINGS)
          assert.deepEqual(await runAll(slots, reading), expected.get(reading), reading);
      });
    });
  }

  it('compute each row by its own reading, as if it came alone', async () => {
    await withSlots('sliced84', async (slots) => {
      slots.takeLower(0);
      await slots.load(0, slots.register(formOf('sliced84').source(0, 0)), FROM_STORAGE);
      const readings = Array.from({ length: ROWS }, (_, row) => SLICE_READINGS[(row * row) % 3] ?? 'both');
      const alone: number[] = [];
      for (const [row, reading] of readings.entries()) alone.push(...(await run(slots, [reading], row)));
      assert.deepEqual([...(await run(slots, readings))], alone);
      const output = new Uint8Array(ROWS * ROW_BYTES);
      if (slots.executeHere?.(0, ROWS, HIDDEN, output, readings) !== null)
        assert.deepEqual([...bits(output)], alone, 'on the calling thread');
      await assert.rejects(run(slots, ['upper' as 'both']), { code: 'INTERNAL', message: /reading is upper/ });
      const short = slots.execute(0, ROWS, HIDDEN, output, ['both']);
      await assert.rejects(short, { code: 'INTERNAL', message: /1 readings of 12 rows/ });
    });
  });

  it('execute with their upper slices while lower ones are loaded, and keep them when that load is cancelled', async () => {
    const form = formOf('sliced63');
    const expected = await plainResult(form, 'upperCentred');
    await withSlots(
      'sliced63',
      async (slots) => {
        slots.takeLower(0);
        const expert = slots.register(form.source(1, 3));
        await slots.load(0, expert, UPPER);
        for (const cancelled of [true, false]) {
          let over = false;
          const load = slots.load(0, expert, LOWER).finally(() => (over = true));
          await assert.rejects(runAll(slots, 'both'), { code: 'INTERNAL' });
          assert.throws(
            () => {
              slots.letGoLower(0);
            },
            { code: 'INTERNAL' },
          );
          assert.deepEqual(await runAll(slots, 'upperCentred'), expected);
          assert.equal(over, false);
          if (cancelled) slots.cancel(0);
          assert.equal((await load).loaded, !cancelled);
          assert.deepEqual(await runAll(slots, 'upperCentred'), expected);
        }
        assert.deepEqual(await runAll(slots, 'both'), await plainResult(form, 'both'));
      },
      { storageBytesPerS: SLOW_BYTES_PER_S },
    );
  });

  it('reject damaged and cut slices as PACK_CORRUPT, lower ones without harm to upper ones', async () => {
    const form = await storeSliced(mkdtempSync(join(directory, 'damaged-')), 'sliced84');
    const source = form.source(1, 3);
    const expected = await plainResult(form, 'upperAmat');
    const corrupt = { code: 'PACK_CORRUPT' };
    await withSlots('sliced84', async (slots) => {
      slots.takeLower(0);
      const expert = slots.register(source);
      await slots.load(0, expert, UPPER);
      const lowerBytes = readFileSync(form.lowerPath);
      const at = (source.up.chunks[1]?.offsetBytes ?? 0) + 100;
      writeFileSync(form.lowerPath, lowerBytes.with(at, (lowerBytes[at] ?? 0) ^ 1));
      await assert.rejects(slots.load(0, expert, LOWER), corrupt);
      truncateSync(form.lowerPath, at);
      await assert.rejects(slots.load(0, expert, LOWER), corrupt);
      rmSync(form.lowerPath);
      await assert.rejects(slots.load(0, expert, LOWER), { code: 'STORAGE_FAILED' });
      assert.deepEqual(await runAll(slots, 'upperAmat'), expected);
      await slots.load(0, expert, UPPER);
      assert.deepEqual(await runAll(slots, 'upperAmat'), expected, 'loaded without the file of the lower slices');
      writeFileSync(form.lowerPath, lowerBytes);
      const upperBytes = readFileSync(form.upperPath);
      const place = (source.down.chunks[0]?.offsetBytes ?? 0) + 3;
      writeFileSync(form.upperPath, upperBytes.with(place, (upperBytes[place] ?? 0) ^ 64));
      assert.equal((await slots.load(0, expert, LOWER)).loaded, true);
      await assert.rejects(slots.load(0, expert, UPPER), corrupt);
      await assert.rejects(runAll(slots, 'upperAmat'), { code: 'INTERNAL' });
      await assert.rejects(slots.load(0, expert, FROM_STORAGE), corrupt);
    });
  });

  it('give the memory of lower slices back and take it by itself, and count both to the byte', async () => {
    const { slotBytes, lowerBytes } = device.expertSlotBytes(shapeOf('sliced84'), ROWS, PLAIN_LOADER);
    const used = () => device.info().usedBytes;
    assert.equal(device.expertSlotBytes(shapeOf('bf16'), ROWS, PLAIN_LOADER).lowerBytes, 0);
    await withSlots('sliced84', async (slots) => {
      assert.equal(slots.slotBytes, slotBytes);
      const before = used();
      slots.takeLower(0);
      slots.takeLower(0);
      assert.equal(used(), before + lowerBytes);
      slots.letGoLower(0);
      slots.letGoLower(0);
      assert.equal(used(), before);
      slots.takeLower(1);
      slots.letGo(1);
      assert.equal(used(), before - slotBytes);
      slots.take(1);
      assert.equal(used(), before);
    });
    await withSlots('bf16', async (slots) => {
      assert.throws(
        () => {
          slots.takeLower(0);
        },
        { code: 'INTERNAL' },
      );
    });
  });

  it('refuse lower slices of another expert, second ones, and loads that want nothing', async () => {
    const form = formOf('sliced42');
    const refused = { code: 'INTERNAL' };
    await withSlots('sliced42', async (slots) => {
      slots.takeLower(0);
      const [expert, other] = [slots.register(form.source(1, 3)), slots.register(form.source(1, 4))];
      await assert.rejects(slots.load(0, expert, LOWER), refused);
      await slots.load(0, expert, UPPER);
      await assert.rejects(slots.load(0, other, LOWER), { ...refused, message: /another expert/ });
      const neither = { exponent: NOT_WANTED, signMantissa: NOT_WANTED };
      await assert.rejects(slots.load(0, expert, { ...FROM_STORAGE, parts: neither }), refused);
      await slots.load(0, expert, LOWER);
      await assert.rejects(slots.load(0, expert, LOWER), { ...refused, message: /both slices already/ });
      await assert.rejects(slots.load(0, slots.register(form.plain('both', 1, 3)), FROM_STORAGE), refused);
      const kept = { ...UPPER.parts, signMantissa: { from: 'notWanted', entry: 0 } } as const;
      await assert.rejects(slots.load(0, expert, { ...FROM_STORAGE, parts: kept }), refused);
    });
  });

  const logitsOf = async (model: Model): Promise<Uint32Array> => {
    const sequence = model.createSequence();
    const pass = model.createPass(PROMPT.length);
    const positions = Int32Array.from(PROMPT.keys());
    await pass.begin([sequence], new Int32Array(PROMPT.length), positions, Int32Array.from(PROMPT));
    await pass.forward(null);
    const logits = await pass.logits(positions);
    for (const handle of [pass, sequence, model]) handle.dispose();
    return bits(logits);
  };

  it('are read by resident experts, too, which load no lower slice where none is read', async () => {
    const form = await storeSliced(mkdtempSync(join(directory, 'all-')), 'sliced84', ALL_EXPERTS);
    const loadAll = async (
      sourceOfExpert: Sliced['source'],
      ...how: [format: SlicedSplit | 'fp32', reading?: SliceReading]
    ): Promise<Model> => {
      const model = await loadFixture(device, { experts: false });
      for (const [layer, expert] of ALL_EXPERTS)
        await model.loadResidentExpert(layer, expert, sourceOfExpert(layer, expert), ...how);
      return model;
    };
    for (const reading of SLICE_READINGS) {
      const plain = await loadAll((layer, expert) => form.plain(reading, layer, expert), 'fp32');
      const sliced = await loadAll(form.source, 'sliced84', reading);
      const { slotBytes, lowerBytes } = device.expertSlotBytes(shapeOf('sliced84'), 1, PLAIN_LOADER);
      const kind = sliced.residentWeights().kinds.find(({ format }) => format === 'sliced84');
      const bytes = layers * experts * (slotBytes + (reading === 'both' ? lowerBytes : 0));
      assert.equal(kind?.bytes, bytes, reading);
      assert.deepEqual(await logitsOf(sliced), await logitsOf(plain), reading);
    }
    const model = await loadFixture(device, { experts: false });
    const refused = { code: 'INTERNAL' };
    await assert.rejects(model.loadResidentExpert(0, 0, form.plain('both', 0, 0), 'fp32', 'upperAmat'), refused);
    await assert.rejects(model.loadResidentExpert(0, 0, form.source(0, 0), 'sliced63'), refused);
    await assert.rejects(model.loadResidentExpert(0, 0, form.source(0, 0), 'fp32'), refused);
    model.dispose();
    const empty = device.createModel(model.shape);
    await assert.rejects(empty.loadDense('embedding', 0, sourceOf('model.embed_tokens.weight'), 'sliced84'), {
      ...refused,
      message: /looked up by rows/,
    });
    empty.dispose();
  });
});
