/** Properties of a model's routers that a trace has beside their scores. */
import { openTensor } from '../../native/index.js';
import { assertInvariant } from '../../shared/base/errors/assert-invariant.js';
import { routersOf } from '../../shared/decisions/slices/output-weights.js';
import { expertLayerNumbers } from '../../shared/model/model-shape.js';
import type { ModelSource, TensorSource } from '../../shared/model/tensor-source.js';
import { ROUTER_SCORES, type TraceDocument } from '../../simulator/trace/trace-file.js';
import { halfBitsOf } from '../slices/half.js';

const HALF_BYTES = 2;
const FLOAT_BYTES = 4;

export type TracedRouters = Required<Pick<TraceDocument, 'router_score'>> & Pick<TraceDocument, 'router_choice'>;

/**
 * The rule of a model's routers. Null: they have no scores of all experts (sparsemixer), choose by the token, layers have different rules, or the bias
 * of the choice is neither BF16 nor FP32.
 */
export async function tracedRouters(source: ModelSource): Promise<TracedRouters | null> {
  const [first, ...others] = routersOf(source.shape);
  const rule = ROUTER_SCORES.find((one) => one === first?.score);
  if (first === undefined || rule === undefined) return null;
  const same = ['score', 'choiceBias', 'groups', 'groupsKept', 'groupScore', 'byToken'] as const;
  if (others.some((router) => same.some((key) => router[key] !== first[key]))) return null;
  const { choiceBias, groups, groupsKept, groupScore, byToken } = first;
  if (byToken === true) return null;
  if (!choiceBias && groupsKept === groups) return { router_score: rule };
  const bias: number[][] = [];
  for (const layer of choiceBias ? expertLayerNumbers(source.shape) : []) {
    const values = await valuesOf(source.dense('choiceBias', layer));
    if (values === null) return null;
    bias.push(values);
  }
  const choice = { groups, groups_kept: groupsKept, group_score: groupScore };
  return { router_score: rule, router_choice: { ...choice, ...(choiceBias && { bias }) } };
}

/** The scores of a position as a trace has them. `layers`: of all experts, by expert layer. */
export function tracedScores(layers: readonly Float32Array[]): string {
  const scores = layers.flatMap((layer) => [...layer]);
  const bytes = Buffer.alloc(scores.length * HALF_BYTES);
  scores.forEach((score, index) => bytes.writeUInt16LE(halfBitsOf(score), index * HALF_BYTES));
  return bytes.toString('base64');
}

/** The values of a vector; null: it is neither BF16 nor FP32. */
async function valuesOf(source: TensorSource): Promise<number[] | null> {
  if (source.split !== 'none-bf16' && source.split !== 'none-fp32') return null;
  assertInvariant(source.rows === 1, 'the bias of a choice is a vector.');
  const tensor = openTensor(source);
  try {
    const [bytes = new Uint8Array(0)] = await tensor.read(source.rows);
    const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    const word = new DataView(new ArrayBuffer(FLOAT_BYTES));
    return Array.from({ length: source.columns }, (_, index) => {
      if (source.split === 'none-fp32') return view.getFloat32(index * FLOAT_BYTES, true);
      word.setUint16(0, view.getUint16(index * HALF_BYTES, true));
      return word.getFloat32(0);
    });
  } finally {
    tensor.dispose();
  }
}
