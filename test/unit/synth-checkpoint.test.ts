import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { mkdir, readdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { bfloat16Bits, halfBits } from '../../bench/synth/gaussian-values.js';
import { repeatingContents } from '../../bench/synth/repeating-answers.js';
import { synthesizeFamily } from '../../bench/synth/synthesize-family.js';
import { openResidentModel } from '../integration/generate-resident-model.js';
import { synthesizeCheckpoint, type SynthOptions, type SynthShape } from '../../bench/synth/synthesize-checkpoint.js';
import { openModelSource } from '../../packs/open-model-source.js';
import { packageRoot } from '../../shared/base/files/package-root.js';
import type { TensorSource } from '../../shared/model/tensor-source.js';
import { withTemporaryDirectory } from './tiny-checkpoint.js';
import { directoryDigests, refusal } from './tiny-pack.js';

const SHAPE: SynthShape = {
  hidden_size: 64,
  intermediate_size: 96,
  num_hidden_layers: 2,
  num_local_experts: 4,
  num_experts_per_tok: 2,
  num_attention_heads: 4,
  num_key_value_heads: 2,
  head_dim: 16,
  vocab_size: 2001,
  max_position_embeddings: 128,
};

/** Value of FP16 bits, by the definition of the format. */
function halfValue(bits: number): number {
  const exponent = (bits >> 10) & 31;
  const mantissa = bits & 1023;
  const magnitude = exponent === 0 ? mantissa * 2 ** -24 : (1024 + mantissa) * 2 ** (exponent - 25);
  return bits & 0x8000 ? -magnitude : magnitude;
}

async function valuesOf(tensor: TensorSource): Promise<number[]> {
  const [chunk] = tensor.chunks;
  assert.ok(chunk);
  const file = await readFile(chunk.path);
  const view = new DataView(file.buffer, file.byteOffset + chunk.offsetBytes, chunk.storedBytes);
  const width = tensor.split === 'none-fp32' ? 4 : 2;
  return Array.from({ length: chunk.storedBytes / width }, (_, i) => {
    if (width === 4) return view.getFloat32(i * 4, true);
    const bits = view.getUint16(i * 2, true);
    if (tensor.split === 'none-fp16') return halfValue(bits);
    return new Float32Array(Uint32Array.of(bits * 65536).buffer)[0] ?? NaN;
  });
}

async function synthesize(directory: string, change: Partial<SynthOptions> = {}): Promise<void> {
  await synthesizeCheckpoint(directory, SHAPE, { dtype: 'BF16', seed: 1, ...change });
}

describe('random checkpoints', () => {
  for (const dtype of ['BF16', 'F16', 'F32'] as const) {
    it(`have Gaussian weights and norms of one (${dtype})`, async () => {
      await withTemporaryDirectory(async (directory) => {
        await synthesize(join(directory, 'x'), { dtype });
        const source = await openModelSource(join(directory, 'x'));
        const values = await valuesOf(source.dense('embedding', 0));
        assert.equal(values.length, 2001 * 64);
        const mean = values.reduce((sum, value) => sum + value, 0) / values.length;
        const deviation = Math.sqrt(values.reduce((sum, value) => sum + (value - mean) ** 2, 0) / values.length);
        assert.ok(Math.abs(mean) < 0.0005, `mean ${mean}`);
        assert.ok(Math.abs(deviation - 0.02) < 0.0005, `deviation ${deviation}`);
        const within = values.filter((value) => Math.abs(value) < 0.02).length / values.length;
        assert.ok(Math.abs(within - 0.6827) < 0.01, `${within} within one deviation`);
        assert.ok((await valuesOf(source.dense('finalNorm', 0))).every((value) => value === 1));
        assert.notDeepEqual(await valuesOf(source.expert(0, 0).gate), await valuesOf(source.expert(0, 1).gate));
      });
    });
  }

  it('are the same for the same seed, and differ for another', async () => {
    await withTemporaryDirectory(async (directory) => {
      for (const [name, seed] of [
        ['a', 5],
        ['b', 5],
        ['c', 6],
      ] as const)
        await synthesize(join(directory, name), { seed });
      const [a, b, c] = await Promise.all(['a', 'b', 'c'].map((name) => directoryDigests(join(directory, name))));
      assert.deepEqual(a, b);
      assert.notEqual(a?.['model.safetensors'], c?.['model.safetensors']);
    });
  });

  it('are written only to an empty place, and with possible shapes', async () => {
    await withTemporaryDirectory(async (directory) => {
      await mkdir(join(directory, 'full'));
      await writeFile(join(directory, 'full', 'x'), '');
      await assert.rejects(synthesize(join(directory, 'full')), refusal('USAGE', /holds x and more/));
      const wrong = synthesizeCheckpoint(
        join(directory, 'y'),
        { ...SHAPE, num_key_value_heads: 3 },
        { dtype: 'BF16', seed: 1 },
      );
      await assert.rejects(wrong, refusal('USAGE', /not a multiple of 3/));
      const none = synthesizeCheckpoint(join(directory, 'y'), { ...SHAPE, vocab_size: 0 }, { dtype: 'BF16', seed: 1 });
      await assert.rejects(none, refusal('USAGE', /vocab_size/));
    });
  });

  it('leave no checkpoint behind when interrupted', async () => {
    await withTemporaryDirectory(async (directory) => {
      const controller = new AbortController();
      const output = join(directory, 'x');
      const stopped = synthesize(output, { signal: controller.signal, onProgress: () => controller.abort() });
      await assert.rejects(stopped, refusal('CANCELLED', /interrupted/));
      assert.deepEqual(await readdir(output), []);
    });
  });
});

describe('random checkpoints whose answers repeat', () => {
  const { hidden_size: hidden, vocab_size: vocabulary } = SHAPE;
  const family = JSON.parse(
    readFileSync(join(packageRoot(), 'test', 'fixtures', 'qwen3moe', 'config.json'), 'utf8'),
  ) as Record<string, unknown>;

  /** The token that the model chooses after each of these, each alone. */
  async function following(directory: string, tokens: readonly number[]): Promise<number[]> {
    const model = await openResidentModel(directory);
    try {
      const chosen: number[] = [];
      for (const token of tokens) {
        const runner = model.createRunner(1);
        const logits = await runner.prefill([token]);
        chosen.push(logits.indexOf(Math.max(...logits)));
        await runner.end();
      }
      return chosen;
    } finally {
      model.dispose();
    }
  }

  it('run through the wanted number of tokens (a Mixtral)', async () => {
    await withTemporaryDirectory(async (directory) => {
      const path = join(directory, 'x');
      await synthesizeCheckpoint(path, SHAPE, { dtype: 'F16', seed: 3, repeat: 24 });
      // 2,001 tokens are 83 runs of 24 and one of 9.
      assert.deepEqual(
        await following(path, [0, 5, 23, 24, 47, 1991, 1992, 2000]),
        [1, 6, 0, 25, 24, 1968, 1993, 1992],
      );
    });
  });

  it('run through the wanted number of tokens (a config.json of Qwen3-MoE)', async () => {
    await withTemporaryDirectory(async (directory) => {
      const path = join(directory, 'x');
      await synthesizeFamily(path, family, { seed: 3, repeat: 24 });
      // 300 tokens are 12 runs of 24 and one of 12.
      assert.deepEqual(await following(path, [0, 23, 24, 287, 288, 299]), [1, 0, 25, 264, 289, 288]);
    });
  });

  it('have rows that cross the pieces in which weights are written', () => {
    const repeated = { tokens: 24, seed: 3, dtype: 'BF16', vocabSize: vocabulary } as const;
    const place = { kind: 'dense', role: 'lmHead', layer: 0 } as const;
    const bytes = 2 * hidden * 30;
    const inPieces = (length: number): Buffer => {
      const contents = repeatingContents(repeated, place, [vocabulary, hidden]) ?? assert.fail();
      const whole = Buffer.alloc(bytes);
      for (let at = 0; at < bytes; at += length) void contents.fill(whole.subarray(at, at + length), at);
      return whole;
    };
    assert.deepEqual(inPieces(100), inPieces(bytes));
  });

  it('need an LM head, and as many tokens as a run has', async () => {
    await withTemporaryDirectory(async (directory) => {
      const tied = synthesizeFamily(
        join(directory, 'x'),
        { ...family, tie_word_embeddings: true },
        { seed: 1, repeat: 2 },
      );
      await assert.rejects(tied, refusal('USAGE', /LM head of its own/));
      for (const repeat of [0, 2002]) {
        const wrong = synthesizeCheckpoint(join(directory, 'x'), SHAPE, { dtype: 'BF16', seed: 1, repeat });
        await assert.rejects(wrong, refusal('USAGE', /1 to 2001 tokens/));
      }
    });
  });
});

describe('rounding to two-byte formats', () => {
  it('gives the nearest FP16 number', () => {
    for (let bits = 0; bits < 0x7c00; bits += 1) {
      const value = halfValue(bits);
      assert.equal(halfBits(value), bits);
      assert.equal(halfBits(-value), bits | 0x8000);
      const next = halfValue(bits + 1);
      if (bits + 1 < 0x7c00) assert.equal(halfBits(value + (next - value) * 0.75), bits + 1);
      if (bits + 1 < 0x7c00) assert.equal(halfBits(value + (next - value) * 0.25), bits);
    }
  });

  it('gives the nearest BF16 number, ties to even', () => {
    assert.equal(bfloat16Bits(1), 0x3f80);
    assert.equal(bfloat16Bits(1 + 2 ** -8), 0x3f80);
    assert.equal(bfloat16Bits(1 + 3 * 2 ** -8), 0x3f82);
    assert.equal(bfloat16Bits(1 + 2 ** -8 + 2 ** -20), 0x3f81);
    assert.equal(bfloat16Bits(-1), 0xbf80);
  });
});
