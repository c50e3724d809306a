import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { openTensor } from '../../native/index.js';
import { openCheckpoint, type Checkpoint } from '../../packs/checkpoint/checkpoint.js';
import { openGguf } from '../../packs/gguf/open-gguf.js';
import { packageRoot } from '../../shared/base/files/package-root.js';
import type { TensorSource } from '../../shared/model/tensor-source.js';
import { isOdmoe } from './gguf-refusals.js';
import { sentencePieceKeys } from './gguf-tokenizer-files.js';
import { ggufBytes, type WrittenKey, type WrittenTensor } from './gguf-writer.js';

const fixture = join(packageRoot(), 'test', 'fixtures', 'gemma4moe');
const PREFIX = 'model.language_model.';

/** Names behind "layers.N." that the converter changes to names behind "blk.N." (llama.cpp, gguf-py/gguf/tensor_mapping.py). */
const NAMES: Readonly<Record<string, string>> = {
  'experts.down_proj': 'ffn_down_exps.weight',
  'experts.gate_up_proj': 'ffn_gate_up_exps.weight',
  'input_layernorm.weight': 'attn_norm.weight',
  layer_scalar: 'layer_output_scale.weight',
  'mlp.down_proj.weight': 'ffn_down.weight',
  'mlp.gate_proj.weight': 'ffn_gate.weight',
  'mlp.up_proj.weight': 'ffn_up.weight',
  'post_attention_layernorm.weight': 'post_attention_norm.weight',
  'post_feedforward_layernorm.weight': 'post_ffw_norm.weight',
  'post_feedforward_layernorm_1.weight': 'post_ffw_norm_1.weight',
  'post_feedforward_layernorm_2.weight': 'post_ffw_norm_2.weight',
  'pre_feedforward_layernorm.weight': 'ffn_norm.weight',
  'pre_feedforward_layernorm_2.weight': 'pre_ffw_norm_2.weight',
  'router.per_expert_scale': 'ffn_down_exps.scale',
  'router.proj.weight': 'ffn_gate_inp.weight',
  'router.scale': 'ffn_gate_inp.scale',
  'self_attn.k_norm.weight': 'attn_k_norm.weight',
  'self_attn.k_proj.weight': 'attn_k.weight',
  'self_attn.o_proj.weight': 'attn_output.weight',
  'self_attn.q_norm.weight': 'attn_q_norm.weight',
  'self_attn.q_proj.weight': 'attn_q.weight',
  'self_attn.v_proj.weight': 'attn_v.weight',
};

function converted(name: string): string {
  if (name === 'embed_tokens.weight') return 'token_embd.weight';
  if (name === 'norm.weight') return 'output_norm.weight';
  const [, layer = '', inLayer = ''] = /^layers\.(\d+)\.(.*)$/.exec(name) ?? [];
  return `blk.${layer}.${NAMES[inLayer] ?? assert.fail(name)}`;
}

/** FP32 bytes of BF16 values. */
function widened(bytes: Uint8Array): Buffer {
  const wide = Buffer.alloc(bytes.length * 2);
  for (let at = 0; at < bytes.length; at += 2) wide.set(bytes.subarray(at, at + 2), 2 * at + 2);
  return wide;
}

/** The rope's factors for a head of 32 dimensions, a quarter of which rotates. */
const FACTORS: readonly number[] = Array.from({ length: 16 }, (_, pair) => (pair < 4 ? 1 : 1e30));

function ropeTensor(factors: readonly number[]): WrittenTensor {
  const data = new Uint8Array(new Float32Array(factors).buffer);
  return { name: 'rope_freqs.weight', type: 'F32', dimensions: [factors.length], data };
}

/** The text tensors of the fixture, as the converter writes them: vectors and the router in FP32. */
function fixtureTensors(): WrittenTensor[] {
  const bytes = readFileSync(join(fixture, 'model.safetensors'));
  const start = 8 + Number(bytes.readBigUInt64LE());
  const header = JSON.parse(bytes.toString('utf8', 8, start)) as Record<
    string,
    { shape: number[]; data_offsets: [number, number] }
  >;
  return Object.entries(header).flatMap(([name, entry]) => {
    if (!name.startsWith(PREFIX)) return [];
    const [first, end] = entry.data_offsets;
    const data = bytes.subarray(start + first, start + end);
    const wide = entry.shape.length === 1 || name.includes('router.');
    const written = { name: converted(name.slice(PREFIX.length)), dimensions: entry.shape };
    return [wide ? { ...written, type: 'F32', data: widened(data) } : { ...written, type: 'BF16', data }];
  });
}

const WINDOWS = [true, true, false, true, true, false];

const KEYS: Readonly<Record<string, Omit<WrittenKey, 'name'>>> = {
  block_count: { type: 'u32', value: 6 },
  context_length: { type: 'u32', value: 512 },
  embedding_length: { type: 'u32', value: 64 },
  feed_forward_length: { type: 'u32', value: 52 },
  'attention.head_count': { type: 'u32', value: 4 },
  'attention.head_count_kv': { type: 'i32', value: WINDOWS.map((windowed) => (windowed ? 2 : 1)) },
  'attention.layer_norm_rms_epsilon': { type: 'f32', value: 1e-6 },
  'attention.key_length': { type: 'u32', value: 32 },
  'attention.value_length': { type: 'u32', value: 32 },
  'attention.key_length_swa': { type: 'u32', value: 16 },
  'attention.value_length_swa': { type: 'u32', value: 16 },
  'attention.sliding_window': { type: 'u32', value: 8 },
  'attention.sliding_window_pattern': { type: 'bool', value: WINDOWS },
  'attention.shared_kv_layers': { type: 'u32', value: 0 },
  embedding_length_per_layer_input: { type: 'u32', value: 0 },
  final_logit_softcapping: { type: 'f32', value: 8 },
  'rope.freq_base': { type: 'f32', value: 1e6 },
  'rope.freq_base_swa': { type: 'f32', value: 1e4 },
  'rope.dimension_count': { type: 'u32', value: 32 },
  'rope.dimension_count_swa': { type: 'u32', value: 16 },
  expert_count: { type: 'u32', value: 12 },
  expert_used_count: { type: 'u32', value: 4 },
  expert_feed_forward_length: { type: 'u32', value: 20 },
};

/** Keys of a tokenizer with the fixture's 300 tokens. */
function tokenizerKeys(): WrittenKey[] {
  const more = Array.from({ length: 41 }, (_, index) => ({ token: `piece${index}`, type: 1 }));
  const keys = sentencePieceKeys(
    { model: 'gemma4', pre: undefined, scores: undefined, merges: [], add_bos_token: false },
    more,
  );
  return [...keys].map(([name, value]) => {
    const [first] = typeof value === 'object' ? value : [value];
    const type = typeof first === 'number' ? 'i32' : typeof first === 'boolean' ? 'bool' : 'text';
    return { name, type, value };
  });
}

function keysOf(change: typeof KEYS = {}): WrittenKey[] {
  const own = Object.entries({ ...KEYS, ...change }).map(([name, key]) => ({ name: `gemma4.${name}`, ...key }));
  return [{ name: 'general.architecture', type: 'text', value: 'gemma4' }, ...own, ...tokenizerKeys()];
}

/** FP32 bytes of a tensor's values. */
async function valuesOf(source: TensorSource): Promise<Buffer> {
  const rows = openTensor(source);
  try {
    const [plane = new Uint8Array()] = await rows.read(source.rows);
    return source.split === 'none-bf16' ? widened(plane) : Buffer.from(plane);
  } finally {
    rows.dispose();
  }
}

describe('Gemma-4 as GGUF:', () => {
  let directory: string;
  let tensors: WrittenTensor[];
  let makers: Checkpoint;
  before(async () => {
    directory = mkdtempSync(join(tmpdir(), 'odmoe-gguf-gemma-'));
    tensors = fixtureTensors();
    makers = await openCheckpoint(fixture);
  });
  after(() => rmSync(directory, { recursive: true, force: true }));

  async function open(
    change: typeof KEYS = {},
    written: readonly WrittenTensor[] = [...tensors, ropeTensor(FACTORS)],
  ): Promise<Checkpoint> {
    const path = join(directory, 'model.gguf');
    writeFileSync(path, ggufBytes({ keys: keysOf(change), tensors: written }));
    return openGguf(path);
  }

  it('has the shape that the makers gave it', async () => {
    const model = await open();
    assert.deepEqual(model.shape, makers.shape);
    assert.deepEqual([model.family, model.tiedEmbeddings], [makers.family, makers.tiedEmbeddings]);
    assert.deepEqual(model.leftOut, ['rope_freqs.weight']);
  });

  it('has the values of the makers in all tensors', async () => {
    const model = await open();
    const found = new Map(model.tensors.map(({ place, source }) => [JSON.stringify(place), source]));
    assert.equal(found.size, makers.tensors.length);
    for (const { name, place, source } of makers.tensors) {
      const other = found.get(JSON.stringify(place)) ?? assert.fail(`${name} is missing`);
      assert.ok((await valuesOf(other)).equals(await valuesOf(source)), name);
    }
  });

  it('takes the rotated share of a head from the factors', async () => {
    const all = await open({}, [...tensors, ropeTensor(FACTORS.map(() => 1))]);
    assert.notDeepEqual(all.shape, makers.shape);
    assert.deepEqual({ ...all.shape, ropes: [] }, { ...makers.shape, ropes: [] });
  });

  it('refuses factors of another rope, and a file without them', async () => {
    const odd = FACTORS.map((factor, pair) => (pair === 2 ? 8 : factor));
    await assert.rejects(open({}, [...tensors, ropeTensor(odd)]), isOdmoe('MODEL_UNSUPPORTED', /factor 8,/));
    await assert.rejects(open({}, [...tensors, ropeTensor([1])]), isOdmoe('MODEL_CORRUPT', /1 values, expected 16/));
    await assert.rejects(open({}, tensors), isOdmoe('MODEL_CORRUPT', /rope_freqs\.weight is missing/));
  });

  it('refuses NVFP4 where its scales hide the factors of the experts', async () => {
    const nvfp4 = tensors.map((tensor): WrittenTensor =>
      tensor.name === 'blk.1.ffn_down_exps.weight'
        ? { ...tensor, type: 'NVFP4', dimensions: [12, 64, 64], data: new Uint8Array(12 * 64 * 36) }
        : tensor,
    );
    await assert.rejects(
      open({}, [...nvfp4, ropeTensor(FACTORS)]),
      isOdmoe('MODEL_UNSUPPORTED', /blk\.1\.ffn_down_exps\.weight is NVFP4/),
    );
  });

  for (const [name, key, words] of [
    ['attention.shared_kv_layers', { type: 'u32', value: 2 }, /shared_kv_layers is 2/],
    ['embedding_length_per_layer_input', { type: 'u32', value: 64 }, /per_layer_input is 64/],
    ['attention.value_length_swa', { type: 'u32', value: 8 }, /value_length_swa is 8/],
    ['rope.dimension_count', { type: 'u32', value: 8 }, /rope\.dimension_count is 8/],
    ['expert_count', { type: 'u32', value: 0 }, /expert_count is 0/],
    ['attention.sliding_window_pattern', { type: 'bool', value: WINDOWS.map(() => true) }, /last layer/],
    ['attention.head_count_kv', { type: 'i32', value: [2, 1, 1, 2, 2, 1] }, /head_count_kv is 1, .*same kind/],
    ['attention.causal', { type: 'bool', value: false }, /gemma4\.attention\.causal/],
    ['rope.scaling.type', { type: 'text', value: 'linear' }, /gemma4\.rope\.scaling\.type/],
  ] as const) {
    it(`refuses ${name} ${String(key.value)}`, async () => {
      await assert.rejects(open({ [name]: key }), isOdmoe('MODEL_UNSUPPORTED', words));
    });
  }

  it('refuses a file in which only some global layers have values', async () => {
    const values = {
      name: 'blk.2.attn_v.weight',
      type: 'BF16',
      dimensions: [32, 64],
      data: new Uint8Array(4096),
    } as const;
    await assert.rejects(
      open({}, [...tensors, ropeTensor(FACTORS), values]),
      isOdmoe('MODEL_CORRUPT', /blk\.5\.attn_v\.weight is missing/),
    );
  });
});
