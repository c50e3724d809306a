/** The scores that a model's routers give all experts. The native core returns the chosen experts alone, so they are computed here. */
import { expertsIn, runPassingExperts } from '../../engine/generation/passing-experts.js';
import { openTensor, type Device, type Model } from '../../native/index.js';
import { exponential } from '../../shared/base/arithmetic/elementary.js';
import { assertInvariant, requirePresent } from '../../shared/base/errors/assert-invariant.js';
import { expertLayerNumbers } from '../../shared/model/model-shape.js';
import type { ModelSource, TensorSource } from '../../shared/model/tensor-source.js';
import { ROUTER_SCORES } from '../../simulator/trace/trace-file.js';
import { halfBitsOf } from '../slices/half.js';

export type RouterScore = (typeof ROUTER_SCORES)[number];

const HALF_BYTES = 2;
const FLOAT_BYTES = 4;

/** The routers of a model by expert layer. */
export interface Routers {
  readonly rule: RouterScore;
  readonly layers: readonly LayerRouter[];
}

interface LayerRouter {
  /** A row for each expert. */
  readonly weights: readonly Float32Array[];
}

/**
 * Reads the routers. Null: their scores do not follow from the input of the experts alone, by softmax or sigmoid of one product with a matrix
 * of BF16 or FP32.
 */
export async function openRouters(source: ModelSource): Promise<Routers | null> {
  const layers: LayerRouter[] = [];
  const rules = new Set<RouterScore>();
  for (const layer of expertLayerNumbers(source.shape)) {
    const { routed, routedNorm, routerNorm } = requirePresent(
      source.shape.layers[layer],
      'an expert layer is a layer.',
    );
    const rule = ROUTER_SCORES.find((one) => one === routed?.score);
    const values = await valuesOf(source.dense('router', layer));
    if (rule === undefined || routed?.bias !== false || routedNorm || routerNorm || values === null) return null;
    rules.add(rule);
    const { hiddenSize, experts } = source.shape;
    const weights = Array.from({ length: experts }, (_, expert) =>
      values.subarray(expert * hiddenSize, (expert + 1) * hiddenSize),
    );
    layers.push({ weights });
  }
  const [rule] = rules;
  return rule === undefined || rules.size > 1 ? null : { rule, layers };
}

/**
 * Runs a text through the model again, which has its dense weights on the device, and returns the scores of its positions as a trace has them.
 * `activated`: the experts that the first run chose, which this one chooses, too.
 */
export async function recordScores(
  { device, main, source }: { device: Device; main: Model; source: ModelSource },
  routers: Routers,
  tokenIds: readonly number[],
  activated: readonly (readonly (readonly number[])[])[],
): Promise<string[]> {
  const { hiddenSize, experts, expertLayers } = source.shape;
  const positions = tokenIds.map(() => new Uint8Array(expertLayers * experts * HALF_BYTES));
  await runPassingExperts(device, main, expertsIn(source.shippedFormat, source), [tokenIds], {
    routed: (layer, choice, hidden) => {
      assertInvariant(
        activated.flatMap((layers) => layers[layer] ?? []).every((expert, index) => expert === choice.experts[index]),
        'a text that runs again activates the same experts.',
      );
      const { weights } = requirePresent(routers.layers[layer], 'each expert layer has a router.');
      const inputs = new Float32Array(hidden.buffer, hidden.byteOffset, hidden.byteLength / FLOAT_BYTES);
      positions.forEach((bytes, row) => {
        const scores = scoresOf(weights, inputs.subarray(row * hiddenSize, (row + 1) * hiddenSize), routers.rule);
        const view = new DataView(bytes.buffer, layer * experts * HALF_BYTES);
        scores.forEach((score, expert) => view.setUint16(expert * HALF_BYTES, halfBitsOf(score), true));
      });
    },
  });
  return positions.map((bytes) => Buffer.from(bytes).toString('base64'));
}

function scoresOf(weights: readonly Float32Array[], input: Float32Array, rule: RouterScore): Float64Array {
  const logits = Float64Array.from(weights, (row) =>
    row.reduce((sum, weight, at) => sum + weight * (input[at] ?? 0), 0),
  );
  if (rule === 'sigmoid') return logits.map((logit) => 1 / (1 + exponential(-logit)));
  const most = Math.max(...logits);
  const powers = logits.map((logit) => exponential(logit - most));
  const sum = powers.reduce((added, power) => added + power, 0);
  return powers.map((power) => power / sum);
}

/** The values of a matrix, row-major; null: it is neither BF16 nor FP32. */
async function valuesOf(source: TensorSource): Promise<Float32Array | null> {
  if (source.split !== 'none-bf16' && source.split !== 'none-fp32') return null;
  const tensor = openTensor(source);
  try {
    const [bytes = new Uint8Array(0)] = await tensor.read(source.rows);
    const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    const word = new DataView(new ArrayBuffer(FLOAT_BYTES));
    return Float32Array.from({ length: source.rows * source.columns }, (_, index) => {
      if (source.split === 'none-fp32') return view.getFloat32(index * FLOAT_BYTES, true);
      word.setUint16(0, view.getUint16(index * 2, true));
      return word.getFloat32(0);
    });
  } finally {
    tensor.dispose();
  }
}
