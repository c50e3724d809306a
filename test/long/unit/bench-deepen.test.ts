import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import { deepenCheckpoint, layerSources } from '../../../bench/deepen/deepen-checkpoint.js';
import { realDevices } from '../../../engine/environment/node-environment.js';
import { LocalEngine } from '../../../engine/generation/local-engine.js';
import { packageRoot } from '../../../shared/base/files/package-root.js';
import { openCheckpoint } from '../../../packs/checkpoint/checkpoint.js';
import type { GenerateRequest, TokenReply } from '../../../shared/wire/messages.js';

const DEMO = join(packageRoot(), 'models', 'demo');
const TOKENS = 24;

async function answer(directory: string): Promise<TokenReply[]> {
  const engine = await LocalEngine.open(directory, {
    device: { backend: 'cpu', instructionSet: 'auto', threads: 1, budgetBytes: 0 },
    resident: null,
    shadow: null,
    emulation: null,
    prefillRows: 16,
    onProgress: null,
    chooseSeed: () => 1,
    environment: realDevices(),
  });
  try {
    const request: GenerateRequest = {
      text: 'Once upon a time',
      messages: [],
      promptTokenIds: [],
      raw: true,
      sampling: null,
      stop: [],
      maxTokens: TOKENS,
      ignoreEos: true,
      logprobs: 5,
    };
    const tokens: TokenReply[] = [];
    for await (const reply of engine.generate(request, new AbortController().signal)) {
      if (reply.kind === 'token') tokens.push(reply.token);
    }
    return tokens;
  } finally {
    engine.dispose();
  }
}

describe('a deepened checkpoint', function () {
  this.timeout(120_000);
  let directory = '';

  before(() => {
    directory = mkdtempSync(join(tmpdir(), 'odmoe-deepen-'));
  });

  after(() => {
    rmSync(directory, { recursive: true, force: true });
  });

  it('gives the same answer, to the bit', async () => {
    const deeper = join(directory, 'deeper');
    const progress: number[] = [];
    const outcome = await deepenCheckpoint(DEMO, deeper, { layers: 19, onProgress: (done) => progress.push(done) });
    assert.equal(progress.at(-1), outcome.weightBytes);
    assert.equal((await openCheckpoint(deeper)).shape.layers.length, 19);
    const [expected, actual] = [await answer(DEMO), await answer(deeper)];
    assert.equal(actual.length, TOKENS);
    assert.deepEqual(actual, expected);
  });

  it('is refused where it would have fewer layers, or the directory is not empty', async () => {
    await assert.rejects(deepenCheckpoint(DEMO, join(directory, 'less'), { layers: 7 }), {
      code: 'USAGE',
      message: /8 layers and cannot be deepened to 7/,
    });
    await assert.rejects(deepenCheckpoint(DEMO, directory, { layers: 9 }), { code: 'USAGE', message: /empty or new/ });
  });

  it('has three copies after each of 8 layers for 32', () => {
    const expected = Array.from({ length: 32 }, (_, index) => ({ layer: Math.floor(index / 4), copy: index % 4 > 0 }));
    assert.deepEqual(layerSources(8, 32), expected);
  });

  it('has every layer once, in order, and copies spread evenly', () => {
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 40 }), fc.integer({ min: 0, max: 100 }), (layers, more) => {
        const sources = layerSources(layers, layers + more);
        assert.equal(sources.length, layers + more);
        assert.deepEqual(
          sources.filter(({ copy }) => !copy).map(({ layer }) => layer),
          Array.from({ length: layers }, (_, layer) => layer),
        );
        const counts = Array.from(
          { length: layers },
          (_, layer) => sources.filter((own) => own.layer === layer).length,
        );
        assert.ok(Math.max(...counts) - Math.min(...counts) <= 1);
        for (const [index, { layer, copy }] of sources.entries()) {
          if (copy) assert.equal(sources[index - 1]?.layer, layer);
        }
      }),
    );
  });
});
