import assert from 'node:assert/strict';
import {
  copyFileSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { basename, join } from 'node:path';
import { synthesizeFamily } from '../../bench/synth/synthesize-family.js';
import { openCheckpoint } from '../../packs/checkpoint/checkpoint.js';
import { readSafetensorsFile, type SafetensorsFile } from '../../packs/checkpoint/safetensors-file.js';
import { openPack } from '../../packs/format/open-pack.js';
import { comingPeakBytes, type ComingFiles, denseRanges, rangesBytes } from '../../packs/packing/coming-files.js';
import { fileAhead } from '../../packs/packing/file-arrivals.js';
import { comingNeeds, packComing } from '../../packs/packing/pack-coming.js';
import type { PackingTools } from '../../packs/packing/packing-context.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import {
  TINY_CONFIG,
  type TinyTensor,
  tinyTensors,
  withTemporaryDirectory,
  writeTinyCheckpoint,
} from './tiny-checkpoint.js';
import { waitUntil } from '../integration/harness/wait-until.js';
import { directoryDigests, pack, refusal, TOOLS } from './tiny-pack.js';

const FILES = 4;
const RAW = { codec: { codec: 'raw', level: null }, shards: 4, name: 'tiny' } as const;
const GPT_OSS: Record<string, unknown> = {
  architectures: ['GptOssForCausalLM'],
  model_type: 'gpt_oss',
  vocab_size: 24,
  hidden_size: 64,
  intermediate_size: 64,
  num_hidden_layers: 2,
  num_attention_heads: 4,
  num_key_value_heads: 2,
  head_dim: 16,
  num_local_experts: 3,
  num_experts_per_tok: 2,
  max_position_embeddings: 64,
  rope_theta: 10000,
  sliding_window: 16,
  eos_token_id: 2,
};

/** All tensors of a model of any family, biases too. */
async function randomTensors(config: Record<string, unknown>): Promise<TinyTensor[]> {
  const tensors: TinyTensor[] = [];
  await withTemporaryDirectory(async (directory) => {
    const model = join(directory, 'model');
    await synthesizeFamily(model, config, { seed: 1 });
    const path = join(model, 'model.safetensors');
    const bytes = readFileSync(path);
    for (const tensor of (await readSafetensorsFile(path)).tensors.values()) {
      tensors.push({ ...tensor, data: bytes.subarray(tensor.offsetBytes, tensor.offsetBytes + tensor.sizeBytes) });
    }
  });
  return tensors;
}

async function writeTensors(
  directory: string,
  tensors: readonly TinyTensor[] = inForwardOrder(tinyTensors()),
  config: Readonly<Record<string, unknown>> = TINY_CONFIG,
): Promise<void> {
  await writeTinyCheckpoint(directory, tensors, { shards: FILES, config });
}

interface Coming {
  /** The checkpoint far away, whole. */
  origin: string;
  source: ComingFiles;
  output: string;
  /** Weight files in the order in which they came. */
  came: string[];
  /** Weight files that were here at the same time, at most. */
  mostHere: () => number;
}

/** Tensors in the order of a forward pass, as published checkpoints have them, cut into files. */
function inForwardOrder(tensors: readonly TinyTensor[]): TinyTensor[] {
  const size = Math.ceil(tensors.length / FILES);
  return tensors.flatMap((_, index) => tensors[(index % FILES) * size + Math.floor(index / FILES)] ?? []);
}

async function withComing(
  use: (coming: Coming) => Promise<void>,
  write: (directory: string) => Promise<unknown> = (directory) => writeTensors(directory),
): Promise<void> {
  await withTemporaryDirectory(async (parent) => {
    const [origin, directory] = [join(parent, 'tiny'), join(parent, 'coming')];
    await write(origin);
    mkdirSync(directory);
    const headers = new Map<string, SafetensorsFile>();
    for (const name of readdirSync(origin)) {
      if (!name.endsWith('.safetensors')) {
        copyFileSync(join(origin, name), join(directory, name));
        continue;
      }
      utimesSync(join(origin, name), 1000, 1000);
      headers.set(name, { ...(await readSafetensorsFile(join(origin, name))), path: join(directory, name) });
    }
    const came: string[] = [];
    let most = 0;
    const bring = async (name: string): Promise<void> => {
      if (existsSync(join(directory, name))) return;
      came.push(name);
      copyFileSync(join(origin, name), join(directory, name));
      utimesSync(join(directory, name), 1000, 1000);
      most = Math.max(most, readdirSync(directory).filter((file) => file.endsWith('.safetensors')).length);
    };
    const source: ComingFiles = { directory, headers, bring };
    await use({ origin, source, output: join(parent, 'pack'), came, mostHere: () => most });
  });
}

/** Makes the pack in the usual way, for comparison. */
async function plainDigests({ origin, output }: Coming): Promise<Record<string, string>> {
  await pack(origin, `${output}-plain`);
  return directoryDigests(`${output}-plain`);
}

/** A model with layers that lie in one file each, as those of large models do. */
function writeDeep(directory: string): Promise<void> {
  const config = { ...TINY_CONFIG, num_hidden_layers: 8 };
  const layerOf = ({ name }: TinyTensor): number => Number(/layers\.(\d+)\./.exec(name)?.[1] ?? -1);
  const byLayer = tinyTensors(config).sort((one, other) => layerOf(one) - layerOf(other));
  return writeTensors(directory, inForwardOrder(byLayer), config);
}

describe('packing a checkpoint whose files come one by one', () => {
  it('gives the same pack, byte for byte, and brings each file once', async () => {
    await withComing(async (coming) => {
      const { source, output, came } = coming;
      const progress: [number, number][] = [];
      const outcome = await packComing(
        source,
        output,
        { ...RAW, onProgress: (done, all) => progress.push([done, all]) },
        TOOLS,
      );
      assert.deepEqual(await directoryDigests(output), await plainDigests(coming));
      assert.equal((await openPack(output)).packDigest, outcome.digest);
      assert.deepEqual([...came].sort(), [...source.headers.keys()].sort());
      assert.ok(coming.mostHere() < FILES, `${coming.mostHere()} files at a time`);
      assert.deepEqual(
        readdirSync(source.directory).filter((name) => name.endsWith('.safetensors')),
        [],
      );
      const [done, all] = progress.at(-1) ?? [0, 1];
      assert.equal(done, all);
    });
  });

  it('does so for tensors in any order, for tied embeddings with a head, and for biases of experts', async () => {
    const tied = { ...TINY_CONFIG, tie_word_embeddings: true };
    const tensors = tinyTensors(tied);
    const embedding = tensors.find(({ name }) => name === 'model.embed_tokens.weight');
    assert.ok(embedding !== undefined);
    const withHead = [...tensors, { ...embedding, name: 'lm_head.weight' }];
    const writers: ((directory: string) => Promise<unknown>)[] = [
      (directory) => writeTensors(directory, tinyTensors()),
      (directory) => writeTensors(directory, inForwardOrder(withHead), tied),
      async (directory) => writeTensors(directory, await randomTensors(GPT_OSS), GPT_OSS),
    ];
    for (const write of writers) {
      await withComing(async (coming) => {
        assert.ok(coming.source.headers.size > 1);
        await packComing(coming.source, coming.output, RAW, TOOLS);
        assert.deepEqual(await directoryDigests(coming.output), await plainDigests(coming));
      }, write);
    }
  });

  it('refuses a head that differs from tied embeddings', async () => {
    const tied = { ...TINY_CONFIG, tie_word_embeddings: true };
    const tensors = tinyTensors(tied);
    const head = tinyTensors().find(({ name }) => name === 'lm_head.weight');
    assert.ok(head !== undefined);
    await withComing(
      async ({ source, output }) => {
        await assert.rejects(packComing(source, output, RAW, TOOLS), refusal('MODEL_CORRUPT', /has other values/));
      },
      (directory) => writeTensors(directory, inForwardOrder([...tensors, head]), tied),
    );
  });

  it('brings the next file while it packs, and has two on the disk at most', async () => {
    await withComing(async ({ source, output, came, mostHere }) => {
      let hasWritten = false;
      const crc32c: PackingTools['crc32c'] = (bytes, seed) => {
        hasWritten = true;
        return TOOLS.crc32c(bytes, seed);
      };
      const slow: ComingFiles['bring'] = async (name, unwanted) => {
        // The second file is here when the first layer, which does not need it, has been written.
        if (came.length === 1 && !came.includes(name)) await waitUntil('the first layer is written', () => hasWritten);
        await source.bring(name, unwanted);
      };
      await packComing({ ...source, bring: slow }, output, RAW, { ...TOOLS, crc32c });
      assert.equal(mostHere(), 2);
      assert.deepEqual(came, [...source.headers.keys()].sort(), 'each file came once, in order');
    }, writeDeep);
  });

  it('fails with the failure of a file that came ahead, when it is needed; what else comes is cut off', async () => {
    await withComing(async ({ source, output, came }) => {
      let cut = 0;
      const fails: ComingFiles['bring'] = async (name, unwanted) => {
        if (came.length === 0) return source.bring(name, unwanted);
        // It never comes of itself.
        await new Promise((resolve) => unwanted.addEventListener('abort', resolve));
        cut += 1;
        throw new OdmoeError('CANCELLED', 'cut off');
      };
      const crc32c: PackingTools['crc32c'] = () => {
        throw Object.assign(new Error('EIO: injected'), { code: 'EIO' });
      };
      await assert.rejects(packComing({ ...source, bring: fails }, output, RAW, { ...TOOLS, crc32c }), /injected/);
      assert.equal(cut, 1);
      const late: ComingFiles['bring'] = async (name, unwanted) => {
        if (came.length > 0) throw new OdmoeError('HUB_UNAVAILABLE', 'injected too');
        await source.bring(name, unwanted);
      };
      await assert.rejects(packComing({ ...source, bring: late }, output, RAW, TOOLS), /injected too/);
      await packComing(source, output, RAW, TOOLS);
    }, writeDeep);
  });

  it('continues from any interruption, and brings no file again whose experts are packed', async () => {
    await withComing(async (coming) => {
      const { source, output } = coming;
      const expected = await plainDigests(coming);
      let interruptions = 0;
      for (let limit = 5; ; limit += 31) {
        let calls = 0;
        const crc32c: PackingTools['crc32c'] = (bytes, seed) => {
          calls += 1;
          if (calls > limit) throw Object.assign(new Error('EIO: injected'), { code: 'EIO' });
          return TOOLS.crc32c(bytes, seed);
        };
        try {
          await packComing(source, output, RAW, { ...TOOLS, crc32c });
          break;
        } catch (thrown) {
          assert.match(String(thrown), /injected/);
        }
        interruptions += 1;
        assert.ok(interruptions < 200, 'it comes to an end');
      }
      assert.ok(interruptions > 2, `${interruptions} interruptions`);
      assert.deepEqual(await directoryDigests(output), expected);
      assert.deepEqual([...new Set(coming.came)].sort(), [...coming.came].sort(), 'each file came once');
    });
  });

  it('brings a file again if a finished file of the pack was lost', async () => {
    await withComing(async (coming) => {
      const { source, output, came } = coming;
      const fails: ComingFiles['bring'] = async (name, unwanted) => {
        if (came.length >= 3) throw new OdmoeError('HUB_UNAVAILABLE', 'injected');
        await source.bring(name, unwanted);
      };
      await assert.rejects(packComing({ ...source, bring: fails }, output, RAW, TOOLS), /injected/);
      writeFileSync(join(output, 'experts-00000.bin'), 'short');
      const before = came.length;
      await packComing(source, output, RAW, TOOLS);
      assert.ok(came.length > FILES && came.length > before, 'files of layer 0 came twice');
      assert.deepEqual(await directoryDigests(output), await plainDigests(coming));
    });
  });

  it('takes no file whose begin is another than the header that was read before', async () => {
    await withComing(async ({ source, output }) => {
      const [first = ''] = [...source.headers.keys()].sort();
      const header = source.headers.get(first);
      assert.ok(header !== undefined);
      const headers = new Map(source.headers).set(first, { ...header, headerDigest: '0'.repeat(64) });
      await assert.rejects(
        packComing({ ...source, headers }, output, RAW, TOOLS),
        refusal('MODEL_CORRUPT', /its begin is another/),
      );
    });
  });

  it('keeps of each file its header and its dense tensors, with holes for the rest', async () => {
    await withComing(async ({ source, output, came }) => {
      const stop: ComingFiles['bring'] = async (name, unwanted) => {
        if (came.length >= 3) throw new OdmoeError('HUB_UNAVAILABLE', 'injected');
        await source.bring(name, unwanted);
      };
      await assert.rejects(packComing({ ...source, bring: stop }, output, RAW, TOOLS), /injected/);
      const dense = join(source.directory, 'dense');
      const kept = readdirSync(dense).filter((name) => name.endsWith('.safetensors'));
      assert.ok(kept.length > 0);
      for (const name of kept) {
        const header = source.headers.get(name);
        assert.deepEqual({ ...(await readSafetensorsFile(join(dense, name))), path: header?.path }, header);
        assert.ok(!existsSync(join(source.directory, name)), 'the whole file is gone');
        assert.equal(statSync(join(dense, name)).size, header?.sizeBytes);
      }
    });
  });
});

describe('the room that such a pack takes', () => {
  const files = new Map([
    ['a', { sizeBytes: 100, keptBytes: 10 }],
    ['b', { sizeBytes: 100, keptBytes: 0 }],
  ]);
  const steps = [
    { needs: ['a'], writtenBytes: 70, lastUseOf: [], later: [['a', 'b']] },
    { needs: ['a', 'b'], writtenBytes: 70, lastUseOf: ['a', 'b'], later: [] },
    { needs: [], writtenBytes: 20, lastUseOf: [], later: [] },
  ];

  it('is counted step by step', () => {
    // Both files, both outputs, and the remains of a, before a goes.
    assert.equal(comingPeakBytes(steps, files, new Set(), false), 350);
    assert.equal(comingPeakBytes(steps, files, new Set(['a']), false), 250);
    assert.equal(comingPeakBytes([], files, new Set(), false), 0);
  });

  it('is larger where a file comes ahead, and only while fewer than two are here', () => {
    const [first, second, last] = steps;
    assert.ok(first !== undefined && second !== undefined && last !== undefined);
    const [own, later] = [
      { ...first, lastUseOf: ['a'], later: [['b']] },
      { ...second, needs: ['b'], lastUseOf: ['b'] },
    ];
    assert.equal(comingPeakBytes([own, later], files, new Set(), false), 250);
    assert.equal(comingPeakBytes([own, later], files, new Set(), true), 280);
    assert.equal(fileAhead([['a'], ['b', 'c']], new Set(['a'])), 'b');
    assert.equal(fileAhead([['a'], ['b', 'c']], new Set(['a', 'b'])), null);
    assert.equal(fileAhead([['a']], new Set(['a'])), null);
  });

  it('is less than checkpoint and pack', async () => {
    await withComing(async ({ origin, source, output }) => {
      const checkpoint = await openCheckpoint(source.directory, { gone: source.headers });
      const { packBytes, peakBytes } = await comingNeeds(checkpoint, RAW, TOOLS);
      const originBytes = [...source.headers.values()].reduce((sum, { sizeBytes }) => sum + sizeBytes, 0);
      assert.ok(peakBytes < packBytes + originBytes, `${peakBytes} of ${packBytes} and ${originBytes}`);
      assert.ok(peakBytes >= packBytes);
      assert.ok(!existsSync(output));
      rmSync(origin, { recursive: true });
    });
  });

  it('of the remains is that of header and dense tensors', async () => {
    await withComing(async ({ source }) => {
      const checkpoint = await openCheckpoint(source.directory, { gone: source.headers });
      for (const [name, ranges] of denseRanges(checkpoint)) {
        const header = source.headers.get(name);
        const experts = [...(header?.tensors.values() ?? [])].filter((tensor) => tensor.name.includes('experts'));
        const expertBytes = experts.reduce((sum, { sizeBytes }) => sum + sizeBytes, 0);
        assert.equal(rangesBytes(ranges), (header?.sizeBytes ?? 0) - expertBytes, basename(name));
      }
    });
  });
});
