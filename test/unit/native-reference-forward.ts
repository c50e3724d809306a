/** The Mixtral decoder in plain FP64, slow and obvious: what the native core is measured against. */
import { FIXTURE_SHAPE, FIXTURE_SIZES, ROPE_THETA, denseName, expertName, valuesOf } from './native-test-model.js';
import type { DenseRole } from '../../shared/model/dense-roles.js';

export interface ReferenceForward {
  /** Per token: logits. */
  logits: Float64Array[];
  /** Per layer and token: experts by falling weight. */
  experts: number[][][];
}

const { hiddenSize, intermediateSize, heads, keyValueHeads, headDim, layers } = FIXTURE_SIZES;

const at = (values: ArrayLike<number>, index: number): number => values[index] ?? Number.NaN;

function multiply(weights: Float64Array, input: Float64Array): Float64Array {
  const columns = input.length;
  return Float64Array.from({ length: weights.length / columns }, (_, row) =>
    input.reduce((sum, value, column) => sum + value * at(weights, row * columns + column), 0),
  );
}

function normalize(input: Float64Array, weight: Float64Array): Float64Array {
  const meanSquare = input.reduce((sum, value) => sum + value * value, 0) / input.length;
  return input.map((value, i) => (value / Math.sqrt(meanSquare + FIXTURE_SHAPE.normEpsilon)) * at(weight, i));
}

function rotate(head: Float64Array, position: number): Float64Array {
  const half = head.length / 2;
  return head.map((value, i) => {
    const angle = position * ROPE_THETA ** (-(2 * (i % half)) / head.length);
    const other = i < half ? -at(head, i + half) : at(head, i - half);
    return value * Math.cos(angle) + other * Math.sin(angle);
  });
}

const part = (values: Float64Array, head: number): Float64Array => values.slice(head * headDim, (head + 1) * headDim);

function softmax(values: number[]): number[] {
  const highest = Math.max(...values);
  const exponentials = values.map((value) => Math.exp(value - highest));
  const sum = exponentials.reduce((a, b) => a + b, 0);
  return exponentials.map((value) => value / sum);
}

function attend(queries: Float64Array, keys: Float64Array[][], values: Float64Array[][]): Float64Array {
  const result = new Float64Array(heads * headDim);
  for (let head = 0; head < heads; head++) {
    const kvHead = Math.floor(head / (heads / keyValueHeads));
    const query = part(queries, head);
    const scores = keys.map((row) => {
      const key = row[kvHead] ?? new Float64Array();
      return query.reduce((sum, value, i) => sum + value * at(key, i), 0) / Math.sqrt(headDim);
    });
    softmax(scores).forEach((weight, position) => {
      const value = values[position]?.[kvHead] ?? new Float64Array();
      for (let i = 0; i < headDim; i++) {
        const place = head * headDim + i;
        result[place] = at(result, place) + weight * at(value, i);
      }
    });
  }
  return result;
}

function runExpert(layer: number, expert: number, input: Float64Array): Float64Array {
  const gate = multiply(valuesOf(expertName(layer, expert, 'gate')), input);
  const up = multiply(valuesOf(expertName(layer, expert, 'up')), input);
  const activation = gate.map((value, i) => (value / (1 + Math.exp(-value))) * at(up, i));
  if (activation.length !== intermediateSize) throw new Error('the fixture has another intermediate size');
  return multiply(valuesOf(expertName(layer, expert, 'down')), activation);
}

function chooseExperts(logits: Float64Array): { experts: number[]; weights: number[] } {
  const probabilities = softmax([...logits]);
  const experts = probabilities
    .map((_, expert) => expert)
    .sort((a, b) => at(probabilities, b) - at(probabilities, a) || a - b)
    .slice(0, FIXTURE_SHAPE.expertsPerToken);
  const sum = experts.reduce((total, expert) => total + at(probabilities, expert), 0);
  return { experts, weights: experts.map((expert) => at(probabilities, expert) / sum) };
}

export function referenceForward(tokenIds: readonly number[]): ReferenceForward {
  const embedding = valuesOf(denseName('embedding', 0));
  let residual = tokenIds.map((id) => embedding.slice(id * hiddenSize, (id + 1) * hiddenSize));
  const experts: number[][][] = [];
  for (let layer = 0; layer < layers; layer++) {
    const weights = (role: DenseRole): Float64Array => valuesOf(denseName(role, layer));
    const normed = residual.map((row) => normalize(row, weights('mixerNorm')));
    const keys = normed.map((row, position) => {
      const key = multiply(weights('key'), row);
      return Array.from({ length: keyValueHeads }, (_, head) => rotate(part(key, head), position));
    });
    const values = normed.map((row) => {
      const value = multiply(weights('value'), row);
      return Array.from({ length: keyValueHeads }, (_, head) => part(value, head));
    });
    const chosen: number[][] = [];
    residual = residual.map((row, position) => {
      const query = multiply(weights('query'), normed[position] ?? row);
      const rotated = Float64Array.from(
        Array.from({ length: heads }, (_, head) => [...rotate(part(query, head), position)]).flat(),
      );
      const attended = attend(rotated, keys.slice(0, position + 1), values.slice(0, position + 1));
      const projected = multiply(weights('mixerOutput'), attended);
      const middle = row.map((value, i) => value + at(projected, i));
      const input = normalize(middle, weights('feedForwardNorm'));
      const choice = chooseExperts(multiply(weights('router'), input));
      chosen.push(choice.experts);
      const outputs = choice.experts.map((expert) => runExpert(layer, expert, input));
      return middle.map((value, i) =>
        outputs.reduce((sum, output, rank) => sum + at(choice.weights, rank) * at(output, i), value),
      );
    });
    experts.push(chosen);
  }
  const head = valuesOf(denseName('lmHead', 0));
  const finalNorm = valuesOf(denseName('finalNorm', 0));
  return { logits: residual.map((row) => multiply(head, normalize(row, finalNorm))), experts };
}
