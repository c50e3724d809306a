/** Attention to pools of positions in plain FP64 (transformers' modeling_deepseek_v4.py): the formulas over a whole sequence, without a cache. */
import type { DenseRole } from '../../shared/model/dense-roles.js';
import type { ModelShape, PooledMixer } from '../../shared/model/model-shape.js';
import { at, heads, joined, look, multiply, rmsNorm, rotate, type Vector, type Weights } from './plain-mixers.js';

type Pools = NonNullable<PooledMixer['pools']>;
type PoolRoles = readonly [value: DenseRole, gate: DenseRole, bias: DenseRole, norm: DenseRole];

/** The entries of all complete pools of a sequence. */
function entriesOf(
  { positions, overlaps }: Pools,
  [value, gate, bias, norm]: PoolRoles,
  xs: readonly Vector[],
  weights: Weights,
  { epsilon, turn }: { epsilon: number; turn: (x: Vector, position: number) => Vector },
): Vector[] {
  const values = xs.map((x) => multiply(weights(value), x));
  const gates = xs.map((x) => multiply(weights(gate), x));
  const { columns, data } = weights(bias);
  const size = overlaps ? columns / 2 : columns;
  return Array.from({ length: Math.floor(xs.length / positions) }, (_, entry) => {
    const first = entry * positions;
    const own = Array.from({ length: positions }, (_unused, place) => ({ row: first + place, from: columns - size }));
    const before = overlaps && entry > 0 ? own.map(({ row }) => ({ row: row - positions, from: 0 })) : [];
    const terms = [...before, ...own];
    const pooled = Float64Array.from({ length: size }, (_unused, channel) => {
      const logits = terms.map(
        ({ row, from }) =>
          at(gates[row] ?? [], from + channel) + at(data, (row % positions) * columns + from + channel),
      );
      const highest = Math.max(...logits);
      const shares = logits.map((logit) => Math.exp(logit - highest));
      const total = shares.reduce((sum, share) => sum + share, 0);
      return terms.reduce(
        (sum, { row, from }, index) => sum + (at(shares, index) / total) * at(values[row] ?? [], from + channel),
        0,
      );
    });
    return turn(rmsNorm(pooled, epsilon, weights(norm).data), first);
  });
}

/** Numbers of the entries that each row sees, rising. */
function seenEntries(
  mixer: PooledMixer,
  xs: readonly Vector[],
  lows: readonly Vector[],
  weights: Weights,
  shape: ModelShape,
): number[][] {
  const { pools } = mixer;
  if (pools === undefined) return xs.map((): number[] => []);
  const complete = xs.map((_, position) => [...Array(Math.floor((position + 1) / pools.positions)).keys()]);
  const { indexer } = pools;
  if (indexer === undefined) return complete;
  const turn = (x: Vector, position: number): Vector => rotate(x, position, indexer.rotary, shape);
  const roles = ['indexPoolValue', 'indexPoolGate', 'indexPoolGateBias', 'indexPoolNorm'] as const;
  const keys = entriesOf(pools, roles, xs, weights, { epsilon: mixer.normEpsilon, turn });
  return complete.map((entries, position) => {
    const queries = heads(multiply(weights('indexQuery'), lows[position] ?? new Float64Array()), indexer.heads);
    const shares = multiply(weights('indexWeights'), xs[position] ?? new Float64Array());
    const scores = entries.map((entry) =>
      queries.reduce((sum, query, head) => {
        const turned = turn(query, position);
        const dot = turned.reduce((total, value, index) => total + value * at(keys[entry] ?? [], index), 0);
        return sum + at(shares, head) * Math.max(0, dot);
      }, 0),
    );
    const best = [...entries].sort((a, b) => at(scores, b) - at(scores, a) || a - b);
    return best.slice(0, indexer.entries).sort((a, b) => a - b);
  });
}

export function pooled(mixer: PooledMixer, xs: readonly Vector[], weights: Weights, shape: ModelShape): Vector[] {
  const { normEpsilon: epsilon, rotary, pools, outputGroups, outputRank } = mixer;
  const turn = (x: Vector, position: number): Vector => rotate(x, position, rotary, shape);
  const lows = xs.map((x) => rmsNorm(multiply(weights('queryLow'), x), epsilon, weights('queryLowNorm').data));
  const keys = xs.map((x, position) =>
    turn(rmsNorm(multiply(weights('key'), x), epsilon, weights('keyNorm').data), position),
  );
  const roles = ['poolValue', 'poolGate', 'poolGateBias', 'poolNorm'] as const;
  const entries = pools === undefined ? [] : entriesOf(pools, roles, xs, weights, { epsilon, turn });
  const seenBy = seenEntries(mixer, xs, lows, weights, shape);
  const low = weights('outputLow');
  return xs.map((_, position) => {
    const ofEntries = (seenBy[position] ?? []).flatMap((entry) => entries[entry] ?? []);
    const seen = [...ofEntries, ...keys.slice(Math.max(0, position - mixer.window + 1), position + 1)];
    const queries = heads(multiply(weights('query'), lows[position] ?? new Float64Array()), mixer.heads);
    const outputs = queries.map((query, head) => {
      const turned = turn(rmsNorm(query, epsilon, null), position);
      const output = look(turned, seen, seen, mixer.scoreScale, at(weights('sinks').data, head));
      // A rope's factor is in both rotations.
      return rotate(output, -position, rotary, shape);
    });
    const groups = heads(joined(outputs), outputGroups).map((group, index) => {
      const data = low.data.slice(index * outputRank * low.columns, (index + 1) * outputRank * low.columns);
      return multiply({ rows: outputRank, columns: low.columns, data }, group);
    });
    return multiply(weights('mixerOutput'), joined(groups));
  });
}
