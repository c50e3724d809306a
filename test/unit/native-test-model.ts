/** The Mixtral fixture on a device. The tests read its file themselves, so that they need the native core alone. */
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { openDevice, type Device, type Model } from '../../native/index.js';
import { densePlaces, type DenseRole } from '../../shared/model/dense-roles.js';
import { plainShape } from '../../engine/emulation/plain-shape.js';
import type { AttentionMixer, LayerShape, ModelShape } from '../../shared/model/model-shape.js';
import type { ExpertSource, TensorSource, WeightFormat } from '../../shared/model/tensor-source.js';

const FIXTURE_DIRECTORY = fileURLToPath(new URL('../../../test/fixtures/mixtral/', import.meta.url));
const FIXTURE_PATH = `${FIXTURE_DIRECTORY}model.safetensors`;

export const FIXTURE_SIZES = {
  vocabSize: 300,
  hiddenSize: 64,
  intermediateSize: 96,
  layers: 4,
  heads: 4,
  keyValueHeads: 2,
  headDim: 16,
  experts: 8,
  expertsPerToken: 2,
};
export const ROPE_THETA = 1e6;
export const FIXTURE_SHAPE = fixtureShape({});

/** The fixture's model, with what a test changes in every layer's attention. */
export function fixtureShape(changes: Partial<AttentionMixer>): ModelShape {
  const plain = plainShape(FIXTURE_SIZES);
  const { headDim } = FIXTURE_SIZES;
  const frequencies = Array.from({ length: headDim / 2 }, (_, i) => Math.fround(ROPE_THETA ** ((-2 * i) / headDim)));
  const layers = plain.layers.map(({ mixer, ...rest }): LayerShape => {
    if (mixer.kind !== 'attention') throw new Error('the fixture has attention in every layer');
    return { mixer: { ...mixer, rotary: { rope: 0, pairing: 'halves', offset: 0 }, ...changes }, ...rest };
  });
  return { ...plain, maxPositions: 512, ropes: [{ frequencies, scale: 1 }], layers };
}

interface HeaderEntry {
  dtype: string;
  shape: number[];
  data_offsets: [number, number];
}

interface FixtureReference {
  references: { prompt_token_ids: number[]; token_ids: number[]; first_logits: number[]; experts: number[][][] }[];
}

const fileBytes = readFileSync(FIXTURE_PATH);
const headerBytes = Number(fileBytes.readBigUInt64LE(0));
const header = JSON.parse(fileBytes.toString('utf8', 8, 8 + headerBytes)) as Record<string, HeaderEntry>;

export const fixtureReference = JSON.parse(
  readFileSync(`${FIXTURE_DIRECTORY}reference.json`, 'utf8'),
) as FixtureReference;

function entry(name: string): HeaderEntry {
  const found = header[name];
  if (found === undefined) throw new Error(`the fixture has no tensor ${name}`);
  return found;
}

export function sourceOf(name: string): TensorSource {
  const { shape, data_offsets: offsets } = entry(name);
  const bytes = offsets[1] - offsets[0];
  return {
    rows: shape.length === 2 ? (shape[0] ?? 0) : 1,
    columns: shape.at(-1) ?? 0,
    split: 'none-bf16',
    chunks: [
      {
        plane: 0,
        path: FIXTURE_PATH,
        offsetBytes: 8 + headerBytes + offsets[0],
        storedBytes: bytes,
        plainBytes: bytes,
        codec: 'raw',
        crc32c: null,
      },
    ],
    view: null,
  };
}

/** The tensor's bytes as in the file: BF16, row-major. */
export function bytesOf(name: string): Uint8Array {
  const [begin, end] = entry(name).data_offsets;
  return fileBytes.subarray(8 + headerBytes + begin, 8 + headerBytes + end);
}

const LAYER_NAMES: Partial<Record<DenseRole, string>> = {
  mixerNorm: 'input_layernorm',
  query: 'self_attn.q_proj',
  key: 'self_attn.k_proj',
  value: 'self_attn.v_proj',
  mixerOutput: 'self_attn.o_proj',
  feedForwardNorm: 'post_attention_layernorm',
  router: 'block_sparse_moe.gate',
};

export function denseName(role: DenseRole, layer: number): string {
  if (role === 'embedding') return 'model.embed_tokens.weight';
  if (role === 'lmHead') return 'lm_head.weight';
  if (role === 'finalNorm') return 'model.norm.weight';
  return `model.layers.${layer}.${LAYER_NAMES[role]}.weight`;
}

export function expertName(layer: number, expert: number, matrix: 'gate' | 'up' | 'down'): string {
  const file = { gate: 'w1', up: 'w3', down: 'w2' }[matrix];
  return `model.layers.${layer}.block_sparse_moe.experts.${expert}.${file}.weight`;
}

export function expertSource(layer: number, expert: number): ExpertSource {
  return {
    gate: sourceOf(expertName(layer, expert, 'gate')),
    up: sourceOf(expertName(layer, expert, 'up')),
    down: sourceOf(expertName(layer, expert, 'down')),
    biases: null,
  };
}

/** Roles that use the requested format. The others stay as they are. */
const FORMATTED: readonly DenseRole[] = ['query', 'key', 'value', 'mixerOutput'];

export async function loadFixture(
  device: Device,
  options: { experts: boolean; lmHead?: boolean; format?: WeightFormat; shape?: ModelShape },
): Promise<Model> {
  const model = device.createModel(options.shape ?? FIXTURE_SHAPE);
  const format = options.format ?? 'bf16';
  for (const { role, layer } of densePlaces(model.shape, options.lmHead === false)) {
    await model.loadDense(role, layer, sourceOf(denseName(role, layer)), FORMATTED.includes(role) ? format : 'bf16');
  }
  for (let layer = 0; layer < model.shape.expertLayers; layer++) {
    for (let expert = 0; options.experts && expert < model.shape.experts; expert++) {
      await model.loadResidentExpert(layer, expert, expertSource(layer, expert), format);
    }
  }
  return model;
}

export function openTestDevice(options: Partial<Parameters<typeof openDevice>[0]> = {}): Device {
  return openDevice({ backend: 'cpu', instructionSet: 'auto', threads: 2, budgetBytes: 0, ...options });
}

/** Bit patterns, so that a comparison distinguishes -0 from 0 and shows the difference. */
export function bits(values: Float32Array | Uint8Array): Uint32Array {
  return new Uint32Array(values.slice().buffer);
}
