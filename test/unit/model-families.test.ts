import assert from 'node:assert/strict';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import fc from 'fast-check';
import { openCheckpoint } from '../../packs/checkpoint/checkpoint.js';
import { expectedBiases, expectedTensors } from '../../packs/checkpoint/expected-tensors.js';
import { MODEL_FAMILIES, parseModelConfig } from '../../packs/checkpoint/model-config.js';
import { packageRoot } from '../../shared/base/files/package-root.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { allExperts, partSizes } from '../../shared/model/part-sizes.js';
import { planeRowBytes } from '../../shared/model/weight-dtype.js';
import { splitRead, type TensorSource } from '../../shared/model/tensor-source.js';

const fixtures = join(packageRoot(), 'test', 'fixtures');

/** Layers of each fixture (a attention, l latent, d delta net, c convolution, s state space; capital: with experts), and number of tensors left out. */
const FIXTURES: Readonly<Record<string, { layers: string; leftOut: number; format?: string }>> = {
  mixtral: { layers: 'AAAA', leftOut: 0 },
  qwen2moe: { layers: 'AAAA', leftOut: 0 },
  phimoe: { layers: 'AAAA', leftOut: 0 },
  granitemoe: { layers: 'AAAA', leftOut: 0 },
  glm45: { layers: 'aAAA', leftOut: 58 },
  minimaxm2: { layers: 'AAAA', leftOut: 0 },
  gptoss: { layers: 'AAAA', leftOut: 0 },
  'gptoss-mxfp4': { layers: 'AAAA', leftOut: 0, format: 'mxfp4' },
  deepseekv2: { layers: 'lLLL', leftOut: 0 },
  'deepseekv2-yarn': { layers: 'lLLL', leftOut: 0 },
  deepseekv3: { layers: 'lLLL', leftOut: 68 },
  'deepseekv3-fp8': { layers: 'lLL', leftOut: 0, format: 'fp8-tile' },
  kimik25: { layers: 'lLLL', leftOut: 23 },
  qwen3next: { layers: 'DDDADDDA', leftOut: 65 },
  qwen35moe: { layers: 'DDDADDDA', leftOut: 86 },
  gemma4moe: { layers: 'AAAAAA', leftOut: 22 },
  ernie45moe: { layers: 'aAAAa', leftOut: 12 },
  lfm2moe: { layers: 'ccACAC', leftOut: 0 },
  dots1: { layers: 'aAAA', leftOut: 0 },
  solaropen: { layers: 'AAAA', leftOut: 0 },
  exaonemoe: { layers: 'aAAAA', leftOut: 41 },
  granitemoeshared: { layers: 'AAAA', leftOut: 0 },
  qwen3vlmoe: { layers: 'AAAA', leftOut: 27 },
  afmoe: { layers: 'aAAAA', leftOut: 0 },
  flexolmo: { layers: 'AAAA', leftOut: 0 },
  laguna: { layers: 'aAAAA', leftOut: 0 },
  step3p5: { layers: 'aAAAA', leftOut: 17 },
  step3p7: { layers: 'aAAAA', leftOut: 40 },
  deepseekv4: { layers: 'PPPPP', leftOut: 29 },
  deepseekv32: { layers: 'lLL', leftOut: 49 },
  glmmoedsa: { layers: 'lLLLL', leftOut: 49 },
  granitemoehybrid: { layers: 'SSASSA', leftOut: 0 },
  nemotronh: { layers: 'SsAS', leftOut: 0 },
  kimilinear: { layers: 'dDDLDL', leftOut: 0 },
  glm5next: { layers: 'dLDDL', leftOut: 25 },
  hyv3: { layers: 'aAAAA', leftOut: 41 },
  hyv4: { layers: 'lLLLL', leftOut: 0 },
  cohere2moe: { layers: 'aAAAAA', leftOut: 0 },
  'cohere2moe-shared': { layers: 'AAAAA', leftOut: 0 },
  mistral4: { layers: 'LLLL', leftOut: 15 },
  minimaxm3: { layers: 'aAAAA', leftOut: 27 },
  mimov2flash: { layers: 'aAAAA', leftOut: 14 },
};

function configOf(name: string): Record<string, unknown> {
  return JSON.parse(readFileSync(join(fixtures, name, 'config.json'), 'utf8')) as Record<string, unknown>;
}

/** Rows and columns that a view takes, and how far it reaches into the stored matrix. */
function checkView(source: TensorSource, what: string): void {
  const { rows, columns, view } = source;
  if (view === null) return;
  const there = Math.ceil((view.storedColumns - view.firstColumn) / view.stepColumns);
  const taken = Math.min(there, view.transposed ? rows : columns);
  const [blockHeight, width] = view.transposed ? [taken, view.blockRows] : [view.blockRows, taken];
  assert.equal(columns, width, `${what}: columns`);
  assert.equal(rows % blockHeight, 0, `${what}: rows`);
  const end = view.firstRow + (rows / blockHeight - 1) * view.stepRows + view.blockRows;
  assert.ok(end <= view.storedRows, `${what}: reaches row ${end} of ${view.storedRows}`);
  const storedBytes = planeRowBytes(splitRead(view.storedSplit), view.storedColumns)[0] ?? 0;
  assert.equal(source.chunks[0]?.storedBytes, view.storedRows * storedBytes, `${what}: bytes`);
}

describe('the fixtures of model families:', () => {
  it('are described here, fixture by fixture', () => {
    const found = readdirSync(fixtures).filter((name) => existsSync(join(fixtures, name, 'reference.json')));
    const elsewhere = found.filter((name) => name.startsWith('qwen3moe'));
    assert.deepEqual(found.filter((name) => !elsewhere.includes(name)).sort(), Object.keys(FIXTURES).sort());
  });

  it('stand in the table of docs/models.md', () => {
    const table = readFileSync(join(packageRoot(), 'docs', 'models.md'), 'utf8');
    const architectures = MODEL_FAMILIES.flatMap((family) => family.architectures);
    assert.deepEqual(
      architectures.filter((name) => !table.includes(`\`${name}\``)),
      [],
    );
  });

  for (const [name, { layers, leftOut, format }] of Object.entries(FIXTURES)) {
    it(`${name} is opened, every view within its tensor`, async () => {
      const checkpoint = await openCheckpoint(join(fixtures, name));
      const kinds = checkpoint.shape.layers.map(({ mixer, routed }) => {
        const letter = mixer.kind.charAt(0);
        return routed === null ? letter : letter.toUpperCase();
      });
      assert.equal(kinds.join(''), layers);
      assert.equal(checkpoint.leftOut.length, leftOut);
      assert.equal(checkpoint.shippedFormat, format ?? 'bf16');
      for (const { name: tensor, source } of checkpoint.tensors) checkView(source, tensor);
    });

    it(`${name}: no tensor is used twice for the same values, and all rows of a fused one are used`, async () => {
      const checkpoint = await openCheckpoint(join(fixtures, name));
      const values = new Map<string, number>();
      for (const { name: tensor, source } of checkpoint.tensors) {
        values.set(tensor, (values.get(tensor) ?? 0) + source.rows * source.columns);
      }
      // Of whole numbers of 64 bits only the low halves are used.
      const tied = checkpoint.tensors.filter(
        ({ name: tensor, source }) => source.view !== null && !tensor.endsWith('tid2eid'),
      );
      for (const { name: tensor, source } of tied) {
        const stored = (source.view?.storedRows ?? 0) * (source.view?.storedColumns ?? 0);
        assert.equal(values.get(tensor), stored, tensor);
      }
    });
  }

  it('the experts of gpt-oss get their biases, and gate and up are separated', async () => {
    const checkpoint = await openCheckpoint(join(fixtures, 'gptoss'));
    const { biases } = checkpoint.expert(2, 5);
    assert.equal(biases?.length, 64 + 64 + 64);
    assert.ok([...biases].every(Number.isFinite) && new Set(biases).size > 100);
    const mxfp4 = await openCheckpoint(join(fixtures, 'gptoss-mxfp4'));
    assert.deepEqual(mxfp4.expert(2, 5).biases, biases);
  });
});

describe('experts of layers with a limit of their own', () => {
  it('bring it with their tensors', async () => {
    const model = await openCheckpoint(join(fixtures, 'step3p5'));
    const limits = Array.from({ length: model.shape.expertLayers }, (_, layer) => model.expert(layer, 3).gluLimit);
    assert.deepEqual(limits, [undefined, undefined, Math.fround(0.6), Math.fround(0.8)]);
  });
});

describe('the sizes of expert parts for the loader', () => {
  it('include the rows of a fused tensor that are read, with the page around them', async () => {
    const checkpoint = await openCheckpoint(join(fixtures, 'gemma4moe'));
    const { expertBytes } = partSizes(allExperts(checkpoint));
    const readBytes = 3 * 20 * 64 * 2;
    assert.ok(expertBytes.exponent >= readBytes && expertBytes.exponent <= readBytes + 3 * 2 * 4096);
    assert.equal(expertBytes.signMantissa, 0);
  });

  it('count codes and scales separately', async () => {
    const checkpoint = await openCheckpoint(join(fixtures, 'gptoss-mxfp4'));
    const { expertBytes, shardBytes } = partSizes(allExperts(checkpoint));
    // Rows of gate and up alternate: both read nearly all of what the two have.
    const [codes, scales] = [5 * 64 * 32, 5 * 64 * 2];
    assert.ok(expertBytes.exponent >= codes - 2 * 32 && expertBytes.exponent <= codes + 3 * 2 * 4096);
    assert.ok(expertBytes.signMantissa >= scales - 4 && expertBytes.signMantissa <= scales + 3 * 2 * 4096);
    assert.deepEqual(shardBytes, { exponent: 0, signMantissa: 0 });
  });
});

describe('a config.json with false values', () => {
  const names = Object.keys(FIXTURES);

  /** Any key, also of objects inside, gets any value. */
  function changed(config: Record<string, unknown>, path: readonly string[], value: unknown): Record<string, unknown> {
    const [key = '', ...rest] = path;
    const inner = config[key];
    const isObject = typeof inner === 'object' && inner !== null && !Array.isArray(inner);
    return { ...config, [key]: rest.length > 0 && isObject ? changed({ ...inner }, rest, value) : value };
  }

  function pathsOf(config: Record<string, unknown>): string[][] {
    return Object.entries(config).flatMap(([key, value]) =>
      typeof value === 'object' && value !== null && !Array.isArray(value)
        ? [[key], ...pathsOf({ ...value }).map((path) => [key, ...path])]
        : [[key]],
    );
  }

  const lie = fc.oneof(
    fc.jsonValue(),
    fc.integer({ min: -2, max: 40 }),
    fc.constantFrom(0, 1, -1, 2 ** 31, 1e300, 1e-300, '', [], {}, [0], ['x'], null, true),
  );

  for (const name of names) {
    it(`is refused with an error of models, or read to a shape that holds together: ${name}`, () => {
      const config = configOf(name);
      fc.assert(
        fc.property(fc.constantFrom(...pathsOf(config)), lie, (path, value) => {
          try {
            const read = parseModelConfig(changed(config, path, value), 'config.json').config;
            let seen = 0;
            for (const { name } of expectedTensors(read)) if ((seen += name.length) > 20_000) break;
            for (const { name } of expectedBiases(read)) if ((seen += name.length) > 40_000) break;
          } catch (thrown) {
            assert.ok(thrown instanceof OdmoeError && thrown.code.startsWith('MODEL_'), String(thrown));
          }
        }),
        { numRuns: 150 },
      );
    });
  }
});
