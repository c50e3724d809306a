/** The mixers of a model in plain FP64, over a whole sequence. They are the reference for the native core. */
import type { DenseRole } from '../../shared/model/dense-roles.js';
import type {
  AttentionMixer,
  DeltaMixer,
  LatentMixer,
  MixerShape,
  ModelShape,
  RotaryShape,
  StateSpaceMixer,
} from '../../shared/model/model-shape.js';
import { pooled } from './plain-pools.js';
import type { Matrix } from './plain-values.js';

export type Vector = Float64Array;
/** Weights of one layer. */
export type Weights = (role: DenseRole) => Matrix;

export const at = (values: ArrayLike<number>, index: number): number => values[index] ?? NaN;
export const sigmoid = (x: number): number => 1 / (1 + Math.exp(-x));

export function multiply({ rows, columns, data }: Matrix, x: Vector): Vector {
  return Float64Array.from({ length: rows }, (_, row) => {
    let sum = 0;
    for (let column = 0; column < columns; column += 1) sum += at(data, row * columns + column) * at(x, column);
    return sum;
  });
}

export function add(a: Vector, b: ArrayLike<number>): Vector {
  return a.map((value, index) => value + at(b, index));
}

/** Divided by the root mean square, times a weight where there is one. */
export function rmsNorm(x: Vector, epsilon: number, weight: ArrayLike<number> | null): Vector {
  const root = Math.sqrt(x.reduce((sum, value) => sum + value * value, 0) / x.length + epsilon);
  return x.map((value, index) => (value / root) * (weight === null ? 1 : at(weight, index)));
}

export function heads(x: Vector, count: number): Vector[] {
  const size = x.length / count;
  return Array.from({ length: count }, (_, head) => x.slice(head * size, (head + 1) * size));
}

export function joined(parts: readonly Vector[]): Vector {
  return Float64Array.from(parts.flatMap((part) => [...part]));
}

export function rotate(x: Vector, position: number, rotary: RotaryShape | null, { ropes }: ModelShape): Vector {
  if (rotary === null) return x;
  const rope = ropes[rotary.rope];
  if (rope === undefined) throw new Error('no rope');
  const result = x.slice();
  const pairs = rope.frequencies.length;
  for (const [pair, frequency] of rope.frequencies.entries()) {
    const angle = Math.fround(position * frequency);
    const [cos, sin] = [Math.cos(angle) * rope.scale, Math.sin(angle) * rope.scale];
    const first = rotary.offset + (rotary.pairing === 'halves' ? pair : 2 * pair);
    const second = first + (rotary.pairing === 'halves' ? pairs : 1);
    result[first] = at(x, first) * cos - at(x, second) * sin;
    result[second] = at(x, second) * cos + at(x, first) * sin;
  }
  return result;
}

/** Softmax over the positions that a query sees, and the mean of the values with these weights. */
export function look(
  query: Vector,
  keys: readonly Vector[],
  values: readonly Vector[],
  scale: number,
  sink: number,
): Vector {
  const scores = keys.map((key) => key.reduce((sum, value, index) => sum + value * at(query, index), 0) * scale);
  const highest = Math.max(sink, ...scores);
  const weights = scores.map((score) => Math.exp(score - highest));
  const total = weights.reduce((sum, weight) => sum + weight, Math.exp(sink - highest));
  const result = new Float64Array(values[0]?.length ?? 0);
  for (const [position, weight] of weights.entries()) {
    const value = values[position] ?? result;
    for (let index = 0; index < result.length; index += 1) {
      result[index] = at(result, index) + (weight / total) * at(value, index);
    }
  }
  return result;
}

function attention(mixer: AttentionMixer, xs: readonly Vector[], weights: Weights, shape: ModelShape): Vector[] {
  const { headDim, queryKeyNorm, normEpsilon, window } = mixer;
  const project = (role: 'query' | 'key' | 'value', x: Vector, isNormed = role !== 'value'): Vector => {
    let result = multiply(weights(role), x);
    if (mixer.bias) result = add(result, weights(`${role}Bias`).data);
    if (queryKeyNorm === 'all' && isNormed && role !== 'value') {
      result = rmsNorm(result, normEpsilon, weights(`${role}Norm`).data);
    }
    return mixer.clip > 0 ? result.map((value) => Math.min(Math.max(value, -mixer.clip), mixer.clip)) : result;
  };
  const placed = (role: 'query' | 'key', head: Vector, position: number): Vector => {
    const norm = (x: Vector): Vector =>
      queryKeyNorm === 'head' ? rmsNorm(x, normEpsilon, weights(`${role}Norm`).data) : x;
    const turn = (x: Vector): Vector => rotate(x, position, mixer.rotary, shape);
    return mixer.normAfterRotation ? norm(turn(head)) : turn(norm(head));
  };
  const keys = xs.map((x, position) =>
    heads(project('key', x), mixer.keyValueHeads).map((head) => placed('key', head, position)),
  );
  const values = xs.map((x) => {
    const row = heads(project(mixer.keysAreValues ? 'key' : 'value', x, false), mixer.keyValueHeads);
    return mixer.valueNorm ? row.map((head) => rmsNorm(head, normEpsilon, null)) : row;
  });
  const chosen = seenInBlocks(mixer, xs, weights, shape);
  return xs.map((x, position) => {
    const first = window === 0 ? 0 : Math.max(0, position - window + 1);
    const seen = (rows: readonly Vector[][], head: number): Vector[] => {
      const list = chosen?.[position]?.[head] ?? [...xs.keys()].slice(first, position + 1);
      return list.map((one) => rows[one]?.[head] ?? new Float64Array(headDim));
    };
    const outputs = heads(project('query', x), mixer.heads).map((query, head) => {
      const shared = Math.floor(head / (mixer.heads / mixer.keyValueHeads));
      const sink = mixer.sinks ? at(weights('sinks').data, head) : -Infinity;
      return look(placed('query', query, position), seen(keys, shared), seen(values, shared), mixer.scoreScale, sink);
    });
    let output = joined(outputs).map((value) => value * (mixer.valueScale ?? 1)) as Vector;
    if (mixer.outputGate) {
      const gate = multiply(weights('outputGate'), x);
      const act = mixer.outputGateFunction === 'softplus' ? (g: number): number => Math.log1p(Math.exp(g)) : sigmoid;
      const place = (index: number): number =>
        mixer.outputGateWidth === 'head' ? Math.floor(index / (mixer.valueDim ?? headDim)) : index;
      output = output.map((value, index) => value * act(at(gate, place(index))));
    }
    const result = multiply(weights('mixerOutput'), output);
    return mixer.outputBias ? add(result, weights('mixerOutputBias').data) : result;
  });
}

/** The positions that each row sees for each key-value head, in the blocks that an indexer chooses; null: it has none. */
function seenInBlocks(
  mixer: AttentionMixer,
  xs: readonly Vector[],
  weights: Weights,
  shape: ModelShape,
): number[][][] | null {
  const { blockIndexer, keyValueHeads } = mixer;
  if (blockIndexer === undefined) return null;
  const { blockSize, blocks, localBlocks, normEpsilon, rotary } = blockIndexer;
  const placed = (role: 'indexQuery' | 'indexKey', x: Vector, position: number): Vector =>
    rotate(rmsNorm(x, normEpsilon, weights(`${role}Norm`).data), position, rotary, shape);
  const keys = xs.map((x, position) => placed('indexKey', multiply(weights('indexKey'), x), position));
  return xs.map((x, position) =>
    heads(multiply(weights('indexQuery'), x), keyValueHeads).map((plain) => {
      const query = placed('indexQuery', plain, position);
      const own = Math.floor(position / blockSize);
      const scores = Array.from({ length: own + 1 }, (_, block) => {
        if (block > own - localBlocks) return Infinity;
        const dots = keys
          .slice(block * blockSize, Math.min((block + 1) * blockSize, position + 1))
          .map((key) => query.reduce((sum, value, index) => sum + value * at(key, index), 0));
        return Math.max(...dots);
      });
      const best = [...scores.keys()].sort((a, b) =>
        at(scores, a) === at(scores, b) ? a - b : at(scores, b) - at(scores, a),
      );
      const taken = new Set(best.slice(0, blocks));
      return [...xs.keys()].slice(0, position + 1).filter((one) => taken.has(Math.floor(one / blockSize)));
    }),
  );
}

/** transformers' get_llama_4_attn_scale of modeling_mistral4.py. */
function queryFactor(position: number, { queryScale }: ModelShape): number {
  if (queryScale === undefined) return 1;
  return 1 + queryScale.beta * Math.log(1 + Math.floor(position / queryScale.length));
}

/** Positions that each row saw in the last layer with an indexer. */
export interface LastChoice {
  positions: number[][];
}

/** Keys of an indexer's complete pools of `size` positions: the mean of the positions' keys, weighed by a softmax for each channel. */
function poolKeys(keys: readonly Vector[], size: number, xs: readonly Vector[], weights: Weights): Vector[] {
  const gates = xs.map((x) => multiply(weights('indexPoolGate'), x));
  const { columns, data } = weights('indexPoolGateBias');
  return Array.from({ length: Math.floor(keys.length / size) }, (_, pool) =>
    Float64Array.from({ length: columns }, (_unused, channel) => {
      const places = Array.from({ length: size }, (_one, place) => place);
      const logits = places.map(
        (place) => at(gates[pool * size + place] ?? [], channel) + at(data, place * columns + channel),
      );
      const shares = logits.map((logit) => Math.exp(logit - Math.max(...logits)));
      const total = shares.reduce((sum, share) => sum + share, 0);
      return places.reduce(
        (sum, place) => sum + (at(shares, place) / total) * at(keys[pool * size + place] ?? [], channel),
        0,
      );
    }),
  );
}

/** All positions up to each row's own or, with an indexer, the best of them or of their pools; the lower one among equals. */
function seenPositions(mixer: LatentMixer, xs: readonly Vector[], weights: Weights, shape: ModelShape): number[][] {
  const all = xs.map((_, position) => [...xs.keys()].slice(0, position + 1));
  const { indexer } = mixer;
  if (indexer === undefined) return all;
  const ofPositions = xs.map((x, position) => {
    const plain = multiply(weights('indexKey'), x);
    return rotate(layerNorm(plain, indexer.normEpsilon, weights), position, indexer.rotary, shape);
  });
  const size = indexer.poolPositions ?? 1;
  const keys = indexer.poolPositions === undefined ? ofPositions : poolKeys(ofPositions, size, xs, weights);
  return xs.map((x, position) => {
    const complete = Math.floor((position + 1) / size);
    const low = rmsNorm(multiply(weights('queryLow'), x), mixer.normEpsilon, weights('queryLowNorm').data);
    const queries = heads(multiply(weights('indexQuery'), low), indexer.heads);
    const turned = queries.map((query) => rotate(query, position, indexer.rotary, shape));
    const shares = multiply(weights('indexWeights'), x);
    const scores = keys.slice(0, complete).map((key) =>
      turned.reduce((sum, query, head) => {
        const dot = query.reduce((total, value, index) => total + value * at(key, index), 0);
        return sum + (at(shares, head) * Math.max(0, dot)) / Math.sqrt(indexer.headDim * indexer.heads);
      }, 0),
    );
    const best = [...scores.keys()].sort((a, b) => at(scores, b) - at(scores, a) || a - b);
    const chosen = new Set(best.slice(0, indexer.positions / size));
    return [...xs.keys()].slice(0, position + 1).filter((one) => {
      const pool = Math.floor(one / size);
      return pool >= complete || chosen.has(pool);
    });
  });
}

function layerNorm(x: Vector, epsilon: number, weights: Weights): Vector {
  const mean = x.reduce((sum, value) => sum + value, 0) / x.length;
  const normed = rmsNorm(
    x.map((value) => value - mean),
    epsilon,
    weights('indexKeyNorm').data,
  );
  return add(normed, weights('indexKeyNormBias').data);
}

/** Not absorbed: keys and values of every head are expanded, as the models define it. */
function latent(
  mixer: LatentMixer,
  xs: readonly Vector[],
  weights: Weights,
  shape: ModelShape,
  last: LastChoice,
): Vector[] {
  const { latentSize, nopeSize, valueSize, normEpsilon } = mixer;
  const [keyExpansion, valueExpansion] = [weights('keyExpansion'), weights('valueExpansion')];
  const rows = xs.map((x, position) => {
    const both = multiply(weights('latent'), x);
    const compressed = rmsNorm(both.slice(0, latentSize), normEpsilon, weights('latentNorm').data);
    const rotated = rotate(both.slice(latentSize), position, mixer.rotary, shape);
    const values = heads(multiply(valueExpansion, compressed), mixer.heads);
    const keys = values.map((_, head) => {
      const key = new Float64Array(nopeSize);
      for (let i = 0; i < latentSize; i += 1) {
        for (let j = 0; j < nopeSize; j += 1) {
          key[j] = at(key, j) + at(keyExpansion.data, (head * latentSize + i) * nopeSize + j) * at(compressed, i);
        }
      }
      return joined([key, rotated]);
    });
    return { keys, values };
  });
  const seenBy = mixer.sharesIndexer === true ? last.positions : seenPositions(mixer, xs, weights, shape);
  if (mixer.indexer !== undefined) last.positions = seenBy;
  return xs.map((x, position) => {
    const low = mixer.queryRank === 0 ? x : multiply(weights('queryLow'), x);
    const input = mixer.queryRank === 0 ? low : rmsNorm(low, normEpsilon, weights('queryLowNorm').data);
    const factor = queryFactor(position, shape);
    const queries = multiply(weights('query'), input);
    const outputs = heads(queries, mixer.heads).map((query, head) => {
      const turned = rotate(query.slice(nopeSize), position, mixer.rotary, shape);
      const seen = (seenBy[position] ?? []).flatMap((one) => rows[one] ?? []);
      const none = new Float64Array(valueSize);
      return look(
        joined([query.slice(0, nopeSize), turned]).map((value) => value * factor),
        seen.map(({ keys }) => keys[head] ?? none),
        seen.map(({ values }) => values[head] ?? none),
        mixer.scoreScale,
        mixer.sinks === true ? at(weights('sinks').data, head) : -Infinity,
      );
    });
    const values = joined(outputs);
    if (mixer.outputGate !== true) return multiply(weights('mixerOutput'), values);
    const gates = multiply(weights('outputGate'), x);
    return multiply(
      weights('mixerOutput'),
      values.map((value, index) => value * sigmoid(at(gates, index))),
    );
  });
}

/** Each channel's last `taps` values, weighed. */
function convolve(rows: readonly Vector[], { rows: taps, columns, data }: Matrix): Vector[] {
  return rows.map((_, position) =>
    Float64Array.from({ length: columns }, (_unused, channel) => {
      let sum = 0;
      for (let tap = 0; tap < taps; tap += 1) {
        sum += at(data, tap * columns + channel) * (rows[position - taps + 1 + tap]?.[channel] ?? 0);
      }
      return sum;
    }),
  );
}

/** Factors of each value head's state at a position, one for each channel of its key. */
function deltaDecays(mixer: DeltaMixer, x: Vector, weights: Weights): Vector[] {
  const { valueHeads, keyDim, decayWidth, decayFloor, lowRank } = mixer;
  const low = lowRank === undefined ? x : multiply(weights('deltaDecayLow'), x);
  const steps = add(multiply(weights('deltaDecay'), low), weights('decayBias').data);
  return heads(steps, valueHeads).map((ofHead, head) => {
    const rate = Math.exp(at(weights('decayLog').data, head));
    return Float64Array.from({ length: keyDim }, (_, channel) => {
      const step = at(ofHead, decayWidth === 'channel' ? channel : 0);
      return Math.exp(
        decayFloor === undefined ? -rate * Math.log1p(Math.exp(step)) : decayFloor * sigmoid(rate * step),
      );
    });
  });
}

function delta(mixer: DeltaMixer, xs: readonly Vector[], weights: Weights): Vector[] {
  const { keyHeads, valueHeads, keyDim, valueDim } = mixer;
  const inputs = (['deltaQuery', 'deltaKey', 'deltaValue'] as const).map((role) =>
    xs.map((x) => multiply(weights(role), x)),
  );
  const together = (rows: readonly Vector[][]): Vector[] =>
    xs.map((_, position) => joined(rows.map((part) => part[position] ?? new Float64Array())));
  const convolved = mixer.separateConvolutions
    ? together(
        (['queryConvolution', 'keyConvolution', 'valueConvolution'] as const).map((role, part) =>
          convolve(inputs[part] ?? [], weights(role)),
        ),
      )
    : convolve(together(inputs), weights('convolution'));
  const mixed = convolved.map((row) => row.map((value) => value * sigmoid(value)));
  const states = Array.from({ length: valueHeads }, () => new Float64Array(keyDim * valueDim));
  const unit = (x: Vector): Vector => {
    const root = Math.sqrt(x.reduce((sum, value) => sum + value * value, 0) + 1e-6);
    return x.map((value) => value / root);
  };
  return xs.map((x, position) => {
    const row = mixed[position] ?? new Float64Array();
    const queries = heads(row.slice(0, keyHeads * keyDim), keyHeads).map(unit);
    const keys = heads(row.slice(keyHeads * keyDim, 2 * keyHeads * keyDim), keyHeads).map(unit);
    const values = heads(row.slice(2 * keyHeads * keyDim), valueHeads);
    const [beta, decays] = [multiply(weights('deltaBeta'), x), deltaDecays(mixer, x, weights)];
    const low = mixer.lowRank === undefined ? x : multiply(weights('deltaGateLow'), x);
    const gates = heads(multiply(weights('deltaGate'), low), valueHeads);
    const outputs = values.map((value, head) => {
      const shared = Math.floor(head / (valueHeads / keyHeads));
      const state = states[head] ?? new Float64Array();
      const output = new Float64Array(valueDim);
      for (let j = 0; j < valueDim; j += 1) {
        let known = 0;
        for (let i = 0; i < keyDim; i += 1) {
          state[i * valueDim + j] = at(state, i * valueDim + j) * at(decays[head] ?? [], i);
          known += at(state, i * valueDim + j) * at(keys[shared] ?? [], i);
        }
        const change = (at(value, j) - known) * sigmoid(at(beta, head));
        for (let i = 0; i < keyDim; i += 1) {
          state[i * valueDim + j] = at(state, i * valueDim + j) + at(keys[shared] ?? [], i) * change;
          output[j] = at(output, j) + (at(state, i * valueDim + j) * at(queries[shared] ?? [], i)) / Math.sqrt(keyDim);
        }
      }
      const gate = gates[head] ?? output;
      return rmsNorm(output, mixer.normEpsilon, weights('deltaNorm').data).map(
        (normed, index) => normed * (mixer.gateFunction === 'sigmoid' ? 1 : at(gate, index)) * sigmoid(at(gate, index)),
      );
    });
    return multiply(weights('mixerOutput'), joined(outputs));
  });
}

/** transformers' torch_forward of NemotronHMamba2Mixer and GraniteMoeHybridMambaLayer, one position after the other. */
function stateSpace(mixer: StateSpaceMixer, xs: readonly Vector[], weights: Weights): Vector[] {
  const { heads: count, groups, headDim, stateSize, normGroups } = mixer;
  const [inner, each] = [count * headDim, groups * stateSize];
  const inputs = xs.map((x) => multiply(weights('stateSpaceInput'), x));
  const mixed = convolve(inputs, weights('convolution')).map((row) => {
    const biased = mixer.convolutionBias ? add(row, weights('convolutionBias').data) : row;
    return biased.map((value) => value * sigmoid(value));
  });
  const states = Array.from({ length: count }, () => new Float64Array(headDim * stateSize));
  return xs.map((x, position) => {
    const row = mixed[position] ?? new Float64Array();
    const bs = heads(row.slice(inner, inner + each), groups);
    const cs = heads(row.slice(inner + each, inner + 2 * each), groups);
    const steps = inputs[position]?.slice(inner + 2 * each) ?? row;
    const outputs = heads(row.slice(0, inner), count).map((values, head) => {
      const [b, c] = [bs, cs].map((all) => all[Math.floor(head / (count / groups))] ?? row);
      const state = states[head] ?? row;
      const step = Math.log1p(Math.exp(at(steps, head) + at(weights('decayBias').data, head)));
      const forget = Math.exp(-Math.exp(at(weights('decayLog').data, head)) * step);
      return values.map((value, j) => {
        let sum = at(weights('stateSpaceSkip').data, head) * value;
        for (let i = 0; i < stateSize; i += 1) {
          const place = j * stateSize + i;
          state[place] = at(state, place) * forget + step * value * at(b ?? row, i);
          sum += at(state, place) * at(c ?? row, i);
        }
        return sum;
      });
    });
    const gate = multiply(weights('stateSpaceGate'), x);
    const gated = joined(outputs).map((value, index) => value * at(gate, index) * sigmoid(at(gate, index)));
    const normed = joined(heads(gated, normGroups).map((part) => rmsNorm(part, mixer.normEpsilon, null)));
    const norm = weights('stateSpaceNorm').data;
    return multiply(
      weights('mixerOutput'),
      normed.map((value, index) => value * at(norm, index)),
    );
  });
}

function shortConvolution(xs: readonly Vector[], weights: Weights): Vector[] {
  const parts = xs.map((x) => heads(multiply(weights('convolutionInput'), x), 3));
  const products = parts.map(([b, , x]) => (b ?? []).map((value, index) => value * at(x ?? [], index)) as Vector);
  return convolve(products, weights('convolution')).map((row, position) => {
    const gate = parts[position]?.[1] ?? row;
    return multiply(
      weights('mixerOutput'),
      row.map((value, index) => value * at(gate, index)),
    );
  });
}

export function plainMixer(
  mixer: MixerShape,
  xs: readonly Vector[],
  weights: Weights,
  shape: ModelShape,
  last: LastChoice,
): Vector[] {
  switch (mixer.kind) {
    case 'attention':
      return attention(mixer, xs, weights, shape);
    case 'latent':
      return latent(mixer, xs, weights, shape, last);
    case 'delta':
      return delta(mixer, xs, weights);
    case 'convolution':
      return shortConvolution(xs, weights);
    case 'state-space':
      return stateSpace(mixer, xs, weights);
    case 'pooled':
      return pooled(mixer, xs, weights, shape);
  }
}
