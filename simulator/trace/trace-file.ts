import { readFileSync, statSync } from 'node:fs';
import { z } from 'zod';
import { OdmoeError, toOdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { ClusterTrace, TracePlace } from './cluster-trace.js';
import { SyntheticTrace } from './synthetic-trace.js';

/** A larger file is not a trace of this project. */
const TRACE_LIMIT_BYTES = 512 * 1024 ** 2;
/** Seed for the experts of rows that the trace does not have (wrong drafts). */
const OFF_PATH_SEED = 1;

/** Rules whose scores tell their logits. */
export const ROUTER_SCORES = ['softmax', 'sigmoid'] as const;

const GROUP_SCORES = ['best', 'best-two'] as const;

const HALF_BYTES = 2;
const BASE64_BYTES = 3;
const BASE64_CHARACTERS = 4;

const count = z.int().min(1).max(65_536);
const layersOfExperts = z.array(z.array(z.int().min(0)));
const promptSchema = z.strictObject({
  prompt_tokens: count,
  activated: z.array(layersOfExperts),
  predicted: z.array(layersOfExperts),
  guessed_right: z.array(z.boolean()),
  /** Version 2, by position: the scores of all experts, [layer][expert] as FP16 little-endian, in base64. */
  scores: z.array(z.base64()).optional(),
});
/** A choice by other numbers than the scores, which still weight the outputs. */
const choiceSchema = z.strictObject({
  /** Added to the scores, [layer][expert]; left out: 0. */
  bias: z.array(z.array(z.number())).optional(),
  /** Experts can be chosen of the best groups alone, of which each has as many experts. */
  groups: count,
  groups_kept: count,
  /** The value of a group: that of its best expert, or the sum of its best two. */
  group_score: z.enum(GROUP_SCORES),
});
const traceSchema = z.strictObject({
  format: z.literal('odmoe-trace'),
  version: z.union([z.literal(1), z.literal(2)]),
  model: z.string(),
  precision: z.string(),
  align_token: z.int().min(0),
  align_kv: z.int().min(0),
  layers: count,
  experts: count,
  experts_per_token: count,
  /** Version 2: what the router makes scores of logits by. */
  router_score: z.enum(ROUTER_SCORES).optional(),
  /** Version 2; left out: the router chooses the experts with the highest scores. */
  router_choice: choiceSchema.optional(),
  prompts: z.array(promptSchema).min(1),
});

/** A trace file's content (docs/simulator.md). */
export type TraceDocument = z.infer<typeof traceSchema>;
export type TracePrompt = z.infer<typeof promptSchema>;
export type TracedChoice = z.infer<typeof choiceSchema>;

/** Reads and checks a trace. Throws USAGE, which names the file and the fault. */
export function readTrace(path: string): TraceDocument {
  let text: string;
  try {
    const { size } = statSync(path);
    if (size > TRACE_LIMIT_BYTES) throw new Error(`it has ${size} bytes, more than any trace`);
    text = readFileSync(path, 'utf8');
  } catch (thrown) {
    throw new OdmoeError('USAGE', `cannot read the trace ${path}: ${toOdmoeError(thrown).message}`, { cause: thrown });
  }
  return parseTrace(text, path);
}

export function parseTrace(text: string, path: string): TraceDocument {
  let plain: unknown;
  try {
    plain = JSON.parse(text);
  } catch (thrown) {
    throw invalid(path, 'it is no JSON', thrown);
  }
  const parsed = traceSchema.safeParse(plain);
  if (!parsed.success) {
    const [issue] = parsed.error.issues;
    throw invalid(path, `${issue?.path.map(String).join('.') ?? ''}: ${issue?.message ?? ''}`, parsed.error);
  }
  if ((parsed.data.version === 2) !== (parsed.data.router_score !== undefined)) {
    throw invalid(path, 'router_score belongs to version 2, and only to that', null);
  }
  const ofChoice = choiceProblem(parsed.data);
  if (ofChoice !== null) throw invalid(path, ofChoice, null);
  for (const [index, prompt] of parsed.data.prompts.entries()) {
    const problem = promptProblem(prompt, parsed.data) ?? scoresProblem(prompt, parsed.data);
    if (problem !== null) throw invalid(path, `prompts.${index}: ${problem}`, null);
  }
  return parsed.data;
}

function choiceProblem({ version, layers, experts, router_choice: choice }: TraceDocument): string | null {
  if (choice === undefined) return null;
  if (version === 1) return 'router_choice belongs to version 2';
  const { bias, groups, groups_kept: kept } = choice;
  if (experts % groups !== 0 || kept > groups)
    return `router_choice keeps ${kept} of ${groups} groups of ${experts} experts`;
  const isWhole = bias === undefined || (bias.length === layers && bias.every(({ length }) => length === experts));
  return isWhole ? null : `router_choice.bias is not ${layers} layers of ${experts} numbers`;
}

function promptProblem(prompt: TracePrompt, { layers, experts, experts_per_token }: TraceDocument): string | null {
  const { prompt_tokens: promptTokens, activated, predicted, guessed_right: guessedRight } = prompt;
  const iterations = activated.length - promptTokens;
  if (iterations < 1) return `activated has ${activated.length} positions, the prompt alone ${promptTokens}`;
  if (predicted.length !== iterations || guessedRight.length !== iterations) {
    return `predicted and guessed_right need ${iterations} entries, one for each decode iteration`;
  }
  for (const position of [...activated, ...predicted]) {
    if (position.length !== layers) return `a position has ${position.length} layers, not ${layers}`;
    for (const chosen of position) {
      const sound = new Set(chosen).size === experts_per_token && chosen.length === experts_per_token;
      if (!sound || chosen.some((expert) => expert >= experts)) {
        return `experts ${chosen.join(', ')}: expected ${experts_per_token} different ones below ${experts}`;
      }
    }
  }
  return null;
}

function scoresProblem({ scores, activated }: TracePrompt, document: TraceDocument): string | null {
  const { version, layers, experts } = document;
  if (version === 1) return scores === undefined ? null : 'scores belong to version 2';
  if (scores?.length !== activated.length) return 'scores need an entry for each position of activated';
  const length = Math.ceil((layers * experts * HALF_BYTES) / BASE64_BYTES) * BASE64_CHARACTERS;
  const wrong = scores.findIndex((text) => text.length !== length);
  return wrong < 0 ? null : `scores.${wrong} is no base64 of ${layers * experts} FP16 numbers`;
}

function invalid(path: string, problem: string, cause: unknown): OdmoeError {
  const message = `${path} is no trace: ${problem}; write one with "odmoe bench trace"`;
  return new OdmoeError('USAGE', message, { cause });
}

/**
 * A recorded trace, for a model with the same number of experts and any number of layers: if the numbers of layers differ, layer l takes the
 * recorded layer at the same relative depth. A trace has no wrong drafts, so they activate random experts, which shadow predicts as well as the
 * others.
 */
export class RecordedTrace implements ClusterTrace {
  readonly experts: number;
  readonly expertsPerToken: number;
  readonly prompts: number;
  private readonly offPath: SyntheticTrace;

  constructor(
    private readonly document: TraceDocument,
    readonly layers: number,
  ) {
    this.experts = document.experts;
    this.expertsPerToken = document.experts_per_token;
    this.prompts = document.prompts.length;
    this.offPath = new SyntheticTrace({
      layers,
      experts: this.experts,
      expertsPerToken: this.expertsPerToken,
      prompts: this.prompts,
      promptTokens: Math.max(...document.prompts.map((prompt) => prompt.prompt_tokens)),
      iterations: Math.max(...document.prompts.map((prompt) => prompt.predicted.length)),
      recall: recordedRecall(document),
      acceptance: 0,
      seed: OFF_PATH_SEED,
    });
  }

  promptTokens(prompt: number): number {
    return this.prompt(prompt).prompt_tokens;
  }

  iterations(prompt: number): number {
    return this.prompt(prompt).predicted.length;
  }

  activated(place: TracePlace): readonly number[] {
    if (!place.onPath) return this.offPath.activated(place);
    return this.prompt(place.prompt).activated[place.position]?.[this.depth(place.layer)] ?? [];
  }

  predicted(place: TracePlace): readonly number[] {
    if (!place.onPath) return this.offPath.predicted(place);
    const prompt = this.prompt(place.prompt);
    return prompt.predicted[place.position - prompt.prompt_tokens]?.[this.depth(place.layer)] ?? [];
  }

  guessedRight(prompt: number, position: number): boolean {
    const recorded = this.prompt(prompt);
    return recorded.guessed_right[position - recorded.prompt_tokens] ?? false;
  }

  private prompt(prompt: number): TracePrompt {
    return this.document.prompts[prompt] as TracePrompt;
  }

  private depth(layer: number): number {
    return Math.floor((layer * this.document.layers) / this.layers);
  }
}

/** Recall by OD-MoE equation 3. */
export function recordedRecall({ prompts }: TraceDocument): number {
  let activatedCount = 0;
  let correct = 0;
  for (const { prompt_tokens: promptTokens, activated, predicted } of prompts) {
    predicted.forEach((layers, iteration) =>
      layers.forEach((experts, layer) => {
        const chosen = activated[promptTokens + iteration]?.[layer] ?? [];
        activatedCount += chosen.length;
        correct += chosen.filter((expert) => experts.includes(expert)).length;
      }),
    );
  }
  return activatedCount === 0 ? 1 : correct / activatedCount;
}
