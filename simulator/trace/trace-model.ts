import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { plainGlu, plainShape } from '../../engine/emulation/plain-shape.js';
import { isRecurrent, type LayerShape, type ModelShape } from '../../shared/model/model-shape.js';
import type { ClusterTrace } from './cluster-trace.js';

/** A convolution of a recurrence looks back by one position at least. */
const FEWEST_TAPS = 2;

/**
 * The shape of a traced model. Its layers are of the profiled model's kinds (with experts or without, recurrent or not), because
 * alignment and drafts depend on them; everything that only sizes bytes is as small as it can be, because time and memory come from the
 * profile.
 * @throws INTERNAL where the profiled model has another number of expert layers than the trace
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
  /** What main's router of the layer chooses on an earlier layer's hidden state. */
  ahead(row: TracedRow, layer: number): readonly number[];
  /** The token after this position. */
  nextToken(row: TracedRow): number;
}

/** Main's model: the experts that the trace says are activated, those that it says are predicted, and main's tokens. */
export function mainModel(trace: ClusterTrace): TraceModel {
  return {
    experts: (row, layer) => known(trace, row, layer, trace.activated({ ...row, layer, onPath: isTraced(trace, row) })),
    ahead: (row, layer) => predictedExperts(trace, row, layer),
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
    experts: (row, layer) => predictedExperts(trace, row, layer),
    ahead: (row, layer) => predictedExperts(trace, row, layer),
    nextToken: ({ prompt, position, onPath }) => {
      const right = guesses === 'right' || (onPath && trace.guessedRight(prompt, position + 1));
      return right ? mainToken(prompt) : wrongToken(trace);
    },
  };
}

/** A trace has no predictions of the prompt. */
function predictedExperts(trace: ClusterTrace, row: TracedRow, layer: number): readonly number[] {
  const place = { ...row, layer, onPath: isTraced(trace, row) };
  const isPrompt = row.position < trace.promptTokens(row.prompt);
  return known(trace, row, layer, isPrompt ? trace.activated(place) : trace.predicted(place));
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
