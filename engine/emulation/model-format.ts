/** Bytes of a model's weights in a format, for plans and simulations. */
import { denseDimensions, densePlaces, isVectorRole } from '../../shared/model/dense-roles.js';
import { expertLayerNumbers, expertRowSize, gateRows, type ModelShape } from '../../shared/model/model-shape.js';
import { EXPERT_MATRICES, type ModelSource, type TensorSource } from '../../shared/model/tensor-source.js';
import { isQuantizedSplit, rowBytes } from '../../shared/model/weight-dtype.js';
import type { MatrixFormat, MatrixPlace, WeightMix } from './weight-mixes.js';

/** Bytes of a weight in the mean over all matrices of a kind and over all layers. */
export interface ModelFormat {
  /** A mix of weight-mixes.ts; or, of a model on disk, the words for its formats. */
  name: string;
  expertBytes: number;
  /** Matrices of the layers without their routed experts. */
  denseBytes: number;
  embeddingBytes: number;
  /** As embeddingBytes for tied embeddings. */
  headBytes: number;
}

/** A matrix of a model, and how often the model has it. */
interface CountedMatrix extends MatrixPlace {
  rows: number;
  count: number;
}

/** The bytes that a mix gives a model. `plainBytes`: bytes of a weight that is not quantized. */
export function mixedFormat(
  { name, formatOf }: WeightMix,
  model: { shape: ModelShape; tiedEmbeddings: boolean },
  plainBytes: number,
): ModelFormat {
  return { name, ...meanBytes(matrices(model), (place) => matrixRowBytes(formatOf(place), place.columns, plainBytes)) };
}

/**
 * The bytes of a model on disk. Null: nothing in it is quantized. The experts of a layer are alike, so the first one of each layer counts for all.
 * A matrix that is not quantized has `plainBytes` a weight, as the device computes with it.
 */
export function shippedFormat(source: ModelSource, plainBytes: number): ModelFormat | null {
  const formats = new Set<MatrixFormat>();
  const numbers = expertLayerNumbers(source.shape);
  const tensorOf = ({ matrix, layer }: MatrixPlace): TensorSource => {
    if (matrix === 'gate' || matrix === 'up' || matrix === 'down') {
      return source.expert(numbers.indexOf(layer), 0)[matrix];
    }
    return source.dense(matrix, layer);
  };
  const means = meanBytes(matrices(source), (place) => {
    const { split } = tensorOf(place);
    const format = isQuantizedSplit(split) ? split : 'plain';
    formats.add(format);
    return matrixRowBytes(format, place.columns, plainBytes);
  });
  const quantized = [...formats].filter((format) => format !== 'plain');
  return quantized.length === 0 ? null : { name: quantized.join(', '), ...means };
}

function matrixRowBytes(format: MatrixFormat, columns: number, plainBytes: number): number {
  return format === 'plain' ? plainBytes * columns : rowBytes(format, columns);
}

/** Every matrix of a model: the experts of a layer as one with a count. Vectors are too small to count. */
function* matrices({
  shape,
  tiedEmbeddings,
}: {
  shape: ModelShape;
  tiedEmbeddings: boolean;
}): Generator<CountedMatrix> {
  const { experts, expert } = shape;
  const rowSize = expertRowSize(shape);
  const all = { layers: shape.layers.length, experts, tiedEmbeddings };
  for (const place of densePlaces(shape, tiedEmbeddings)) {
    if (isVectorRole(place.role)) continue;
    yield { ...all, matrix: place.role, layer: place.layer, ...denseDimensions(place, shape), count: 1 };
  }
  for (const layer of expertLayerNumbers(shape)) {
    for (const matrix of EXPERT_MATRICES) {
      const [rows, columns] = matrix === 'down' ? [rowSize, expert.intermediateSize] : [gateRows(expert), rowSize];
      yield { ...all, matrix, layer, rows, columns, count: experts };
    }
  }
}

type Kind = 'expertBytes' | 'denseBytes' | 'embeddingBytes' | 'headBytes';

function kindOf({ matrix }: MatrixPlace): Kind {
  if (matrix === 'gate' || matrix === 'up' || matrix === 'down') return 'expertBytes';
  if (matrix === 'embedding') return 'embeddingBytes';
  return matrix === 'lmHead' ? 'headBytes' : 'denseBytes';
}

function meanBytes(counted: Iterable<CountedMatrix>, rowBytesOf: (place: MatrixPlace) => number): Record<Kind, number> {
  const sums = new Map<Kind, { bytes: number; weights: number }>();
  for (const place of counted) {
    const { rows, columns, count } = place;
    const { bytes, weights } = sums.get(kindOf(place)) ?? { bytes: 0, weights: 0 };
    sums.set(kindOf(place), {
      bytes: bytes + count * rows * rowBytesOf(place),
      weights: weights + count * rows * columns,
    });
  }
  const mean = (kind: Kind): number | null => {
    const sum = sums.get(kind);
    return sum === undefined ? null : sum.bytes / sum.weights;
  };
  const embeddingBytes = mean('embeddingBytes') ?? 0;
  return {
    expertBytes: mean('expertBytes') ?? 0,
    denseBytes: mean('denseBytes') ?? 0,
    embeddingBytes,
    headBytes: mean('headBytes') ?? embeddingBytes,
  };
}
