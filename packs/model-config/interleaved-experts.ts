import type { ExpertMatrix } from '../../shared/model/tensor-source.js';
import type { NamedPart, TensorNames } from './checkpoint-layout.js';
import type { ModelShape } from '../../shared/model/model-shape.js';

/** Names of the fused tensors of a layer's experts. Every second column (or row) belongs to the gate, the others to the up matrix. */
export interface InterleavedNames {
  gateUp: string;
  down: string;
}

interface Place {
  part: ExpertMatrix;
  expert: number;
  shape: ModelShape;
}

/** Names for values, [experts, inputs, outputs], or for MXFP4, [experts, outputs, inputs]. */
export function interleavedExpertNames(names: InterleavedNames, encoding: 'values' | 'mxfp4'): TensorNames['expert'] {
  return (part, expert, { shape }) =>
    encoding === 'mxfp4' ? rowsOf(names, { part, expert, shape }) : columnsOf(names, { part, expert, shape });
}

function columnsOf(names: InterleavedNames, { part, expert, shape }: Place): NamedPart {
  const { experts, hiddenSize } = shape;
  const { intermediateSize } = shape.expert;
  const inputs = part === 'down' ? intermediateSize : hiddenSize;
  const slice = { firstRow: expert * inputs, blockRows: inputs, transposed: true };
  if (part === 'down') return { name: names.down, dimensions: [experts, inputs, hiddenSize], slice };
  return {
    name: names.gateUp,
    dimensions: [experts, inputs, 2 * intermediateSize],
    slice: { ...slice, firstColumn: part === 'up' ? 1 : 0, stepColumns: 2 },
  };
}

function rowsOf(names: InterleavedNames, { part, expert, shape }: Place): NamedPart {
  const { experts, hiddenSize } = shape;
  const { intermediateSize } = shape.expert;
  const encoding = 'mxfp4';
  if (part === 'down') {
    const slice = { firstRow: expert * hiddenSize, blockRows: hiddenSize };
    return { name: names.down, dimensions: [experts, hiddenSize, intermediateSize], encoding, slice };
  }
  const firstRow = 2 * expert * intermediateSize + (part === 'up' ? 1 : 0);
  const dimensions = [experts, 2 * intermediateSize, hiddenSize];
  return { name: names.gateUp, dimensions, encoding, slice: { firstRow, blockRows: 1, stepRows: 2 } };
}

/** Names of the biases, [experts, outputs]. */
export function interleavedBiasNames(names: InterleavedNames): NonNullable<TensorNames['expertBias']> {
  return (part, expert, { shape: { experts, hiddenSize, expert: glu } }) => {
    const row = { firstRow: expert, blockRows: 1, stepRows: 1 };
    if (part === 'down') return { name: names.down, dimensions: [experts, hiddenSize], slice: row };
    const slice = { ...row, firstColumn: part === 'up' ? 1 : 0, stepColumns: 2 };
    return { name: names.gateUp, dimensions: [experts, 2 * glu.intermediateSize], slice };
  };
}
