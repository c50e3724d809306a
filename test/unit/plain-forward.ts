/** Any model in plain FP64, all positions at once. This slow and simple code is the reference for the native core. */
import type { DenseRole } from '../../shared/model/dense-roles.js';
import {
  expertGlu,
  type GluShape,
  type LayerShape,
  type ModelShape,
  type RouterShape,
} from '../../shared/model/model-shape.js';
import type { ModelSource } from '../../shared/model/tensor-source.js';
import {
  add,
  at,
  type LastChoice,
  multiply,
  plainMixer,
  rmsNorm,
  sigmoid,
  type Vector,
  type Weights,
} from './plain-mixers.js';
import { beginRows, endRows, type Rows, type Taken, takeRows } from './plain-streams.js';
import { type Matrix, plainValues } from './plain-values.js';

/** The rows that a layer's mixer saw, and what it made of them. */
interface Mixed {
  inputs: readonly Vector[];
  outputs: readonly Vector[];
}

interface Choice {
  expert: number;
  weight: number;
}

interface PlainExpert {
  gate: Matrix;
  up: Matrix;
  down: Matrix;
  biases: ArrayLike<number> | null;
}

export class PlainForward {
  private readonly shape: ModelShape;
  private readonly dense = new Map<string, Matrix>();
  private readonly experts = new Map<string, PlainExpert>();
  private tokenIds: readonly number[] = [];

  constructor(private readonly source: Pick<ModelSource, 'shape' | 'tiedEmbeddings' | 'dense' | 'expert'>) {
    this.shape = source.shape;
  }

  /** Logits after each token. `states`: beside the tokens of a draft head. */
  run(tokenIds: readonly number[], states: readonly Vector[] = []): Vector[] {
    return this.states(tokenIds, states).map((row) => this.logits(row));
  }

  /** The last hidden states, before the final norm. */
  states(tokenIds: readonly number[], states: readonly Vector[] = []): Vector[] {
    const { hiddenSize, embeddingScale } = this.shape;
    const embedding = this.weights(0)('embedding').data;
    this.tokenIds = tokenIds;
    let embedded: Vector[] = tokenIds.map((id) =>
      embedding.slice(id * hiddenSize, (id + 1) * hiddenSize).map((value) => value * embeddingScale),
    );
    if (this.shape.draftHead !== undefined) embedded = embedded.map((row, at) => this.draftRow(row, states[at]));
    let hidden = embedded.map((row) => beginRows(row, this.shape));
    let expertLayer = 0;
    const last: LastChoice = { positions: [] };
    for (const [number, layer] of this.shape.layers.entries()) {
      const taken = hidden.map((rows) => takeRows(rows, 'mixer', this.shape, this.weights(number)));
      const inputs = taken.map(({ input }) => input);
      hidden = this.layer(layer, number, expertLayer, taken, this.mix(layer, number, inputs, last));
      if (layer.routed !== null) expertLayer += 1;
    }
    return hidden.map((rows) => endRows(rows, this.shape, this.weights(0)));
  }

  /** A state as the model's own final norm makes it. */
  finalNorm(row: Vector): Vector {
    return this.norm(row, 'finalNorm', 'finalNormBias', this.weights(0));
  }

  /** M [norm(Emb(t)) ; norm(h)], in the order of the families' checkpoints (vLLM's deepseek_mtp.py, qwen3_next_mtp.py). */
  private draftRow(embedding: Vector, state: Vector = new Float64Array(0)): Vector {
    const weights = this.weights(0);
    const { normEpsilon } = this.shape;
    const token = rmsNorm(embedding, normEpsilon, weights('tokenNorm').data);
    const other = rmsNorm(state, normEpsilon, weights('stateNorm').data);
    return multiply(weights('draftInput'), Float64Array.from([...token, ...other]));
  }

  private mix(layer: LayerShape, number: number, hidden: readonly Vector[], last: LastChoice): Mixed {
    const weights = this.weights(number);
    const inputNorms = layer.inputNorms ?? true;
    const inputs = hidden.map((row) => (inputNorms ? this.norm(row, 'mixerNorm', 'mixerNormBias', weights) : row));
    return { inputs, outputs: plainMixer(layer.mixer, inputs, weights, this.shape, last) };
  }

  private layer(
    layer: LayerShape,
    number: number,
    expertLayer: number,
    taken: readonly Taken[],
    { inputs, outputs }: Mixed,
  ): Rows[] {
    const inputNorms = layer.inputNorms ?? true;
    const { normEpsilon, residualScale } = this.shape;
    const weights = this.weights(number);
    const normed = (row: Vector, present: boolean, role: DenseRole): Vector =>
      present ? rmsNorm(row, normEpsilon, weights(role).data) : row;
    return taken.map(({ input: before, give }, position) => {
      const branch = normed(outputs[position] ?? before, layer.mixerOutputNorm, 'mixerOutputNorm');
      const rows = give(branch.map((value) => value * residualScale));
      if (layer.routed === null && layer.always === null) return rows;
      const next = takeRows(rows, 'feedForward', this.shape, weights);
      const row = next.input;
      const own = layer.parallel === true ? (inputs[position] ?? row) : row;
      const isNormed = inputNorms && layer.parallel !== true;
      const input = isNormed ? this.norm(own, 'feedForwardNorm', 'feedForwardNormBias', weights) : own;
      let sum: Vector = new Float64Array(row.length);
      if (layer.routed !== null) {
        const routerInput = layer.routerNorm ? normed(row, true, 'routerNorm') : input;
        const choices = this.route(layer.routed, routerInput, weights, this.tokenIds[position] ?? -1);
        const routed = layer.routedNorm ? normed(row, true, 'routedNorm') : input;
        const isLatent = this.shape.expertHiddenSize !== undefined;
        const expertInput = isLatent ? multiply(weights('expertInput'), routed) : routed;
        let together: Vector = new Float64Array(expertInput.length);
        for (const { expert, weight } of choices) {
          const output = this.expert(expertGlu(this.shape, layer), expertLayer, expert, expertInput);
          together = together.map((value, index) => value + weight * at(output, index));
        }
        sum = isLatent ? multiply(weights('expertOutput'), together) : together;
        sum = normed(sum, layer.routedOutputNorm, 'routedOutputNorm');
      }
      if (layer.always !== null) {
        const { glu, gated } = layer.always;
        const matrices = { gate: weights('alwaysGate'), up: weights('alwaysUp'), down: weights('alwaysDown') };
        let output = applyGlu(glu, { ...matrices, biases: null }, input);
        const open = gated ? sigmoid(at(multiply(weights('alwaysWeight'), input), 0)) : 1;
        output = normed(
          output.map((value) => value * open),
          layer.alwaysOutputNorm,
          'alwaysOutputNorm',
        );
        sum = add(sum, output);
      }
      sum = normed(sum, layer.feedForwardOutputNorm, 'feedForwardOutputNorm');
      const scale = layer.layerScale ? at(weights('layerScale').data, 0) : 1;
      const branchScale = residualScale * (layer.feedForwardScale ?? 1);
      const behind = next.give(sum.map((value) => value * branchScale));
      return behind.map((one) => one.map((value) => value * scale));
    });
  }

  private norm(row: Vector, role: DenseRole, bias: DenseRole, weights: Weights): Vector {
    const { norm, normEpsilon } = this.shape;
    if (norm === 'rms') return rmsNorm(row, normEpsilon, weights(role).data);
    const mean = row.reduce((sum, value) => sum + value, 0) / row.length;
    const centred = row.map((value) => value - mean);
    const normed = rmsNorm(centred, normEpsilon, weights(role).data);
    return norm === 'layer' ? add(normed, weights(bias).data) : normed;
  }

  private route(router: RouterShape, input: Vector, weights: Weights, token: number): Choice[] {
    let logits = multiply(weights('router'), input);
    if (router.bias) logits = add(logits, weights('routerBias').data);
    const cap = router.logitCap ?? 0;
    if (cap > 0) logits = logits.map((logit) => cap * Math.tanh(logit / cap));
    if (router.score === 'sparsemixer') return sparseMixer(logits, router.jitter);
    const highest = Math.max(...logits);
    const total = logits.reduce((sum, logit) => sum + Math.exp(logit - highest), 0);
    const scores = logits.map((logit) => {
      if (router.score === 'sqrt-softplus') return Math.sqrt(Math.log1p(Math.exp(logit)));
      return router.score === 'sigmoid' ? sigmoid(logit) : Math.exp(logit - highest) / total;
    });
    const choice = router.choiceBias ? add(scores, weights('choiceBias').data) : scores;
    const open = openGroups(router, choice);
    const perGroup = choice.length / router.groups;
    const { expertsPerToken: count } = this.shape;
    const ofToken = (): number[] =>
      [...weights('tokenExperts').data.slice(token * count, (token + 1) * count)].map(integerOfBits);
    const byScore = [...choice.keys()]
      .filter((expert) => open.has(Math.floor(expert / perGroup)))
      .sort((a, b) => at(choice, b) - at(choice, a) || a - b)
      .slice(0, count);
    const ranked = router.byToken === true ? ofToken() : byScore;
    const sum = ranked.reduce((partial, expert) => partial + at(scores, expert), 0);
    const divisor = router.normalize ? Math.max(sum + router.sumEpsilon, router.sumFloor) : 1;
    return ranked.map((expert) => {
      const own = router.expertScale ? at(weights('expertScale').data, expert) : 1;
      return { expert, weight: (at(scores, expert) / divisor) * router.scale * own };
    });
  }

  private expert(glu: GluShape, layer: number, expert: number, input: Vector): Vector {
    const key = `${layer} ${expert}`;
    let found = this.experts.get(key);
    if (found === undefined) {
      const { gate, up, down, biases } = this.source.expert(layer, expert);
      found = { gate: plainValues(gate), up: plainValues(up), down: plainValues(down), biases };
      this.experts.set(key, found);
    }
    return applyGlu(glu, found, input);
  }

  private logits(row: Vector): Vector {
    const { lmHeadBias, logitDivisor, logitCap } = this.shape;
    const weights = this.weights(0);
    const normed = this.finalNorm(row);
    let logits = multiply(weights(this.source.tiedEmbeddings ? 'embedding' : 'lmHead'), normed);
    if (lmHeadBias) logits = add(logits, weights('lmHeadBias').data);
    logits = logits.map((logit) => logit / logitDivisor);
    return logitCap > 0 ? logits.map((logit) => logitCap * Math.tanh(logit / logitCap)) : logits;
  }

  private weights(layer: number): Weights {
    return (role) => {
      const key = `${role} ${layer}`;
      const found = this.dense.get(key) ?? plainValues(this.source.dense(role, layer));
      this.dense.set(key, found);
      return found;
    };
  }
}

/** The whole number whose bits were read as FP32. */
function integerOfBits(value: number): number {
  const word = new DataView(new ArrayBuffer(4));
  word.setFloat32(0, value);
  return word.getInt32(0);
}

function openGroups({ groups, groupsKept, groupScore }: RouterShape, choice: Vector): Set<number> {
  const size = choice.length / groups;
  const scores = Array.from({ length: groups }, (_, group) => {
    const best = [...choice.slice(group * size, (group + 1) * size)].sort((a, b) => b - a);
    return groupScore === 'best' ? at(best, 0) : at(best, 0) + (best[1] ?? 0);
  });
  const ranked = [...scores.keys()].sort((a, b) => at(scores, b) - at(scores, a) || a - b);
  return new Set(ranked.slice(0, groupsKept));
}

/** Phi-3.5-MoE's: the best expert, and the best of the others, each weighed among those that are close to it. */
function sparseMixer(logits: Vector, jitter: number): Choice[] {
  const chosen: Choice[] = [];
  for (let round = 0; round < 2; round += 1) {
    const left = [...logits.keys()].filter((expert) => expert !== chosen[0]?.expert);
    const highest = Math.max(...left.map((expert) => at(logits, expert)));
    const close = left.filter((expert) => {
      const logit = at(logits, expert);
      return (highest - logit) / Math.max(Math.abs(logit), highest) <= 2 * jitter;
    });
    const total = close.reduce((sum, expert) => sum + Math.exp(at(logits, expert) - highest), 0);
    const expert = left.find((candidate) => at(logits, candidate) === highest) ?? 0;
    chosen.push({ expert, weight: 1 / total });
  }
  return chosen;
}

function applyGlu(glu: GluShape, { gate, up, down, biases }: PlainExpert, input: Vector): Vector {
  const { intermediateSize: size, limit, alpha, upOffset } = glu;
  const highest = limit > 0 ? limit : Infinity;
  const bias = (index: number): number => (biases === null ? 0 : at(biases, index));
  const [gates, ups] = [multiply(gate, input), multiply(up, input)];
  if (glu.activation === 'relu-squared') {
    const rows = Float64Array.from([...gates, ...ups]);
    return multiply(
      down,
      rows.map((value) => Math.max(0, value) ** 2),
    );
  }
  const inner = gates.map((value, index) => {
    const [g, u] = [value + bias(index), at(ups, index) + bias(size + index)];
    const [before, after] = glu.limitOn === 'activation' ? [Infinity, highest] : [highest, Infinity];
    const limitedGate = Math.min(g, before);
    const limitedUp = Math.min(Math.max(u, -highest), highest);
    if (glu.activation === 'sigmoid') {
      return Math.min(limitedGate * sigmoid(alpha * limitedGate), after) * (limitedUp + upOffset);
    }
    const curve = Math.sqrt(2 / Math.PI) * (limitedGate + 0.044715 * limitedGate ** 3);
    return Math.min(0.5 * limitedGate * (1 + Math.tanh(curve)), after) * limitedUp;
  });
  return multiply(down, inner).map((value, index) => value + bias(2 * size + index));
}
