import assert from 'node:assert/strict';
import fc from 'fast-check';
import type { Device, Model, Pass, Sequence } from '../../native/index.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { isRecurrent } from '../../shared/model/model-shape.js';
import { bits, openTestDevice } from './native-test-model.js';
import { RandomWeights } from './native-random-model.js';
import { RANDOM_SHAPES } from './random-model-shapes.js';

const codeIs =
  (code: string) =>
  (error: unknown): boolean =>
    error instanceof OdmoeError && error.code === code;

/** A sequence, the tokens that it was given, and the logits of each. */
interface Branch {
  sequence: Sequence;
  tokens: number[];
  logits: Float32Array[];
}

interface Rows {
  branch: Branch;
  tokens: readonly number[];
}

/** Runs these tokens behind those of each branch, all in one pass. */
async function append(model: Model, rows: readonly Rows[], given: Pass | null = null): Promise<void> {
  const count = rows.reduce((sum, { tokens }) => sum + tokens.length, 0);
  const pass = given ?? model.createPass(count);
  try {
    await pass.begin(
      rows.map(({ branch }) => branch.sequence),
      Int32Array.from(rows.flatMap(({ tokens }, index) => tokens.map(() => index))),
      Int32Array.from(rows.flatMap(({ branch, tokens }) => tokens.map((_, row) => branch.tokens.length + row))),
      Int32Array.from(rows.flatMap(({ tokens }) => tokens)),
    );
    await pass.forward(null);
    const logits = await pass.logits(Int32Array.from({ length: count }, (_, row) => row));
    const { vocabSize } = model.shape;
    let row = 0;
    for (const { branch, tokens } of rows) {
      for (const token of tokens) {
        branch.tokens.push(token);
        branch.logits.push(logits.slice(row * vocabSize, (row + 1) * vocabSize));
        row += 1;
      }
    }
  } finally {
    if (given === null) pass.dispose();
  }
}

function fork(branch: Branch, length: number): Branch {
  const { sequence, tokens, logits } = branch;
  return { sequence: sequence.fork(length), tokens: tokens.slice(0, length), logits: logits.slice(0, length) };
}

function truncate(branch: Branch, length: number): void {
  branch.sequence.truncate(length);
  branch.tokens.length = length;
  branch.logits.length = length;
}

/** A length that the sequence can be cut back to; `share` is within [0, 1]. */
function keptLength({ sequence }: Branch, share: number): number {
  const { oldestPosition: oldest, length } = sequence;
  return share === 0 ? 0 : oldest + Math.round(share * (length - oldest));
}

function started(model: Model): Branch {
  return { sequence: model.createSequence(), tokens: [], logits: [] };
}

/** Fails unless a new sequence gives the same logits for the same tokens in one pass. */
async function checkAgainstFreshRun(model: Model, { tokens, logits, sequence }: Branch): Promise<void> {
  assert.equal(sequence.length, tokens.length);
  if (tokens.length === 0) return;
  const fresh = started(model);
  await append(model, [{ branch: fresh, tokens }]);
  fresh.sequence.dispose();
  assert.deepEqual(logits.map(bits), fresh.logits.map(bits));
}

const tokensFrom = (seed: number, count: number, vocabSize: number): number[] =>
  Array.from({ length: count }, (_, i) => (seed * 31 + i * 17 + 5) % vocabSize);

/** A sequence of 250 positions and its fork, on a device with that budget (0: none) which nothing else is on. */
async function forkedWithin<Result>(
  weights: RandomWeights,
  budgetBytes: number,
  use: (branches: [Branch, Branch], on: { device: Device; model: Model; pass: Pass }) => Promise<Result>,
): Promise<Result> {
  const device = openTestDevice({ budgetBytes });
  const model = await weights.load(device, true);
  const pass = model.createPass(10);
  const source = started(model);
  try {
    for (let i = 0; i < 25; i++) {
      await append(model, [{ branch: source, tokens: tokensFrom(i, 10, model.shape.vocabSize) }], pass);
    }
    const branches: [Branch, Branch] = [fork(source, 250), source];
    const result = await use(branches, { device, model, pass });
    for (const { sequence } of branches) sequence.dispose();
    assert.equal(model.sequenceBytes, 0);
    return result;
  } finally {
    for (const handle of [pass, model, device]) handle.dispose();
  }
}

const rows = fc.oneof(fc.integer({ min: 1, max: 40 }), fc.constantFrom(1, 150));
const share = fc.oneof(fc.constantFrom(0, 1), fc.double({ min: 0, max: 1, noNaN: true }));
const which = fc.nat(20);
const step = fc.oneof(
  fc.record({ kind: fc.constant('append' as const), which, other: which, rows, otherRows: rows }),
  fc.record({ kind: fc.constant('fork' as const), which, share }),
  fc.record({ kind: fc.constant('truncate' as const), which, share }),
  fc.record({ kind: fc.constant('dispose' as const), which }),
);
type Step = typeof step extends fc.Arbitrary<infer Value> ? Value : never;

/** Sequences of one model, some of which are forks of others. */
class Forest {
  readonly branches: Branch[] = [];
  private seed = 0;

  constructor(
    private readonly model: Model,
    private readonly maxPositions: number,
  ) {}

  async run(step: Step): Promise<void> {
    if (this.branches.length === 0) this.branches.push(started(this.model));
    const index = step.which % this.branches.length;
    const branch = this.branches[index];
    assert.ok(branch !== undefined);
    if (step.kind === 'fork') this.branches.push(fork(branch, keptLength(branch, step.share)));
    else if (step.kind === 'truncate') truncate(branch, keptLength(branch, step.share));
    else if (step.kind === 'dispose') this.branches.splice(index, 1)[0]?.sequence.dispose();
    else {
      const other = this.branches[step.other % this.branches.length];
      const written = [{ branch, rows: step.rows }];
      if (other !== undefined && other !== branch) written.push({ branch: other, rows: step.otherRows });
      await this.append(written);
    }
  }

  dispose(): void {
    for (const { sequence } of this.branches) sequence.dispose();
  }

  private async append(written: readonly { branch: Branch; rows: number }[]): Promise<void> {
    const parts = written
      .map(({ branch, rows: wanted }) => ({
        branch,
        tokens: tokensFrom(
          this.seed++,
          Math.min(wanted, this.maxPositions - branch.tokens.length),
          this.model.shape.vocabSize,
        ),
      }))
      .filter(({ tokens }) => tokens.length > 0);
    if (parts.length > 0) await append(this.model, parts);
  }
}

for (const [name, shape] of Object.entries(RANDOM_SHAPES)) {
  const recurrent = shape.layers.some(({ mixer }) => isRecurrent(mixer));

  describe(`forks of a sequence of a model with ${name}`, () => {
    let device: Device;
    let weights: RandomWeights;
    let model: Model;

    before(async () => {
      device = openTestDevice();
      weights = new RandomWeights(shape);
      model = await weights.load(device, true);
    });

    after(() => {
      model.dispose();
      device.dispose();
      weights.dispose();
    });

    it('continue as separate sequences, whatever the others do', async () => {
      await fc.assert(
        fc.asyncProperty(fc.array(step, { minLength: 3, maxLength: 14 }), async (steps) => {
          const forest = new Forest(model, 400);
          try {
            for (const one of steps) await forest.run(one);
            for (const branch of forest.branches) await checkAgainstFreshRun(model, branch);
          } finally {
            forest.dispose();
          }
          assert.equal(model.sequenceBytes, 0);
        }),
        { numRuns: 12 },
      );
    });

    it('take no memory before they are written to, and then the predicted amount', async () => {
      const source = started(model);
      await append(model, [{ branch: source, tokens: tokensFrom(1, 270, shape.vocabSize) }]);
      const held = model.sequenceBytes;
      const used = device.info().usedBytes;
      const length = keptLength(source, 0.5);
      const forks = [fork(source, length), fork(source, 270), fork(source, 0)];
      assert.equal(model.sequenceBytes, held);
      assert.equal(device.info().usedBytes, used);
      const pass = model.createPass(20);
      const before = { held: model.sequenceBytes, used: device.info().usedBytes };
      let estimated = 0;
      for (const { sequence, tokens } of [...forks, source]) {
        const from = tokens.length;
        const bytes = sequence.bytesToWrite(from, from + 20);
        const heldBefore = model.sequenceBytes;
        const positions = Int32Array.from({ length: 20 }, (_, row) => from + row);
        await pass.begin([sequence], new Int32Array(20), positions, new Int32Array(20));
        assert.equal(model.sequenceBytes - heldBefore, bytes);
        estimated += bytes;
        assert.equal(sequence.bytesToWrite(from, from + 20), 0);
      }
      assert.equal(device.info().usedBytes - before.used, estimated);
      pass.dispose();
      for (const { sequence } of [...forks, source]) sequence.dispose();
      assert.equal(model.sequenceBytes, 0);
      assert.equal(device.info().usedBytes, used - held);
    });

    it('stay unchanged where a copy finds no memory', async () => {
      for (const [written, survivor] of [
        [0, 0],
        [0, 1],
        [1, 0],
        [1, 1],
      ] as const) {
        const { need, usedBytes } = await forkedWithin(weights, 0, async (branches, { device: unlimited }) => ({
          need: branches[written].sequence.bytesToWrite(250, 260),
          usedBytes: unlimited.info().usedBytes,
        }));
        assert.ok(need > 1);
        await forkedWithin(weights, usedBytes + need - 1, async (branches, { model: small, pass }) => {
          const held = small.sequenceBytes;
          const rows = [{ branch: branches[written], tokens: tokensFrom(3, 10, shape.vocabSize) }];
          await assert.rejects(append(small, rows, pass), codeIs('DEVICE_OUT_OF_MEMORY'));
          assert.equal(branches[written].sequence.bytesToWrite(250, 260), need);
          assert.equal(small.sequenceBytes, held);
          branches[1 - survivor]?.sequence.dispose();
          const branch = branches[survivor];
          assert.equal(branch.sequence.bytesToWrite(250, 256), 0);
          await append(small, [{ branch, tokens: tokensFrom(4, 6, shape.vocabSize) }], pass);
          await checkAgainstFreshRun(model, branch);
        });
      }
    });

    it('are refused where the sequence is shorter, or no longer holds the position', async () => {
      const source = started(model);
      await append(model, [{ branch: source, tokens: tokensFrom(1, 150, shape.vocabSize) }]);
      await append(model, [{ branch: source, tokens: tokensFrom(2, 1, shape.vocabSize) }]);
      assert.throws(() => source.sequence.fork(152), codeIs('INTERNAL'));
      const { oldestPosition } = source.sequence;
      assert.equal(oldestPosition > 0, recurrent);
      if (recurrent) assert.throws(() => source.sequence.fork(oldestPosition - 1), codeIs('INTERNAL'));
      const oldest = fork(source, oldestPosition);
      assert.equal(oldest.sequence.oldestPosition, oldestPosition);
      await checkAgainstFreshRun(model, oldest);
      for (const { sequence } of [source, oldest]) sequence.dispose();
    });

    it('are refused while a pass runs, and end a pass that is between two calls', async () => {
      const source = started(model);
      await append(model, [{ branch: source, tokens: tokensFrom(1, 40, shape.vocabSize) }]);
      const pass = model.createPass(3);
      const begin = (): Promise<void> =>
        pass.begin([source.sequence], new Int32Array(3), Int32Array.of(40, 41, 42), new Int32Array(3));
      await begin();
      const running = pass.forward(null);
      assert.throws(() => source.sequence.fork(40), codeIs('INTERNAL'));
      await running;
      source.sequence.truncate(40);
      await begin();
      const between = fork(source, 40);
      await assert.rejects(pass.forward(null), codeIs('INTERNAL'));
      for (const [seed, branch] of [between, source].entries()) {
        await append(model, [{ branch, tokens: tokensFrom(seed, 30, shape.vocabSize) }]);
      }
      for (const branch of [between, source]) await checkAgainstFreshRun(model, branch);
      for (const handle of [pass, source.sequence, between.sequence]) handle.dispose();
    });

    it('keep rows that another one overwrites', async () => {
      const source = started(model);
      await append(model, [{ branch: source, tokens: tokensFrom(1, 60, shape.vocabSize) }]);
      const copy = fork(source, 60);
      const position = Math.max(50, source.sequence.oldestPosition);
      for (const layer of shape.layers.keys()) {
        const before = source.sequence.readRows(layer, position, 4);
        const zeros = new Uint8Array(before.length);
        copy.sequence.writeRows(layer, position, 4, zeros);
        assert.deepEqual(copy.sequence.readRows(layer, position, 4), zeros);
        assert.deepEqual(source.sequence.readRows(layer, position, 4), before);
      }
      await append(model, [{ branch: source, tokens: tokensFrom(2, 20, shape.vocabSize) }]);
      await checkAgainstFreshRun(model, source);
      for (const { sequence } of [source, copy]) sequence.dispose();
    });
  });
}
