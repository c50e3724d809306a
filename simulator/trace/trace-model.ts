import { OdmoeError } from '../../shared/errors/odmoe-error.js';
import type { ModelShape } from '../../shared/model/tensor-source.js';
import type { ClusterTrace } from './cluster-trace.js';

/** Positions of prompt and answer together that a simulated model takes. */
const MOST_POSITIONS = 2 ** 20;

/**
 * The shape of a traced model. Layers and experts are the profiled model's; everything that only sizes bytes is as small as it can be,
 * because time and memory come from the profile.
 */
export function traceShape({ layers, experts, expertsPerToken, prompts }: ClusterTrace): ModelShape {
  return {
    ...{ layers, experts, expertsPerToken, vocabSize: prompts + 1 },
    ...{ hiddenSize: 1, intermediateSize: 1, heads: 1, keyValueHeads: 1, headDim: 2 },
    ...{ normalizeTopK: true, rmsNormEpsilon: 1e-5, ropeTheta: 10_000, slidingWindow: 0 },
    maxPositions: MOST_POSITIONS,
  };
}

/** Main's token at every position of a prompt and its answer: the prompt's own number. */
export function mainToken(prompt: number): number {
  return prompt;
}

/** What shadow says where its guess is not main's token. */
export function wrongToken({ prompts }: Pick<ClusterTrace, 'prompts'>): number {
  return prompts;
}

/** Token ids of a prompt of the trace, for a request. */
export function tracePromptIds(trace: ClusterTrace, prompt: number): number[] {
  return new Array<number>(trace.promptTokens(prompt)).fill(mainToken(prompt));
}

/** A position of a sequence, and what is known of the tokens up to it. */
export interface TracedRow {
  prompt: number;
  position: number;
  /** The tokens up to and with this position are main's. */
  onPath: boolean;
}

/** What a model answers with in place of arithmetic. Pure. */
export interface TraceModel {
  /** Experts by rank. */
  experts(row: TracedRow, layer: number): readonly number[];
  /** The token after this position. */
  nextToken(row: TracedRow): number;
}

/** Main's model: the experts that the trace says are activated, and main's tokens. */
export function mainModel(trace: ClusterTrace): TraceModel {
  return {
    experts: (row, layer) => known(trace, row, layer, trace.activated({ ...row, layer, onPath: isTraced(trace, row) })),
    nextToken: ({ prompt }) => mainToken(prompt),
  };
}

/**
 * Shadow's model: the experts that the trace says it predicts. `guesses`: 'traced': its own tokens are right or wrong as the trace says, and
 * all wrong behind a wrong one. 'right': where main's tokens do not come at every iteration, a trace holds what shadow predicts on its
 * own text, so that its own tokens stand for main's.
 */
export function shadowModel(trace: ClusterTrace, guesses: 'traced' | 'right'): TraceModel {
  return {
    experts: (row, layer) => {
      const place = { ...row, layer, onPath: isTraced(trace, row) };
      const isPrompt = row.position < trace.promptTokens(row.prompt);
      return known(trace, row, layer, isPrompt ? trace.activated(place) : trace.predicted(place));
    },
    nextToken: ({ prompt, position, onPath }) => {
      const right = guesses === 'right' || (onPath && trace.guessedRight(prompt, position + 1));
      return right ? mainToken(prompt) : wrongToken(trace);
    },
  };
}

/** Shadow may run one position further than main: the trace says nothing of it, as of wrong drafts. */
function isTraced(trace: ClusterTrace, { prompt, position, onPath }: TracedRow): boolean {
  return onPath && position < trace.promptTokens(prompt) + trace.iterations(prompt);
}

function known(trace: ClusterTrace, row: TracedRow, layer: number, experts: readonly number[]): readonly number[] {
  if (experts.length === trace.expertsPerToken) return experts;
  throw new OdmoeError(
    'INTERNAL',
    `the trace gives ${experts.length} experts of layer ${layer} at position ${row.position} of prompt ${row.prompt}, ` +
      `and a token needs ${trace.expertsPerToken}`,
  );
}
