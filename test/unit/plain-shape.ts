import { plainShape as shapeOf } from '../../engine/emulation/plain-shape.js';
import type { LayerShape, ModelShape } from '../../shared/model/model-shape.js';

/** The smallest possible layers of attention and routed experts, as in Mixtral. `changes` replace fields. */
export function plainShape(changes: Partial<ModelShape> & { expertLayers: number }): ModelShape {
  const plain = shapeOf({
    layers: changes.expertLayers,
    hiddenSize: 1,
    intermediateSize: 1,
    heads: 1,
    keyValueHeads: 1,
    headDim: 1,
    vocabSize: 1,
    experts: 4,
    expertsPerToken: 2,
  });
  return { ...plain, ...changes };
}

export function plainLayer(): LayerShape {
  const [layer] = plainShape({ expertLayers: 1 }).layers;
  if (layer === undefined) throw new Error('a plain shape has a layer');
  return layer;
}

/** Costs in which loads decide the group size: a group has as many workers as a token has experts. */
export const GROUPING = { groupSize: 'auto', costs: { executeMs: 1, reachMs: 0.1, loadMs: 100 }, homes: 0 } as const;
