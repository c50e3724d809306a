import assert from 'node:assert/strict';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import fc from 'fast-check';
import { nativeDenseRoles, openDevice, type Device, type Model, type Sequence } from '../../native/index.js';
import { DENSE_ROLES, densePlaces } from '../../shared/model/dense-roles.js';
import {
  modelShapeSchema,
  type AttentionMixer,
  type BlockIndexerShape,
  type GluShape,
  type IndexerShape,
  type LayerShape,
  type MixerShape,
  type ModelShape,
  type RotaryShape,
  type RouterShape,
  type StreamsShape,
} from '../../shared/model/model-shape.js';
import { shapeProblem } from '../../shared/model/shape-problem.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { TensorSource } from '../../shared/model/tensor-source.js';
import { bits, openTestDevice } from './native-test-model.js';
import { RandomWeights } from './native-random-model.js';
import { RANDOM_SHAPES } from './random-model-shapes.js';
import { withTemporaryDirectory } from './tiny-checkpoint.js';

const LENGTH = 75;
const ROPES = [
  { frequencies: [1], scale: 1 },
  { frequencies: [0.5, 0, 0.125], scale: 1.25 },
];

const small = fc.integer({ min: 1, max: 13 });
const flag = fc.boolean();
const epsilon = fc.constantFrom(Math.fround(1e-6), 0.25);
const limit = fc.constantFrom(0, 0.5);

const gated: fc.Arbitrary<GluShape> = fc.record({
  intermediateSize: small,
  activation: fc.constantFrom('sigmoid', 'tanh'),
  alpha: fc.constantFrom(1, 1.75),
  limit,
  limitOn: fc.constantFrom('inputs', 'activation'),
  upOffset: fc.constantFrom(0, 1),
  bias: fc.constant(false),
});

const glu: fc.Arbitrary<GluShape> = fc.oneof(
  { weight: 3, arbitrary: gated },
  {
    weight: 1,
    arbitrary: gated.map((one) => ({
      ...one,
      activation: 'relu-squared' as const,
      intermediateSize: 2 * one.intermediateSize,
      limit: 0,
    })),
  },
);

const rotary: fc.Arbitrary<RotaryShape> = fc.record({
  rope: fc.constantFrom(0, 1),
  pairing: fc.constantFrom('halves', 'neighbours'),
  offset: fc.constantFrom(0, 0, 1),
});

const blockIndexer: fc.Arbitrary<BlockIndexerShape> = fc.record({
  headDim: fc.constantFrom(6, 13, 32, 40),
  blockSize: fc.constantFrom(1, 4, 7, 32, 100),
  blocks: fc.constantFrom(1, 2, 3, 9, 80),
  localBlocks: fc.nat(2),
  normEpsilon: epsilon,
  rotary: fc.option(
    rotary.map((one) => ({ ...one, offset: 0 })),
    { nil: null },
  ),
});

const plainAttention: fc.Arbitrary<AttentionMixer> = fc
  .record({ group: fc.integer({ min: 1, max: 3 }), keyValueHeads: fc.integer({ min: 1, max: 3 }) })
  .chain(({ group, keyValueHeads }) =>
    fc.record({
      kind: fc.constant<'attention'>('attention'),
      heads: fc.constant(group * keyValueHeads),
      keyValueHeads: fc.constant(keyValueHeads),
      headDim: small,
      valueDim: fc.option(small, { nil: undefined }),
      valueScale: fc.constantFrom(undefined, 0.75),
      bias: flag,
      outputBias: flag,
      queryKeyNorm: fc.constantFrom('none', 'head', 'all'),
      normAfterRotation: flag,
      valueNorm: flag,
      normEpsilon: epsilon,
      clip: limit,
      keysAreValues: flag,
      outputGate: flag,
      outputGateFunction: fc.constantFrom('sigmoid', 'softplus'),
      outputGateWidth: fc.constantFrom('element', 'head'),
      sinks: flag,
      window: fc.constantFrom(0, 1, 6),
      scoreScale: fc.constantFrom(1, 0.25),
      rotary: fc.option(rotary, { nil: null }),
    }),
  );

const attention: fc.Arbitrary<MixerShape> = fc.oneof(
  plainAttention,
  fc
    .tuple(plainAttention, blockIndexer)
    .map(([mixer, own]) => ({ ...mixer, window: 0, sinks: false, blockIndexer: own })),
);

const indexer: fc.Arbitrary<IndexerShape> = fc
  .record({
    heads: small,
    headDim: fc.constantFrom(4, 6, 13, 32, 40),
    positions: fc.constantFrom(1, 5, 16, 40, 70, 400),
    normEpsilon: epsilon,
    rotary: fc.option(
      rotary.map((one) => ({ ...one, offset: 0 })),
      { nil: null },
    ),
    pool: fc.constantFrom(undefined, 1, 2, 5, 16),
  })
  .map(({ pool, ...own }) =>
    pool === undefined || own.positions % pool !== 0 ? own : { ...own, poolPositions: pool },
  );

const latent: fc.Arbitrary<MixerShape> = fc
  .record({
    kind: fc.constant<'latent'>('latent'),
    heads: fc.integer({ min: 1, max: 3 }),
    queryRank: fc.nat(9),
    latentSize: small,
    nopeSize: small,
    ropeSize: fc.nat(13),
    valueSize: small,
    normEpsilon: epsilon,
    scoreScale: fc.constant(0.25),
    rotary: fc.option(
      rotary.map((one) => ({ ...one, offset: 0 })),
      { nil: null },
    ),
    sinks: fc.constantFrom(undefined, true as const),
    outputGate: fc.constantFrom(undefined, true as const),
  })
  .chain((mixer) =>
    fc.oneof(
      fc.constant(mixer),
      fc.constant({ ...mixer, sharesIndexer: true as const }),
      indexer.map((own) => ({ ...mixer, queryRank: mixer.queryRank + 1, indexer: own })),
    ),
  );

const delta: fc.Arbitrary<MixerShape> = fc
  .record({ keyHeads: fc.integer({ min: 1, max: 3 }), group: fc.integer({ min: 1, max: 3 }), byChannel: flag })
  .chain(({ keyHeads, group, byChannel }) =>
    fc.record({
      kind: fc.constant<'delta'>('delta'),
      keyHeads: fc.constant(keyHeads),
      normEpsilon: epsilon,
      valueHeads: fc.constant(keyHeads * group),
      keyDim: small,
      valueDim: small,
      taps: fc.integer({ min: 1, max: 6 }),
      lowRank: fc.option(small, { nil: undefined }),
      gateFunction: fc.constantFrom(undefined, 'silu', 'sigmoid'),
      separateConvolutions: fc.constantFrom(undefined, true),
      ...(byChannel ? { decayWidth: fc.constant('channel'), decayFloor: fc.constantFrom(undefined, -5, -0.5) } : {}),
    }),
  );

const convolution: fc.Arbitrary<MixerShape> = fc.record({
  kind: fc.constant<'convolution'>('convolution'),
  taps: fc.integer({ min: 1, max: 6 }),
});

const stateSpace: fc.Arbitrary<MixerShape> = fc
  .record({
    groups: fc.integer({ min: 1, max: 3 }),
    group: fc.integer({ min: 1, max: 3 }),
    normed: fc.constantFrom('groups', 'all'),
  })
  .chain(({ groups, group, normed }) =>
    fc.record({
      kind: fc.constant<'state-space'>('state-space'),
      heads: fc.constant(groups * group),
      groups: fc.constant(groups),
      headDim: small,
      stateSize: small,
      taps: fc.integer({ min: 1, max: 6 }),
      convolutionBias: flag,
      normGroups: fc.constant(normed === 'all' ? 1 : groups),
      normEpsilon: epsilon,
    }),
  );

const pooled: fc.Arbitrary<MixerShape> = fc
  .record({ groups: fc.integer({ min: 1, max: 3 }), group: fc.integer({ min: 1, max: 3 }) })
  .chain(({ groups, group }) =>
    fc.record({
      kind: fc.constant<'pooled'>('pooled'),
      heads: fc.constant(groups * group),
      headDim: small,
      queryRank: small,
      outputGroups: fc.constant(groups),
      outputRank: small,
      window: fc.constantFrom(1, 6, 40),
      normEpsilon: epsilon,
      scoreScale: fc.constant(0.25),
      rotary,
      pools: fc.option(
        fc.record({
          positions: fc.constantFrom(1, 2, 4, 7, 32),
          overlaps: flag,
          indexer: fc.option(
            fc.record({
              heads: small,
              headDim: fc.constantFrom(4, 6, 13, 40),
              entries: fc.constantFrom(1, 3, 8, 400),
              rotary: rotary.map((one) => ({ ...one, offset: 0 })),
            }),
            { nil: undefined },
          ),
        }),
        { nil: undefined },
      ),
    }),
  );

const router = (experts: number): fc.Arbitrary<RouterShape> =>
  fc.record({
    score: fc.constantFrom('softmax', 'sigmoid', 'sqrt-softplus'),
    bias: flag,
    choiceBias: flag,
    groups: fc.constantFrom(1, experts),
    groupsKept: fc.constantFrom(1, experts),
    groupScore: fc.constantFrom('best', 'best-two'),
    normalize: flag,
    sumEpsilon: fc.constantFrom(0, 0.125),
    sumFloor: fc.constantFrom(0, 0.5),
    scale: fc.constantFrom(1, 2),
    expertScale: flag,
    jitter: fc.constant(0),
    logitCap: limit,
  });

const layer = (experts: number): fc.Arbitrary<LayerShape> =>
  fc.record({
    mixer: fc.oneof(attention, latent, delta, convolution, stateSpace, pooled),
    parallel: flag,
    feedForwardScale: fc.constantFrom(undefined, 0.5),
    mixerOutputNorm: flag,
    always: fc.option(fc.record({ glu, gated: flag })),
    routed: fc.option(router(experts)),
    expertLimit: fc.constantFrom(undefined, 0, 0.25),
    routedNorm: flag,
    routerNorm: flag,
    alwaysOutputNorm: flag,
    routedOutputNorm: flag,
    feedForwardOutputNorm: flag,
    layerScale: flag,
  });

const count = fc.integer({ min: 2, max: 8 });
const ending = fc.constantFrom(undefined, 'mean' as const);
const streams: fc.Arbitrary<StreamsShape> = fc.oneof(
  fc.record({ kind: fc.constant<'mixed'>('mixed'), count, epsilon, rounds: fc.integer({ min: 1, max: 5 }), ending }),
  fc.record({ kind: fc.constant<'added'>('added'), count, epsilon, magnitude: fc.constantFrom(0.5, 2), ending }),
);

/** Whatever the schema and shapeProblem let through, in small. */
const anyShape: fc.Arbitrary<ModelShape> = fc
  .integer({ min: 1, max: 6 })
  .chain((experts) =>
    fc.record({
      vocabSize: small,
      hiddenSize: small,
      maxPositions: fc.constant(300),
      norm: fc.constantFrom('rms', 'layer', 'layer-without-bias'),
      normEpsilon: epsilon,
      embeddingScale: fc.constantFrom(1, 3),
      residualScale: fc.constantFrom(1, 0.5),
      lmHeadBias: flag,
      logitDivisor: fc.constantFrom(1, 2),
      logitCap: fc.constantFrom(0, 3),
      ropes: fc.constant(ROPES),
      queryScale: fc.option(fc.record({ beta: fc.constantFrom(0.1, 2).map(Math.fround), length: small }), {
        nil: undefined,
      }),
      streams: fc.option(streams, { nil: undefined }),
      layers: fc.array(layer(experts), { minLength: 1, maxLength: 4 }),
      experts: fc.constant(experts),
      expertsPerToken: fc.integer({ min: 1, max: experts }),
      expertHiddenSize: fc.option(small, { nil: undefined }),
      expert: fc.tuple(glu, flag).map(([one, bias]) => ({ ...one, bias })),
    }),
  )
  .map((shape) => ({ ...shape, expertLayers: shape.layers.filter(({ routed }) => routed !== null).length }))
  .filter((shape) => modelShapeSchema.safeParse(shape).success && shapeProblem(shape) === null);

async function runPiece(model: Model, sequence: Sequence, size: number, tokenFactor: number): Promise<Float32Array> {
  const from = sequence.length;
  const pass = model.createPass(size);
  const positions = Int32Array.from({ length: size }, (_, i) => from + i);
  const tokens = positions.map((position) => (position * tokenFactor) % model.shape.vocabSize);
  await pass.begin([sequence], new Int32Array(size), positions, tokens);
  await pass.forward(null);
  const logits = await pass.logits(Int32Array.from({ length: size }, (_, i) => i));
  pass.dispose();
  return logits;
}

/** `forked`: each piece runs in a fork of the sequence that ran the one before, which has gone on with other tokens meanwhile. */
async function logitsOf(model: Model, pieces: readonly number[], forked = false): Promise<number[]> {
  const sequences = [model.createSequence()];
  const logits: number[] = [];
  for (const size of pieces) {
    const last = sequences.at(-1);
    assert.ok(last !== undefined);
    const sequence = forked ? last.fork(last.length) : last;
    if (forked) {
      sequences.push(sequence);
      await runPiece(model, last, 3, 5);
    }
    logits.push(...(await runPiece(model, sequence, size, 7)));
  }
  for (const sequence of sequences) sequence.dispose();
  return logits;
}

describe('a model of any shape', () => {
  let device: Device;
  let scalar: Device;

  before(() => {
    device = openTestDevice();
    scalar = openDevice({ backend: 'cpu', instructionSet: 'scalar', threads: 1, budgetBytes: 0 });
  });

  after(() => {
    device.dispose();
    scalar.dispose();
  });

  it('runs, and gives the same bits in pieces and without vector instructions', async () => {
    await fc.assert(
      fc.asyncProperty(anyShape, async (shape) => {
        const weights = new RandomWeights(shape);
        const model = await weights.load(device, true);
        const plain = await weights.load(scalar, true);
        try {
          const whole = Float32Array.from(await logitsOf(model, [LENGTH]));
          assert.deepEqual(bits(Float32Array.from(await logitsOf(model, [1, 33, 1, 40]))), bits(whole));
          assert.deepEqual(bits(Float32Array.from(await logitsOf(model, [35, 1, 39], true))), bits(whole));
          assert.deepEqual(bits(Float32Array.from(await logitsOf(plain, [50, 25]))), bits(whole));
        } finally {
          for (const one of [model, plain, weights]) one.dispose();
        }
      }),
      { numRuns: 60 },
    );
  });

  it('gives the bits of ordinary latent attention where an indexer chooses all positions, and other ones behind them', async () => {
    const indexed = RANDOM_SHAPES['latent attention at the positions that indexers choose'];
    assert.ok(indexed !== undefined);
    const choosing = (positions: number): ModelShape => ({
      ...indexed,
      layers: indexed.layers.map((layer) => {
        const { mixer } = layer;
        if (mixer.kind !== 'latent' || mixer.indexer === undefined) return layer;
        return { ...layer, mixer: { ...mixer, indexer: { ...mixer.indexer, positions } } };
      }),
    });
    const ordinary = indexed.layers.map((layer) => {
      if (layer.mixer.kind !== 'latent') return layer;
      return { ...layer, mixer: { ...layer.mixer, indexer: undefined, sharesIndexer: undefined } };
    });
    // Most chosen positions fill one block of keys and a part of a second one.
    const length = 300;
    const weights = new RandomWeights(indexed);
    const found: number[][] = [];
    for (const shape of [{ ...indexed, layers: ordinary }, choosing(length), choosing(length - 1)]) {
      const model = await weights.load(device, true, shape);
      found.push(await logitsOf(model, [length]));
      model.dispose();
    }
    weights.dispose();
    const [plain = [], all, fewer = []] = found;
    assert.deepEqual(all, plain);
    const before = (length - 1) * indexed.vocabSize;
    assert.deepEqual(fewer.slice(0, before), plain.slice(0, before));
    assert.notDeepEqual(fewer.slice(before), plain.slice(before));
  });

  it('gives the bits of ordinary attention where an indexer chooses all blocks, and other ones behind them', async () => {
    const indexed = RANDOM_SHAPES['attention to the blocks that indexers choose'];
    assert.ok(indexed !== undefined);
    const choosing = (blocks: number, blockSize: number, localBlocks: number): ModelShape => ({
      ...indexed,
      layers: indexed.layers.map((layer) => {
        const { mixer } = layer;
        if (mixer.kind !== 'attention' || mixer.blockIndexer === undefined) return layer;
        return {
          ...layer,
          mixer: { ...mixer, blockIndexer: { ...mixer.blockIndexer, blocks, blockSize, localBlocks } },
        };
      }),
    });
    const ordinary = indexed.layers.map((layer) =>
      layer.mixer.kind === 'attention' ? { ...layer, mixer: { ...layer.mixer, blockIndexer: undefined } } : layer,
    );
    const length = 300;
    const weights = new RandomWeights(indexed);
    const found: number[][] = [];
    for (const shape of [
      { ...indexed, layers: ordinary },
      choosing(3, length / 3, 1),
      choosing(length - 1, 1, 0),
      choosing(length - 1, 1, length - 1),
    ]) {
      const model = await weights.load(device, true, shape);
      found.push(await logitsOf(model, [length]));
      model.dispose();
    }
    weights.dispose();
    const [plain = [], all, best = [], last = []] = found;
    assert.deepEqual(all, plain);
    const before = (length - 1) * indexed.vocabSize;
    for (const fewer of [best, last]) {
      assert.deepEqual(fewer.slice(0, before), plain.slice(0, before));
      assert.notDeepEqual(fewer.slice(before), plain.slice(before));
    }
  });

  it('is refused where the kernels cannot run it, whatever its numbers are', () => {
    const [shape] = Object.values(RANDOM_SHAPES);
    assert.ok(shape !== undefined);
    const refuses = (changes: Partial<ModelShape>): void => {
      assert.throws(
        () => device.createModel({ ...shape, ...changes }),
        (error) => error instanceof OdmoeError && error.code === 'MODEL_UNSUPPORTED',
      );
    };
    refuses({ hiddenSize: 2 ** 31 - 1 });
    refuses({ hiddenSize: 0.5 });
    refuses({ normEpsilon: Number.NaN });
    refuses({ experts: 5000, expertsPerToken: 1 });
    refuses({ expertsPerToken: 9 });
    refuses({ ropes: [] });
    refuses({ expertLayers: 1 });
    refuses({ layers: [] });
    refuses({ maxPositions: 2 ** 21 });
    refuses({ ropes: shape.ropes.map((rope) => ({ ...rope, frequencies: rope.frequencies.map(() => 1e6) })) });
    refuses({ layers: Array.from({ length: 2000 }, () => shape.layers).flat(), expertLayers: 4000 });
    refuses({ expert: { ...shape.expert, intermediateSize: 2 ** 30 } });
  });

  it('is refused where a table of experts by token names others, or one twice', async () => {
    const shape = RANDOM_SHAPES['heads, gates and limits by layer'];
    assert.ok(shape !== undefined);
    const layer = shape.layers.findIndex(({ routed }) => routed?.byToken === true);
    const size = 4 * shape.vocabSize * shape.expertsPerToken;
    await withTemporaryDirectory(async (directory) => {
      const path = join(directory, 'table');
      const plane = { plane: 0, path, offsetBytes: 0, storedBytes: size, plainBytes: size } as const;
      const table: TensorSource = {
        rows: shape.vocabSize,
        columns: shape.expertsPerToken,
        split: 'none-fp32',
        chunks: [{ ...plane, codec: 'raw', crc32c: null }],
        view: null,
      };
      for (const [place, expert] of [
        [4, 8],
        [5, -1],
        // Not a number of FP32 is refused anyway; this one is a number.
        [5, -2147483647],
        [7, 6],
      ] as const) {
        const named = Int32Array.from({ length: size / 4 }, (_, index) => index % shape.experts);
        named[place] = expert;
        await writeFile(path, new Uint8Array(named.buffer));
        const model = device.createModel(shape);
        await assert.rejects(
          model.loadDense('tokenExperts', layer, table, 'fp32'),
          (error) => error instanceof OdmoeError && error.code === 'MODEL_CORRUPT',
          `expert ${expert}`,
        );
        model.dispose();
      }
    });
  });

  it('has only roles that these tests load', () => {
    const loaded = new Set(
      Object.values(RANDOM_SHAPES).flatMap((shape) => [...densePlaces(shape, false)].map(({ role }) => role)),
    );
    // draft-heads.test.ts loads the roles of a head that drafts.
    const ofHeads = ['tokenNorm', 'stateNorm', 'draftInput'];
    assert.deepEqual([...loaded, ...ofHeads].sort(), Object.keys(DENSE_ROLES).sort());
  });

  it('has the roles of one table, which the native core has in the same order', () => {
    assert.deepEqual(Object.entries(nativeDenseRoles()), Object.entries(DENSE_ROLES));
  });
});
