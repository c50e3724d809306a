import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { plainGlu, plainShape } from '../../engine/emulation/plain-shape.js';
import { isRecurrent, type LayerShape, type ModelShape } from '../../shared/model/model-shape.js';
import type { ClusterTrace } from './cluster-trace.js';

/** A convolution of a recurrence looks back at least one position. */
const FEWEST_TAPS = 2;

/**
 * The shape of a traced model. Its layers have the kinds of the profiled model's layers (with experts or without, recurrent or not), because
 * alignment and drafts depend on them. Sizes that only change bytes are as small as possible, because time and memory come from the profile.
 * @throws INTERNAL when the profiled model and the trace have different numbers of expert layers
 */
export function traceShape(
  { layers, experts, expertsPerToken, prompts }: ClusterTrace,
  { layers: profiled, expertLayers }: Pick<ModelShape, 'layers' | 'expertLayers'>,
): ModelShape {
  if (expertLayers !== layers) {
    throw new OdmoeError('INTERNAL', `a trace of ${layers} expert layers for a model of ${expertLayers}`);
  }
  const plain = plainShape({
    layers: 1,
    hiddenSize: 1,
    intermediateSize: 1,
    heads: 1,
    keyValueHeads: 1,
    headDim: 2,
    vocabSize: prompts + 1,
    experts,
    expertsPerToken,
  });
  const [like] = plain.layers;
  if (like === undefined) throw new OdmoeError('INTERNAL', 'a plain model has no layer');
  return { ...plain, expertLayers: layers, layers: profiled.map((layer) => tracedLayer(layer, like)) };
}

function tracedLayer({ mixer, routed }: LayerShape, like: LayerShape): LayerShape {
  return {
    ...like,
    ...(isRecurrent(mixer) ? { mixer: { kind: 'convolution', taps: FEWEST_TAPS } } : {}),
    ...(routed === null ? { routed: null, always: { glu: plainGlu(1), gated: false } } : {}),
  };
}

/** Main's token at every position of a prompt and its answer: the number of the prompt. */
export function mainToken(prompt: number): number {
  return prompt;
}

/** The token that shadow guesses when its guess is wrong. */
export function wrongToken({ prompts }: Pick<ClusterTrace, 'prompts'>): number {
  return prompts;
}

/** Token ids of a prompt of the trace, for a request. */
export function tracePromptIds(trace: ClusterTrace, prompt: number): number[] {
  return new Array<number>(trace.promptTokens(prompt)).fill(mainToken(prompt));
}

/** A position of a sequence, with a mark for its tokens. */
export interface TracedRow {
  prompt: number;
  position: number;
  /** True if all tokens up to and including this position are main's. */
  onPath: boolean;
}

/** The answers of a model in place of arithmetic. Pure. */
export interface TraceModel {
  /** Experts by rank. */
  experts(row: TracedRow, layer: number): readonly number[];
  /** The choice of main's router for this layer when it gets an earlier layer's hidden state. */
  ahead(row: TracedRow, layer: number): readonly number[];
  /** The weights of these experts, as a router gives them by rank; left out: equal ones. */
  weights?: (row: TracedRow, layer: number, experts: readonly number[]) => Float32Array;
  /** The token after this position. */
  nextToken(row: TracedRow): number;
}

/** Main's model: the trace's activated and predicted experts, and main's tokens. */
export function mainModel(trace: ClusterTrace): TraceModel {
  return {
    experts: (row, layer) => known(trace, row, layer, trace.activated({ ...row, layer, onPath: isTraced(trace, row) })),
    ahead: (row, layer) => predictedExperts(trace, row, layer),
    nextToken: ({ prompt }) => mainToken(prompt),
  };
}

/**
 * Shadow's model: the trace's predicted experts. `guesses`: 'traced': shadow's tokens are right or wrong as in the trace, and all wrong after a
 * wrong one. 'right': if main's tokens do not come at every iteration, the trace has predictions for shadow's own text, so shadow's tokens
 * count as main's.
 */
export function shadowModel(trace: ClusterTrace, guesses: 'traced' | 'right'): TraceModel {
  return {
    experts: (row, layer) => predictedExperts(trace, row, layer),
    ahead: (row, layer) => predictedExperts(trace, row, layer),
    nextToken: ({ prompt, position, onPath }) => {
      const right = guesses === 'right' || (onPath && trace.guessedRight(prompt, position + 1));
      return right ? mainToken(prompt) : wrongToken(trace);
    },
  };
}

/** A trace has no predictions for the prompt, so there the activated experts are returned. */
function predictedExperts(trace: ClusterTrace, row: TracedRow, layer: number): readonly number[] {
  const place = { ...row, layer, onPath: isTraced(trace, row) };
  const isPrompt = row.position < trace.promptTokens(row.prompt);
  return known(trace, row, layer, isPrompt ? trace.activated(place) : trace.predicted(place));
}

/** Shadow may run one position further than main: the trace has no data for it, as for wrong drafts. */
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
