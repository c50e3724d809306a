import assert from 'node:assert/strict';
import fc from 'fast-check';
import { instructionSets, type Device, type DeviceOptions, type Model, type Sequence } from '../../native/index.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { TAKEN_BACK_POSITIONS, expertRowSize, isRecurrent } from '../../shared/model/model-shape.js';
import { bits, openTestDevice } from './native-test-model.js';
import { RandomWeights, executeInSlot, slotsFor } from './native-random-model.js';
import { PlainForward } from './plain-forward.js';
import { RANDOM_SHAPES } from './random-model-shapes.js';

const isInternal = (error: unknown): boolean => error instanceof OdmoeError && error.code === 'INTERNAL';
const isCancelled = (error: unknown): boolean => error instanceof OdmoeError && error.code === 'CANCELLED';

const range = (from: number, to: number): number[] => Array.from({ length: to - from }, (_, i) => from + i);
const tokenAt = (position: number): number => (position * 17 + 5) % 61;

/** Runs positions [from, to) of a sequence and gives the logits of all of them. */
async function run(model: Model, sequence: Sequence, from: number, to: number): Promise<Float32Array> {
  const pass = model.createPass(to - from);
  const positions = Int32Array.from(range(from, to));
  try {
    await pass.begin([sequence], new Int32Array(to - from), positions, positions.map(tokenAt));
    await pass.forward(null);
    return await pass.logits(Int32Array.from(range(0, to - from)));
  } finally {
    pass.dispose();
  }
}

async function inPieces(model: Model, sequence: Sequence, sizes: readonly number[]): Promise<Float32Array> {
  const logits: Float32Array[] = [];
  let from = sequence.length;
  for (const size of sizes) {
    logits.push(await run(model, sequence, from, from + size));
    from += size;
  }
  return joined(logits);
}

function joined(parts: readonly Float32Array[]): Float32Array {
  return Float32Array.from(parts.flatMap((part) => [...part]));
}

/** Every kind of pass must give the same bits as one pass of positions [0, LENGTH). */
const LENGTH = 150;
/** Positions that also run in FP64, which is slow. */
const PLAIN_LENGTH = 12;
/** FP32 against FP64 over a few layers of sums of at most 66 terms: far below a wrong operator. */
const PLAIN_TOLERANCE = 2e-4;

for (const [name, shape] of Object.entries(RANDOM_SHAPES)) {
  const vocab = shape.vocabSize;
  const recurrent = shape.layers.some(({ mixer }) => isRecurrent(mixer));
  const rows = (logits: Float32Array, from: number, to: number): Uint32Array =>
    bits(logits.slice(from * vocab, to * vocab));

  describe(`the native mixers of a model with ${name}`, () => {
    let device: Device;
    let weights: RandomWeights;
    let model: Model;
    let whole: Float32Array;

    const withSequence = async <Result>(use: (sequence: Sequence) => Promise<Result>, of = model): Promise<Result> => {
      const sequence = of.createSequence();
      try {
        return await use(sequence);
      } finally {
        sequence.dispose();
      }
    };

    before(async () => {
      device = openTestDevice();
      weights = new RandomWeights(shape);
      model = await weights.load(device, true);
      whole = await withSequence((sequence) => run(model, sequence, 0, LENGTH));
    });

    after(() => {
      model.dispose();
      device.dispose();
      weights.dispose();
    });

    it('gives finite logits that differ from position to position', () => {
      assert.ok(whole.every((logit) => Number.isFinite(logit)));
      assert.notDeepEqual(rows(whole, 40, 41), rows(whole, 41, 42));
    });

    it('is close to the formulas in FP64', () => {
      const plain = new PlainForward(weights).run(range(0, PLAIN_LENGTH).map(tokenAt));
      for (const [position, logits] of plain.entries()) {
        for (const [token, logit] of logits.entries()) {
          const difference = Math.abs((whole[position * vocab + token] ?? NaN) - logit);
          assert.ok(difference < PLAIN_TOLERANCE, `position ${position}, token ${token}: ${difference}`);
        }
      }
    });

    it('is the same to the bit in pieces of any size', async () => {
      await fc.assert(
        fc.asyncProperty(fc.array(fc.integer({ min: 1, max: 60 }), { minLength: 1, maxLength: 12 }), async (sizes) => {
          const kept: number[] = [];
          for (const size of sizes) {
            const left = LENGTH - kept.reduce((sum, one) => sum + one, 0);
            if (left > 0) kept.push(Math.min(size, left));
          }
          const end = kept.reduce((sum, one) => sum + one, 0);
          const logits = await withSequence((sequence) => inPieces(model, sequence, kept));
          assert.deepEqual(bits(logits), rows(whole, 0, end));
        }),
        { numRuns: 12 },
      );
      const single = await withSequence((sequence) => inPieces(model, sequence, new Array<number>(LENGTH).fill(1)));
      assert.deepEqual(bits(single), bits(whole));
    });

    it('removes as many positions as it promises, and continues as if they had never been', async () => {
      await fc.assert(
        fc.asyncProperty(
          fc.array(fc.tuple(fc.integer({ min: 1, max: 50 }), fc.nat(100)), { minLength: 1, maxLength: 10 }),
          async (steps) => {
            await withSequence(async (sequence) => {
              let furthest = 0;
              for (const [size, back] of steps) {
                const from = sequence.length;
                const to = Math.min(LENGTH, from + size);
                if (to > from) assert.deepEqual(bits(await run(model, sequence, from, to)), rows(whole, from, to));
                furthest = Math.max(furthest, from);
                const oldest = sequence.oldestPosition;
                assert.ok(
                  oldest <= Math.max(0, furthest - TAKEN_BACK_POSITIONS),
                  `${oldest} after a pass at ${furthest}`,
                );
                sequence.truncate(Math.max(oldest, sequence.length - back));
              }
            });
          },
        ),
        { numRuns: 15 },
      );
    });

    it('can restart at any position of a valid truncation, and at the start', async () => {
      await withSequence(async (sequence) => {
        await inPieces(model, sequence, [100, 20, 5]);
        const oldest = sequence.oldestPosition;
        assert.deepEqual(bits(await run(model, sequence, oldest, 130)), rows(whole, oldest, 130));
        if (recurrent) {
          assert.ok(oldest > 0);
          assert.throws(() => {
            sequence.truncate(oldest - 1);
          }, isInternal);
          await assert.rejects(run(model, sequence, 1, 2), isInternal);
        }
        assert.deepEqual(bits(await run(model, sequence, 0, 10)), rows(whole, 0, 10));
        sequence.truncate(0);
        assert.equal(sequence.oldestPosition, 0);
        assert.deepEqual(bits(await run(model, sequence, 0, 50)), rows(whole, 0, 50));
      });
    });

    it('continues with copied rows as with its own', async () => {
      await withSequence(async (sequence) => {
        const copy = model.createSequence();
        // Never more rows than a recurrence stores.
        for (const end of [30, 61, 62, 110]) {
          const from = sequence.length;
          await run(model, sequence, from, end);
          for (const layer of shape.layers.keys())
            copy.writeRows(layer, from, end - from, sequence.readRows(layer, from, end - from));
          assert.equal(copy.length, end);
        }
        assert.deepEqual(bits(await run(model, copy, 110, 140)), rows(whole, 110, 140));
        const overwritten = Math.max(100, copy.oldestPosition);
        for (const layer of shape.layers.keys()) {
          const zeros = new Uint8Array(sequence.readRows(layer, overwritten, 4).length);
          copy.writeRows(layer, overwritten, 4, zeros);
          assert.deepEqual(copy.readRows(layer, overwritten, 4), zeros);
        }
        assert.notDeepEqual(bits(await run(model, copy, 140, 141)), rows(whole, 140, 141));
        copy.truncate(overwritten);
        assert.deepEqual(bits(await run(model, copy, overwritten, 141)), rows(whole, overwritten, 141));
        copy.dispose();
      });
    });

    it('keeps several sequences of one pass separate, whatever the order of their rows', async () => {
      const first = model.createSequence();
      const second = model.createSequence();
      await run(model, first, 0, 70);
      await run(model, second, 0, 3);
      const pass = model.createPass(8);
      const rowSequence = [0, 1, 1, 0, 0, 1, 0, 1];
      const positions = [70, 3, 4, 71, 72, 5, 73, 6];
      await pass.begin(
        [first, second],
        Int32Array.from(rowSequence),
        Int32Array.from(positions),
        Int32Array.from(positions, tokenAt),
      );
      await pass.forward(null);
      const logits = await pass.logits(Int32Array.of(0, 3, 4, 6, 1, 2, 5, 7));
      assert.deepEqual(rows(logits, 0, 4), rows(whole, 70, 74));
      assert.deepEqual(rows(logits, 4, 8), rows(whole, 3, 7));
      for (const handle of [pass, first, second]) handle.dispose();
    });

    it('is the same to the bit layer by layer with experts in slots', async () => {
      const tokens = 9;
      const main = await weights.load(device, false);
      const slots = slotsFor(device, shape);
      const rowBytes = expertRowSize(shape) * 4;
      const logits = await withSequence(async (sequence) => {
        const pass = main.createPass(tokens);
        const positions = Int32Array.from(range(0, tokens));
        await pass.begin([sequence], new Int32Array(tokens), positions, positions.map(tokenAt));
        for (let layer = 0; layer < shape.expertLayers; layer++) {
          const hidden = new Uint8Array(tokens * rowBytes);
          const choice = await pass.attend(layer, hidden);
          const outputs = new Uint8Array(choice.experts.length * rowBytes);
          for (const [place, expert] of choice.experts.entries()) {
            const row = Math.floor(place / shape.expertsPerToken);
            const input = hidden.subarray(row * rowBytes, (row + 1) * rowBytes);
            const output = outputs.subarray(place * rowBytes, (place + 1) * rowBytes);
            await executeInSlot(slots, weights.expert(layer, expert), input, output);
          }
          await pass.combine(layer, outputs, choice.weights);
        }
        const given = await pass.logits(positions);
        pass.dispose();
        return given;
      }, main);
      assert.deepEqual(bits(logits), rows(whole, 0, tokens));
      slots.dispose();
      main.dispose();
    });

    it('is the same to the bit with every instruction set', async () => {
      for (const instructionSet of instructionSets() as DeviceOptions['instructionSet'][]) {
        const other = openTestDevice({ instructionSet, threads: 3 });
        const otherModel = await weights.load(other, true);
        const logits = await withSequence((sequence) => inPieces(otherModel, sequence, [40, 1, 9]), otherModel);
        assert.deepEqual(bits(logits), rows(whole, 0, 50), instructionSet);
        otherModel.dispose();
        other.dispose();
      }
    });

    it('undoes a forward that was cancelled midway', async () => {
      await withSequence(async (sequence) => {
        await inPieces(model, sequence, [70, 10]);
        const pass = model.createPass(30);
        const positions = range(80, 110);
        await pass.begin(
          [sequence],
          new Int32Array(30),
          Int32Array.from(positions),
          Int32Array.from(positions, tokenAt),
        );
        const running = pass.forward(() => {
          pass.cancel();
        });
        await running.catch((error: unknown) => assert.ok(isCancelled(error)));
        pass.dispose();
        sequence.truncate(75);
        assert.equal(sequence.length, 75);
        assert.deepEqual(bits(await run(model, sequence, 75, 120)), rows(whole, 75, 120));
      });
    });

    it('fails where the sequence is cut back while a pass runs', async () => {
      await withSequence(async (sequence) => {
        await inPieces(model, sequence, [70]);
        const pass = model.createPass(3);
        const positions = Int32Array.of(70, 71, 72);
        await pass.begin([sequence], new Int32Array(3), positions, positions.map(tokenAt));
        sequence.truncate(0);
        if (recurrent) await assert.rejects(pass.forward(null), isInternal);
        pass.dispose();
        assert.deepEqual(bits(await run(model, sequence, 0, 10)), rows(whole, 0, 10));
      });
    });

    it('releases all memory, and takes no more for recurrences however long the sequence is', async () => {
      const before = device.info().usedBytes;
      await withSequence(async (sequence) => {
        await inPieces(model, sequence, new Array<number>(200).fill(1));
        const early = device.info().usedBytes;
        await inPieces(model, sequence, new Array<number>(50).fill(1));
        assert.equal(device.info().usedBytes, early);
      });
      assert.equal(device.info().usedBytes, before);
    });
  });
}
