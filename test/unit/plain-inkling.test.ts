/** Inkling (text) in plain FP64. No family reads it yet: this is the formula, for who adds its operators. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { packageRoot } from '../../shared/base/files/package-root.js';
import { add, at, heads, joined, multiply, rmsNorm, sigmoid, type Vector } from './plain-mixers.js';
import type { Matrix } from './plain-values.js';

const FOLDER = join(packageRoot(), 'test', 'fixtures', 'unread', 'inkling');
/** transformers computes in FP32. */
const TOLERANCE = 2e-4;

interface Config {
  local_layer_ids: number[];
  log_scaling_alpha: number;
  log_scaling_n_floor: number;
  logits_mup_width_multiplier: number;
  n_routed_experts: number;
  n_shared_experts: number;
  num_attention_heads: number;
  num_experts_per_tok: number;
  num_hidden_layers: number;
  num_key_value_heads: number;
  rms_norm_eps: number;
  route_scale: number;
  sliding_window_size: number;
  swa_num_attention_heads: number;
  swa_num_key_value_heads: number;
  unpadded_vocab_size: number;
}

interface Reference {
  prompt_token_ids: number[];
  token_ids: number[];
  logprobs: number[];
  first_logits: number[];
  experts: number[][][];
}

/** Tensors by name; all dimensions but the last count as rows. */
function readTensors(path: string): (name: string) => Matrix {
  const bytes = readFileSync(path);
  const headerBytes = Number(bytes.readBigUInt64LE(0));
  const header = JSON.parse(bytes.toString('utf8', 8, 8 + headerBytes)) as Record<
    string,
    { dtype: string; shape: number[]; data_offsets: [number, number] }
  >;
  return (name) => {
    const tensor = header[name];
    assert.ok(tensor !== undefined, name);
    const first = 8 + headerBytes + tensor.data_offsets[0];
    const columns = tensor.shape.at(-1) ?? 1;
    const count = tensor.shape.reduce((product, size) => product * size, 1);
    const word = new DataView(new ArrayBuffer(4));
    const data = Float64Array.from({ length: count }, (_, index) => {
      if (tensor.dtype === 'F32') return bytes.readFloatLE(first + 4 * index);
      word.setUint16(0, bytes.readUInt16LE(first + 2 * index));
      return word.getFloat32(0);
    });
    return { rows: count / columns, columns, data };
  };
}

/** x + a causal convolution of x, channel by channel. */
function convolved(rows: readonly Vector[], { columns: taps, data }: Matrix): Vector[] {
  return rows.map((own, position) =>
    own.map((value, channel) => {
      let sum = value;
      for (let tap = 0; tap < taps; tap += 1) {
        sum += at(data, channel * taps + tap) * (rows[position - taps + 1 + tap]?.[channel] ?? 0);
      }
      return sum;
    }),
  );
}

/** One matrix of several that stand one behind another. */
function part({ columns, data }: Matrix, rows: number, index: number): Matrix {
  return { rows, columns, data: data.subarray(index * rows * columns, (index + 1) * rows * columns) };
}

/** Rows of the first matrix alternate: gate, up. */
function swiglu(gateUp: Matrix, down: Matrix, x: Vector): Vector {
  const both = multiply(gateUp, x);
  const inner = Float64Array.from({ length: both.length / 2 }, (_, index) => {
    const gate = at(both, 2 * index);
    return gate * sigmoid(gate) * at(both, 2 * index + 1);
  });
  return multiply(down, inner);
}

class PlainInkling {
  private readonly config: Config;
  private readonly tensor: (name: string) => Matrix;
  private readonly known = new Map<string, Matrix>();
  /** Chosen experts, by expert layer, then position. */
  readonly experts: number[][][] = [];

  constructor(folder: string) {
    const text = readFileSync(join(folder, 'config.json'), 'utf8');
    this.config = (JSON.parse(text) as { text_config: Config }).text_config;
    const read = readTensors(join(folder, 'model.safetensors'));
    this.tensor = (name) => {
      const found = this.known.get(name) ?? read(`model.llm.${name}`);
      this.known.set(name, found);
      return found;
    };
  }

  /** Logits behind each token. */
  run(tokens: readonly number[]): Vector[] {
    const { num_hidden_layers: layers, logits_mup_width_multiplier: width, unpadded_vocab_size: size } = this.config;
    this.experts.length = 0;
    const embedding = this.tensor('embed.weight');
    let hidden = tokens.map((token) => this.norm(part(embedding, 1, token).data, 'embed_norm'));
    for (let layer = 0; layer < layers; layer += 1) {
      const name = `layers.${layer}`;
      const mixed = this.attention(
        hidden.map((row) => this.norm(row, `${name}.attn_norm`)),
        layer,
      );
      const behind = convolved(mixed, this.tensor(`${name}.attn_sconv.weight`));
      hidden = hidden.map((row, position) => add(row, behind[position] ?? row));
      const inputs = hidden.map((row) => this.norm(row, `${name}.mlp_norm`));
      const outputs = convolved(this.networks(inputs, layer), this.tensor(`${name}.mlp_sconv.weight`));
      hidden = hidden.map((row, position) => add(row, outputs[position] ?? row));
    }
    return hidden.map((row) =>
      multiply(
        this.tensor('unembed.weight'),
        this.norm(row, 'norm').map((value) => value / width),
      ).slice(0, size),
    );
  }

  private norm(x: Vector, name: string): Vector {
    return rmsNorm(x, this.config.rms_norm_eps, this.tensor(`${name}.weight`).data);
  }

  /** Scores are query . key / dimensions, plus what a row has learned of the distance; nothing is rotated. */
  private attention(xs: readonly Vector[], layer: number): Vector[] {
    const { config } = this;
    const isLocal = config.local_layer_ids.includes(layer);
    const count = isLocal ? config.swa_num_attention_heads : config.num_attention_heads;
    const keyHeads = isLocal ? config.swa_num_key_value_heads : config.num_key_value_heads;
    const name = `layers.${layer}.attn`;
    const project = (matrix: string): Vector[] => xs.map((x) => multiply(this.tensor(`${name}.${matrix}.weight`), x));
    const keys = convolved(project('wk_dv'), this.tensor(`${name}.k_sconv.weight`)).map((row) =>
      heads(row, keyHeads).map((head) => this.norm(head, `${name}.k_norm`)),
    );
    const values = convolved(project('wv_dv'), this.tensor(`${name}.v_sconv.weight`)).map((row) =>
      heads(row, keyHeads),
    );
    const distances = this.tensor(`${name}.rel_logits_proj.proj`);
    const [queries, relations] = [project('wq_du'), project('wr_du')];
    return xs.map((x, position) => {
      const far = Math.log(Math.max(1, (position + 1) / config.log_scaling_n_floor));
      const factor = isLocal ? 1 : 1 + config.log_scaling_alpha * far;
      const first = isLocal ? Math.max(0, position - config.sliding_window_size + 1) : 0;
      const relation = heads(relations[position] ?? x, count);
      const outputs = heads(queries[position] ?? x, count).map((plain, head) => {
        const query = this.norm(plain, `${name}.q_norm`).map((value) => value * factor);
        const shared = Math.floor(head / (count / keyHeads));
        const scores = keys.slice(first, position + 1).map((row, index) => {
          const distance = position - first - index;
          const near = distance < distances.columns;
          const learned = (relation[head] ?? x).map((value, dimension) =>
            near ? value * factor * at(distances.data, dimension * distances.columns + distance) : 0,
          );
          const dot = query.reduce((sum, value, dimension) => sum + value * at(row[shared] ?? x, dimension), 0);
          return dot / query.length + learned.reduce((sum, value) => sum + value, 0);
        });
        const highest = Math.max(...scores);
        const weights = scores.map((score) => Math.exp(score - highest));
        const total = weights.reduce((sum, weight) => sum + weight, 0);
        return Float64Array.from({ length: query.length }, (_, dimension) =>
          weights.reduce(
            (sum, weight, index) => sum + (weight / total) * at(values[first + index]?.[shared] ?? x, dimension),
            0,
          ),
        );
      });
      return multiply(this.tensor(`${name}.wo_ud.weight`), joined(outputs));
    });
  }

  private networks(xs: readonly Vector[], layer: number): Vector[] {
    const name = `layers.${layer}.mlp`;
    if (layer === 0) {
      const scale = at(this.tensor(`${name}.global_scale`).data, 0);
      const [gateUp, down] = [this.tensor(`${name}.w13_dn.weight`), this.tensor(`${name}.w2_md.weight`)];
      return xs.map((x) => swiglu(gateUp, down, x).map((value) => value * scale));
    }
    const chosen: number[][] = [];
    this.experts.push(chosen);
    return xs.map((x) => {
      const weights = this.route(x, name);
      chosen.push([...weights.keys()].filter((expert) => expert < this.config.n_routed_experts));
      let sum: Vector = new Float64Array(x.length);
      for (const [expert, weight] of weights) {
        const output = this.expert(name, expert, x);
        sum = sum.map((value, index) => value + weight * at(output, index));
      }
      return sum;
    });
  }

  /** Weights of the chosen experts, and of the shared ones, whose rows of the router stand behind the others'. */
  private route(x: Vector, name: string): Map<number, number> {
    const { n_routed_experts: routed, n_shared_experts: shared, num_experts_per_tok: count } = this.config;
    const logits = multiply(this.tensor(`${name}.gate.weight`), x);
    const bias = this.tensor(`${name}.gate.bias`).data;
    const score = (expert: number): number => sigmoid(at(logits, expert)) + at(bias, expert);
    const best = [...Array(routed).keys()].sort((a, b) => score(b) - score(a) || a - b).slice(0, count);
    const seen = [...best, ...Array.from({ length: shared }, (_, index) => routed + index)];
    // A softmax over the logarithms of the sigmoids.
    const total = seen.reduce((sum, expert) => sum + sigmoid(at(logits, expert)), 0);
    const scale = this.config.route_scale * at(this.tensor(`${name}.gate.global_scale`).data, 0);
    return new Map(seen.map((expert) => [expert, (scale * sigmoid(at(logits, expert))) / total]));
  }

  private expert(name: string, expert: number, x: Vector): Vector {
    const { n_routed_experts: routed, n_shared_experts: shared } = this.config;
    const isRouted = expert < routed;
    const [folder, count] = isRouted ? ['experts.', routed] : ['shared_experts.shared_', shared];
    const own = (matrix: string): Matrix => {
      const all = this.tensor(`${name}.${folder}${matrix}_weight`);
      return part(all, all.rows / count, isRouted ? expert : expert - routed);
    };
    return swiglu(own('w13'), own('w2'), x);
  }
}

function logSumExp(logits: Vector): number {
  const highest = Math.max(...logits);
  return highest + Math.log(logits.reduce((sum, logit) => sum + Math.exp(logit - highest), 0));
}

describe('the formula of Inkling in FP64', () => {
  it('gives the logits, tokens, log-probabilities and experts of transformers', () => {
    const text = readFileSync(join(FOLDER, 'answers.json'), 'utf8');
    const { references } = JSON.parse(text) as { references: Reference[] };
    const plain = new PlainInkling(FOLDER);
    for (const { prompt_token_ids: prompt, token_ids: tokens, logprobs, first_logits: first, experts } of references) {
      const rows = plain.run([...prompt, ...tokens.slice(0, -1)]).slice(prompt.length - 1);
      const off = first.map((logit, id) => Math.abs(logit - at(rows[0] ?? [], id)));
      assert.ok(Math.max(...off) < TOLERANCE, `the first logits are up to ${Math.max(...off)} off`);
      assert.deepEqual(
        rows.map((row) => row.indexOf(Math.max(...row))),
        tokens,
      );
      for (const [index, row] of rows.entries()) {
        const error = Math.abs(Math.max(...row) - logSumExp(row) - (logprobs[index] ?? NaN));
        assert.ok(error < TOLERANCE, `the log-probability of token ${index} is ${error} off`);
      }
      const sorted = (layers: readonly number[][][]): number[][][] =>
        layers.map((positions) => positions.map((chosen) => [...chosen].sort((a, b) => a - b)));
      assert.deepEqual(sorted(plain.experts), sorted(experts));
    }
  });
});
