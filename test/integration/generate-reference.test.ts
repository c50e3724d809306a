import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { realDevices } from '../../engine/environment/node-environment.js';
import { LocalEngine } from '../../engine/generation/local-engine.js';
import { generateTokens } from '../../engine/generation/generate-tokens.js';
import { packageRoot } from '../../shared/base/files/package-root.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { Finished, GenerateReply, GenerateRequest, TokenReply } from '../../shared/wire/messages.js';
import { openResidentModel, type ResidentTestModel } from './generate-resident-model.js';
import { resolveSampling } from '../../shared/wire/sampling-options.js';
import { RUNTIME } from '../wall.js';

/** The references were computed by transformers in FP32, whose sums run in another order. */
const LOGPROB_TOLERANCE = 1e-4;
const LOGIT_TOLERANCE = 1e-4;

const fixture = join(packageRoot(), 'test', 'fixtures', 'mixtral');
const demoModel = join(packageRoot(), 'models', 'demo');

interface FixtureReference {
  prompt_token_ids: number[];
  token_ids: number[];
  logprobs: number[];
  first_logits: number[];
  /** By layer, then position. */
  experts: number[][][];
}

interface DemoReference {
  prompt: string;
  prompt_token_ids: number[];
  token_ids: number[];
  logprobs: number[];
  text: string;
}

function referencesIn<Reference>(directory: string): Reference[] {
  const parsed = JSON.parse(readFileSync(join(directory, 'reference.json'), 'utf8')) as { references: Reference[] };
  return parsed.references;
}

function assertLogprobs(tokens: readonly TokenReply[], expected: readonly number[]): void {
  assert.equal(tokens.length, expected.length);
  for (const [index, { logprob }] of tokens.entries()) {
    const difference = Math.abs(logprob - (expected[index] ?? NaN));
    assert.ok(
      difference < LOGPROB_TOLERANCE,
      `token ${index}: log-probability ${logprob}, expected ${expected[index]}`,
    );
  }
}

describe("the single-process engine reproduces transformers' references", () => {
  let model: ResidentTestModel;
  before(async () => {
    model = await openResidentModel(fixture);
  });
  after(() => {
    model.dispose();
  });

  for (const [index, reference] of referencesIn<FixtureReference>(fixture).entries()) {
    it(`Mixtral fixture, prompt ${index}: tokens, log-probabilities and the experts of every layer and position`, async () => {
      const experts = Array.from({ length: model.source.shape.expertLayers }, (): number[][] => []);
      const runner = model.createRunner(64, (position, layer, chosen) => {
        const ofLayer = experts[layer];
        assert.ok(ofLayer !== undefined && ofLayer.length === position, `layer ${layer} skips to position ${position}`);
        ofLayer.push(chosen);
      });
      const options = {
        maxTokens: reference.token_ids.length,
        sampling: resolveSampling(null, () => 0),
        stop: [],
        ignoreEos: true,
        eosTokenIds: [],
        logprobs: 1,
        constraint: null,
        promptLogprobs: false,
        showSpecialTokens: false,
      };
      const tokens: TokenReply[] = [];
      const generation = generateTokens(
        runner,
        reference.prompt_token_ids,
        options,
        null,
        new AbortController().signal,
        RUNTIME,
      );
      for await (const step of generation) if (step.kind === 'token') tokens.push(step.token);
      assert.deepEqual(
        tokens.map((token) => token.tokenId),
        reference.token_ids,
      );
      assertLogprobs(tokens, reference.logprobs);
      assert.deepEqual(experts, reference.experts);
    });

    it(`Mixtral fixture, prompt ${index}: the first logits`, async () => {
      const runner = model.createRunner(64);
      const logits = await runner.prefill(reference.prompt_token_ids);
      await runner.end();
      assert.equal(logits.length, reference.first_logits.length);
      for (const [id, expected] of reference.first_logits.entries()) {
        const difference = Math.abs((logits[id] ?? NaN) - expected);
        assert.ok(difference < LOGIT_TOLERANCE, `logit ${id}: ${logits[id]}, expected ${expected}`);
      }
    });
  }
});

describe('the demo model in the single-process engine', () => {
  let engine: LocalEngine;
  before(async () => {
    engine = await LocalEngine.open(demoModel, {
      device: { backend: 'cpu', instructionSet: 'auto', threads: 2, budgetBytes: 0 },
      emulation: null,
      resident: null,
      shadow: 'int8',
      prefillRows: 64,
      chooseSeed: () => 5,
      environment: realDevices(),
      onProgress: null,
    });
  });
  after(() => {
    engine.dispose();
  });

  function request(change: Partial<GenerateRequest>): GenerateRequest {
    const empty = { text: '', messages: [], promptTokenIds: [], raw: false, sampling: null, stop: [] };
    return { ...empty, maxTokens: 64, ignoreEos: false, logprobs: 1, ...change };
  }

  async function answer(
    change: Partial<GenerateRequest>,
  ): Promise<{ replies: GenerateReply[]; tokens: TokenReply[]; finished: Finished }> {
    const replies: GenerateReply[] = [];
    for await (const reply of engine.generate(request(change), new AbortController().signal)) replies.push(reply);
    const last = replies.at(-1);
    assert.ok(last?.kind === 'finished');
    const tokens = replies.flatMap((reply) => (reply.kind === 'token' ? [reply.token] : []));
    return { replies, tokens, finished: last.finished };
  }

  for (const reference of referencesIn<DemoReference>(demoModel)) {
    it(`answers "${reference.prompt}" as transformers does`, async () => {
      const { replies, tokens, finished } = await answer({ text: reference.prompt });
      assert.deepEqual(replies[0], {
        kind: 'started',
        started: { promptTokenIds: reference.prompt_token_ids, seed: 5, arithmetic: 'exact' },
      });
      assert.deepEqual(
        tokens.map((token) => token.tokenId),
        reference.token_ids,
      );
      assertLogprobs(tokens, reference.logprobs);
      assert.equal(finished.text, reference.text);
      assert.equal(tokens.map((token) => token.text).join(''), reference.text);
      assert.equal(finished.finishReason, reference.token_ids.at(-1) === 1 ? 'stop' : 'length');
    });
  }

  it('reports the recall of the decode stage, and the memory of model and shadow', async () => {
    const { tokens, finished } = await answer({ text: 'Tell me a story about a fox.', ignoreEos: true });
    const { expertLayers, expertsPerToken } = engine.source.shape;
    assert.equal(finished.sep?.activated, (tokens.length - 1) * expertLayers * expertsPerToken);
    assert.ok(finished.sep.recall > 0.97 && finished.sep.recall <= 1, `recall ${finished.sep.recall}`);
    const [main, shadow] = finished.nodes;
    assert.equal(finished.nodes.length, 2);
    assert.ok((main?.deviceMemoryHighWaterBytes ?? 0) > (shadow?.deviceMemoryHighWaterBytes ?? 0));
    assert.ok((shadow?.deviceMemoryHighWaterBytes ?? 0) > 0);
  });

  it('gives the same sampled answer for the same seed, another for another', async () => {
    const sampled = async (seed: number): Promise<number[]> => {
      const sampling = { temperature: 1.2, topK: 0, topP: 0.95, minP: 0, repetitionPenalty: 0, seed };
      return (await answer({ text: 'Tell me a story about a fox.', sampling })).tokens.map((token) => token.tokenId);
    };
    assert.deepEqual(await sampled(11), await sampled(11));
    assert.notDeepEqual(await sampled(11), await sampled(12));
  });

  it('returns the device memory of every answer', async () => {
    await answer({ text: 'What is 17 plus 25?' });
    const before = engine.device.info().usedBytes;
    await answer({ text: 'What is 17 plus 25?' });
    for await (const reply of engine.generate(request({ text: 'Tell me a story.' }), new AbortController().signal)) {
      if (reply.kind === 'token') break;
    }
    assert.equal(engine.device.info().usedBytes, before);
  });

  it('can be cancelled by its signal', async () => {
    const controller = new AbortController();
    await assert.rejects(
      async () => {
        for await (const reply of engine.generate(request({ text: 'Tell me a story.' }), controller.signal)) {
          if (reply.kind === 'token') controller.abort();
        }
      },
      (error) => error instanceof OdmoeError && error.code === 'CANCELLED',
    );
  });
});
