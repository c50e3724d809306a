import assert from 'node:assert/strict';
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { joinPlanes, openTensor } from '../../native/index.js';
import { type Checkpoint, openCheckpoint } from '../../packs/checkpoint/checkpoint.js';
import { loadDenseWeights, loadResidentExperts } from '../../engine/loading/load-weights.js';
import { readGgufModel } from '../../packs/gguf/gguf-file.js';
import { openGguf, openGgufModel } from '../../packs/gguf/open-gguf.js';
import { openPack } from '../../packs/format/open-pack.js';
import { packageRoot } from '../../shared/base/files/package-root.js';
import { densePlaces } from '../../shared/model/dense-roles.js';
import type { LayerShape } from '../../shared/model/model-shape.js';
import type { DraftHeadSource, TensorSource } from '../../shared/model/tensor-source.js';
import { logitBits, openResidentModel } from '../integration/generate-resident-model.js';
import {
  asFp32,
  type CheckpointConfig,
  ggufKeys,
  ggufTensors,
  readStored,
  safetensorsBytes,
  tokenizerKeys,
} from './gguf-from-checkpoint.js';
import { pack } from './tiny-pack.js';
import { ggufBytes } from './gguf-writer.js';
import { openTestDevice } from './native-test-model.js';

const fixtures = join(packageRoot(), 'test', 'fixtures');
const VOCABULARY = 300;
const PROMPT = [1, 5, 9, 200, 31, 77, 120];
const FURTHER = [44, 7];

interface Made {
  architecture: string;
  /** Changes of the config.json to what llama.cpp can say. */
  config?: CheckpointConfig;
  /** Tensors that the changed model does not have. */
  without?: RegExp;
  /** The converter turns the rows of queries and keys. */
  turned?: boolean;
  /** The file has a head that drafts. */
  head?: boolean;
}

const FIXTURES: Readonly<Record<string, Made>> = {
  qwen3moe: { architecture: 'qwen3moe' },
  glm45: { architecture: 'glm4moe', head: true },
  minimaxm2: { architecture: 'minimax-m2' },
  qwen2moe: { architecture: 'qwen2moe' },
  // No key says that the last layers are dense.
  ernie45moe: { architecture: 'ernie4_5-moe', config: { num_hidden_layers: 4 }, without: /^model\.layers\.4\./ },
  granitemoe: { architecture: 'granitemoe', turned: true },
  // The converter writes no factor, and the published models have none.
  lfm2moe: { architecture: 'lfm2moe', config: { routed_scaling_factor: 1 } },
};

/** Writes the checkpoint, with the config's changes, and the GGUF file. Gives their paths. */
async function writeBoth(
  directory: string,
  name: string,
  made: Made,
  isKept: (name: string) => boolean = () => true,
): Promise<{ checkpoint: string; gguf: string }> {
  const text = await readFile(join(fixtures, name, 'config.json'), 'utf8');
  const config = { ...(JSON.parse(text) as CheckpointConfig), ...made.config };
  const stored = readStored(join(fixtures, name)).filter((tensor) => made.without?.test(tensor.name) !== true);
  const checkpoint = join(directory, name);
  await mkdir(checkpoint, { recursive: true });
  await writeFile(join(checkpoint, 'config.json'), JSON.stringify(config));
  await writeFile(join(checkpoint, 'model.safetensors'), safetensorsBytes(stored));
  const keys = [...ggufKeys(made.architecture, config), ...tokenizerKeys(VOCABULARY)];
  const gguf = join(directory, `${name}.gguf`);
  const tensors = ggufTensors(stored, made.architecture, config).filter((tensor) => isKept(tensor.name));
  await writeFile(gguf, ggufBytes({ keys, tensors }));
  return { checkpoint, gguf };
}

/** A layer without what tells in which order its rows are stored. */
function withoutPairing(layer: LayerShape): unknown {
  const { mixer } = layer;
  return mixer.kind === 'attention'
    ? { ...layer, mixer: { ...mixer, rotary: { ...mixer.rotary, pairing: null } } }
    : layer;
}

/** All values of a tensor, as FP32. */
async function valuesOf(source: TensorSource): Promise<Buffer> {
  const rows = openTensor(source);
  try {
    const planes = await rows.read(source.rows);
    const data = joinPlanes(planes, source.split);
    return asFp32({ dtype: data.length === source.rows * source.columns * 2 ? 'BF16' : 'F32', data });
  } finally {
    rows.dispose();
  }
}

function asFloats(bits: readonly Uint32Array[]): number[] {
  return bits.flatMap((one) => [...new Float32Array(one.buffer)]);
}

async function answersOf(path: string): Promise<number[]> {
  const model = await openResidentModel(path);
  try {
    return asFloats(await logitBits(model, PROMPT, FURTHER, PROMPT.length));
  } finally {
    model.dispose();
  }
}

/** The logits of a head's rows for made states: the same for each head of these sizes. */
async function headLogits(head: DraftHeadSource): Promise<number[]> {
  const device = openTestDevice();
  const model = device.createModel(head.shape);
  const sequence = model.createSequence();
  const pass = model.createPass(PROMPT.length);
  try {
    await loadDenseWeights(model, head, 'bf16');
    await loadResidentExperts(model, head, 'bf16');
    const rows = Int32Array.from(PROMPT, (_, row) => row);
    const states = Float32Array.from({ length: PROMPT.length * head.shape.hiddenSize }, (_, at) => Math.sin(at * at));
    await pass.begin([sequence], new Int32Array(PROMPT.length), rows, Int32Array.from(PROMPT), states);
    await pass.forward(null);
    return [...(await pass.logits(rows))];
  } finally {
    for (const part of [pass, sequence, model, device]) part.dispose();
  }
}

function headOf({ draftHead, draftHeadProblem }: Checkpoint): DraftHeadSource {
  assert.equal(draftHeadProblem, null);
  return draftHead ?? assert.fail('there is no head');
}

function assertSameLogits(found: readonly number[], wanted: readonly number[]): void {
  assert.equal(found.length, wanted.length);
  for (const [index, logit] of found.entries()) {
    assert.ok(Math.abs(logit - (wanted[index] ?? NaN)) <= 1e-5, `logit ${index}: ${logit}`);
  }
}

describe('a GGUF file made of a checkpoint by the rules of the converter:', () => {
  let directory: string;
  before(async () => {
    directory = await mkdtemp(join(tmpdir(), 'odmoe-gguf-made-'));
  });
  after(() => rm(directory, { recursive: true, force: true }));

  for (const [name, made] of Object.entries(FIXTURES)) {
    describe(name, () => {
      let paths: { checkpoint: string; gguf: string };
      let wanted: Checkpoint;
      let found: Checkpoint;
      before(async () => {
        paths = await writeBoth(directory, name, made);
        wanted = await openCheckpoint(paths.checkpoint);
        found = await openGguf(paths.gguf);
      });

      it('has the shape of the checkpoint', () => {
        const plain = (layer: LayerShape): unknown => (made.turned === true ? withoutPairing(layer) : layer);
        assert.deepEqual(found.shape.layers.map(plain), wanted.shape.layers.map(plain));
        assert.deepEqual({ ...found.shape, layers: [] }, { ...wanted.shape, layers: [] });
        assert.equal(found.tiedEmbeddings, wanted.tiedEmbeddings);
      });

      it('has the values of the checkpoint', async () => {
        assert.deepEqual(
          found.tensors.map(({ place }) => place),
          wanted.tensors.map(({ place }) => place),
        );
        for (const [index, { place, source }] of found.tensors.entries()) {
          const turned = place.kind === 'dense' && (place.role === 'query' || place.role === 'key');
          const other = wanted.tensors[index]?.source ?? assert.fail();
          const same = (await valuesOf(source)).equals(await valuesOf(other));
          assert.equal(same, !(turned && made.turned === true), JSON.stringify(place));
        }
      });

      it(made.head === true ? 'has the head of the checkpoint' : 'has no head', async () => {
        if (made.head !== true) {
          assert.deepEqual([found.draftHead, found.draftHeadProblem], [null, null]);
          return;
        }
        const [ofGguf, ofCheckpoint] = [headOf(found), headOf(wanted)];
        assert.deepEqual(ofGguf.shape, ofCheckpoint.shape);
        assert.deepEqual([...ofGguf.sharedRoles], [...ofCheckpoint.sharedRoles]);
        assertSameLogits(await headLogits(ofGguf), await headLogits(ofCheckpoint));
      });

      // The same shape and values answer alike; turned rows are only seen to be the same by their answers.
      if (made.turned !== true) return;
      it('answers as the checkpoint does', async () => {
        const [ofGguf, ofCheckpoint] = [await answersOf(paths.gguf), await answersOf(paths.checkpoint)];
        assert.equal(ofGguf.length, (1 + FURTHER.length) * VOCABULARY);
        assertSameLogits(ofGguf, ofCheckpoint);
      });
    });
  }

  it('may leave out of a head what the model has, too', async () => {
    const made = { architecture: 'glm4moe' };
    const folder = join(directory, 'shared');
    const { gguf } = await writeBoth(folder, 'glm45', made, (name) => !/nextn\.(embed_tokens|shared_head)/.test(name));
    const opened = await openGguf(gguf);
    const head = headOf(opened);
    assert.deepEqual([...head.sharedRoles].sort(), ['embedding', 'lmHead']);
    for (const role of ['embedding', 'finalNorm', 'lmHead'] as const) {
      assert.ok((await valuesOf(head.dense(role, 0))).equals(await valuesOf(opened.dense(role, 0))), role);
    }
    // A pack of it drafts alike.
    await pack(gguf, join(folder, 'pack'));
    const packed = (await openPack(join(folder, 'pack'))).draftHead ?? assert.fail('the pack has no head');
    assert.deepEqual(packed.shape, head.shape);
    assertSameLogits(await headLogits(packed), await headLogits(head));
  });

  it('is read without a head that lacks a tensor', async () => {
    const folder = join(directory, 'lacking');
    const made = { architecture: 'glm4moe' };
    const { gguf } = await writeBoth(folder, 'glm45', made, (name) => !name.includes('nextn.enorm'));
    const opened = await openGguf(gguf);
    assert.equal(opened.draftHead, null);
    assert.match(opened.draftHeadProblem ?? '', /nextn\.enorm\.weight of shape \[64\] is missing/);
    assert.ok(opened.leftOut.includes('blk.4.nextn.eh_proj.weight'));
  });

  it('has the head of Qwen3.5 as one more layer with attention', async () => {
    const path = join(fixtures, 'formats', 'gguf-qwen35moe-q4_k_m', 'qwen35moe-q4_k_m.gguf');
    const file = await readGgufModel(path);
    const tensors = new Map(file.tensors);
    for (const tensor of file.tensors.values()) {
      const name = tensor.name.replace(/^blk\.3\./, 'blk.4.');
      if (name !== tensor.name) tensors.set(name, { ...tensor, name });
    }
    const norm = file.tensors.get('blk.3.attn_norm.weight') ?? assert.fail();
    const [, hidden] = [...(file.tensors.get('token_embd.weight')?.dimensions ?? [])];
    assert.ok(hidden !== undefined);
    // Bytes of another tensor stand for those of each of the head's own.
    const places = { enorm: 1, hnorm: 2, shared_head_norm: 3 };
    for (const [own, step] of Object.entries(places)) {
      const name = `blk.4.nextn.${own}.weight`;
      tensors.set(name, { ...norm, name, offsetBytes: norm.offsetBytes + 32 * step });
    }
    const name = 'blk.4.nextn.eh_proj.weight';
    tensors.set(name, { ...norm, name, type: 'BF16', dimensions: [hidden, 2 * hidden], offsetBytes: 64 });
    const keys = new Map([
      ...file.keys,
      ['qwen35moe.block_count', 5],
      ['qwen35moe.nextn_predict_layers', 1],
      ['qwen35moe.attention.recurrent_layers', [true, true, true, false, false]],
    ] as const);
    const opened = await openGgufModel({ ...file, keys, tensors }, { longContext: false, readsBiases: true });
    const head = headOf(opened);
    assert.deepEqual(head.shape.layers, opened.shape.layers.slice(3));
    assert.deepEqual(head.shape.draftHead, { chained: 'normed' });
    assert.deepEqual([...head.sharedRoles].sort(), ['embedding', 'lmHead']);
    for (const { role, layer } of densePlaces(opened.shape, false)) {
      if (layer === 3) assert.deepEqual(head.dense(role, 0), opened.dense(role, 3), role);
    }
    for (let expert = 0; expert < head.shape.experts; expert += 1) {
      assert.deepEqual(head.expert(0, expert), opened.expert(3, expert));
    }
    // The converter has added 1 to these norms, so their values are taken as they are.
    const norms = (['tokenNorm', 'stateNorm', 'finalNorm'] as const).map((role) => head.dense(role, 0));
    assert.deepEqual(
      norms.map(({ view, chunks }) => [view, chunks.map(({ offsetBytes }) => offsetBytes - norm.offsetBytes)]),
      [1, 2, 3].map((step) => [null, [32 * step]]),
    );
    const { rows, columns } = head.dense('draftInput', 0);
    assert.deepEqual([rows, columns], [hidden, 2 * hidden]);
  });
});
