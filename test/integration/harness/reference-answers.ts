import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { generateTokens } from '../../../engine/generation/generate-tokens.js';
import { resolveSampling } from '../../../shared/wire/sampling-options.js';
import { RUNTIME } from '../../wall.js';
import type { ResidentTestModel } from '../generate-resident-model.js';

/** The references were computed by transformers in FP32, whose sums run in another order. */
const LOGPROB_TOLERANCE = 2e-4;
const LOGIT_TOLERANCE = 2e-4;
/** Rows of a pass of the prompt: the longest prompts take several. */
const PREFILL_ROWS = 64;

/** An answer of transformers, in FP32. */
export interface FamilyReference {
  prompt_token_ids: number[];
  token_ids: number[];
  logprobs: number[];
  first_logits: number[];
  /** By expert layer, then position; absent if transformers does not report them. */
  experts?: number[][][];
}

/** The answers in a fixture's folder. */
export function referencesOf(directory: string): FamilyReference[] {
  const text = readFileSync(join(directory, 'reference.json'), 'utf8');
  return (JSON.parse(text) as { references: FamilyReference[] }).references;
}

function farthest(found: readonly number[] | Float32Array, expected: readonly number[]): number {
  assert.equal(found.length, expected.length);
  return expected.reduce((most, value, index) => Math.max(most, Math.abs(value - (found[index] ?? NaN))), 0);
}

function sortedExperts(layers: readonly number[][][]): number[][][] {
  return layers.map((positions) => positions.map((experts) => [...experts].sort((a, b) => a - b)));
}

/** Compares first logits, tokens, log-probabilities and experts. */
export async function assertAnswersAlike(model: ResidentTestModel, reference: FamilyReference): Promise<void> {
  const probe = model.createRunner(PREFILL_ROWS);
  const firstLogits = await probe.prefill(reference.prompt_token_ids);
  await probe.end();
  const logitsOff = farthest(firstLogits, reference.first_logits);
  assert.ok(logitsOff < LOGIT_TOLERANCE, `the first logits are up to ${logitsOff} off`);

  const experts = Array.from({ length: model.source.shape.expertLayers }, (): number[][] => []);
  const runner = model.createRunner(PREFILL_ROWS, (position, layer, chosen) => {
    assert.equal(experts[layer]?.length, position);
    experts[layer]?.push(chosen);
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
  const { signal } = new AbortController();
  const tokens: number[] = [];
  const logprobs: number[] = [];
  for await (const step of generateTokens(runner, reference.prompt_token_ids, options, null, signal, RUNTIME)) {
    if (step.kind !== 'token') continue;
    tokens.push(step.token.tokenId);
    logprobs.push(step.token.logprob);
  }
  assert.deepEqual(tokens, reference.token_ids);
  const logprobsOff = farthest(logprobs, reference.logprobs);
  assert.ok(logprobsOff < LOGPROB_TOLERANCE, `log-probabilities are up to ${logprobsOff} off`);
  if (reference.experts !== undefined) assert.deepEqual(sortedExperts(experts), sortedExperts(reference.experts));
}
