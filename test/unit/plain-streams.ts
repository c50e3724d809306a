/** The residual in plain FP64: one row, or streams. */
import type { DenseRole } from '../../shared/model/dense-roles.js';
import type { ModelShape } from '../../shared/model/model-shape.js';
import { add, at, multiply, rmsNorm, sigmoid, type Vector, type Weights } from './plain-mixers.js';

/** The rows of the residual of one position: one, or one for each stream. */
export type Rows = readonly Vector[];

/** What a part takes of the residual, and the residual behind the part. */
export interface Taken {
  input: Vector;
  give: (output: Vector) => Rows;
}

interface StreamWeights {
  before: readonly number[];
  behind: readonly number[];
  /** null: streams that are not mixed. */
  mix: readonly (readonly number[])[] | null;
}

export function beginRows(row: Vector, { streams }: ModelShape): Rows {
  return Array.from({ length: streams?.count ?? 1 }, () => row);
}

export function takeRows(rows: Rows, part: 'mixer' | 'feedForward', shape: ModelShape, weights: Weights): Taken {
  const [row] = rows;
  if (row === undefined) throw new Error('a residual has a row');
  if (shape.streams === undefined) return { input: row, give: (output) => [add(row, output)] };
  const { before, behind, mix } = streamWeights(rows, part, shape, weights);
  return {
    input: weightedSum(rows, before),
    give: (output) =>
      rows.map((own, to) => {
        const factors = mix?.map((from) => from[to] ?? 0);
        const kept = factors === undefined ? own : weightedSum(rows, factors);
        return kept.map((value, index) => value + (behind[to] ?? 0) * at(output, index));
      }),
  };
}

/** The hidden state behind the last layer. */
export function endRows(rows: Rows, shape: ModelShape, weights: Weights): Vector {
  const [row] = rows;
  if (row === undefined) throw new Error('a residual has a row');
  if (shape.streams === undefined) return row;
  if (shape.streams.ending === 'mean') {
    return weightedSum(
      rows,
      rows.map(() => 1 / rows.length),
    );
  }
  const values = mapped(rows, 'finalStreamMap', shape, weights);
  const scale = at(weights('finalStreamScale').data, 0);
  const base = weights('finalStreamBase').data;
  const { epsilon } = shape.streams;
  return weightedSum(
    rows,
    [...values].map((value, index) => sigmoid(value * scale + at(base, index)) + epsilon),
  );
}

function mapped(rows: Rows, role: DenseRole, shape: ModelShape, weights: Weights): Vector {
  const all = Float64Array.from(rows.flatMap((row) => [...row]));
  return multiply(weights(role), rmsNorm(all, shape.normEpsilon, null));
}

function streamWeights(rows: Rows, part: 'mixer' | 'feedForward', shape: ModelShape, weights: Weights): StreamWeights {
  const { streams } = shape;
  if (streams === undefined) throw new Error('the model has no streams');
  const { count, epsilon } = streams;
  const values = mapped(rows, `${part}StreamMap`, shape, weights);
  const scales = weights(`${part}StreamScale`).data;
  const base = weights(`${part}StreamBase`).data;
  const scaled = [...values].map(
    (value, index) => value * at(scales, Math.min(2, Math.floor(index / count))) + at(base, index),
  );
  const before = scaled.slice(0, count).map((value) => sigmoid(value) + epsilon);
  const ofOutput = scaled.slice(count, 2 * count).map(sigmoid);
  if (streams.kind === 'added') {
    return { before, behind: ofOutput.map((value) => streams.magnitude * value + epsilon), mix: null };
  }
  const rowsOfMix = Array.from({ length: count }, (_, j) => scaled.slice((2 + j) * count, (3 + j) * count));
  let mix = rowsOfMix.map((row) => {
    const exponentials = row.map((value) => Math.exp(value - Math.max(...row)));
    return exponentials.map((value) => value / total(exponentials) + epsilon);
  });
  mix = turned(balanced(turned(mix), epsilon));
  for (let round = 1; round < streams.rounds; round += 1)
    mix = turned(balanced(turned(balanced(mix, epsilon)), epsilon));
  return { before, behind: ofOutput.map((value) => 2 * value), mix };
}

function balanced(matrix: readonly number[][], epsilon: number): number[][] {
  return matrix.map((row) => row.map((value) => value / (total(row) + epsilon)));
}

function turned(matrix: readonly number[][]): number[][] {
  return matrix.map((_, column) => matrix.map((row) => row[column] ?? 0));
}

function total(values: readonly number[]): number {
  return values.reduce((sum, value) => sum + value, 0);
}

function weightedSum(rows: Rows, factors: readonly number[]): Vector {
  const scaled = rows.map((row, index) => row.map((value) => value * (factors[index] ?? 0)));
  return scaled.reduce<Vector>((sum, row) => add(sum, row), new Float64Array(rows[0]?.length ?? 0));
}
