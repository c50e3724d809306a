import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { readFile, writeFile } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { synthesizeFamily } from '../../bench/synth/synthesize-family.js';
import { openCheckpoint } from '../../packs/checkpoint/checkpoint.js';
import type { Manifest } from '../../packs/format/manifest.js';
import { openPack } from '../../packs/format/open-pack.js';
import { ownDensePlaces } from '../../packs/packing/model-bytes.js';
import { packComing } from '../../packs/packing/pack-coming.js';
import { NATIVE_BYTE_TOOLS, NATIVE_PACKING_TOOLS } from '../../packs/packing/native-tools.js';
import { packForServing } from '../../packs/pack-for-serving.js';
import { verifyPack } from '../../packs/packing/verify-pack.js';
import { packageRoot } from '../../shared/base/files/package-root.js';
import type { ModelShape } from '../../shared/model/model-shape.js';
import type { DraftHeadSource, TensorSource } from '../../shared/model/tensor-source.js';
import { RUNTIME } from '../wall.js';
import { plainValues } from './plain-values.js';
import { configOfFixture, tensorsOfFixture } from './rewritten-experts.js';
import { withTemporaryDirectory, writeTinyCheckpoint } from './tiny-checkpoint.js';
import { manifestFile, pack, refusal } from './tiny-pack.js';

const HEADS = /^mtp\./;
const NATIVE = { tools: NATIVE_BYTE_TOOLS, codec: { codec: 'huffman', level: null } } as const;

/** The config.json of the scenarios' pack with a head. */
const DRAFT_HEAD_CONFIG = JSON.parse(
  readFileSync(join(packageRoot(), 'test', 'fixtures', 'packs', 'configs', 'draft-head.json'), 'utf8'),
) as Record<string, unknown>;

function fixturePath(name: string): string {
  return join(packageRoot(), 'test', 'fixtures', name);
}

/** A head's tensors that are not of experts. */
function denseOf(head: DraftHeadSource): TensorSource[] {
  return ownDensePlaces(head).map(({ role, layer }) => head.dense(role, layer));
}

/** The shape with a layer more, which has no experts. */
function twoLayers(shape: ModelShape): ModelShape {
  return { ...shape, layers: shape.layers.flatMap((layer) => [layer, { ...layer, routed: null }]) };
}

async function manifestOf(directory: string): Promise<Manifest> {
  return (await openPack(directory)).manifest;
}

/** Packs Qwen3.5's fixture with these tensors; `use` gets the pack's directory and the warnings. */
async function withTensors(
  isKept: (name: string) => boolean,
  use: (output: string, warnings: readonly string[]) => Promise<void>,
): Promise<void> {
  const tensors = (await tensorsOfFixture('qwen35moe')).filter(({ name }) => isKept(name));
  await withTemporaryDirectory(async (directory) => {
    const checkpoint = join(directory, 'checkpoint');
    const output = join(directory, 'pack');
    await writeTinyCheckpoint(checkpoint, tensors, { config: configOfFixture('qwen35moe') });
    const warnings: string[] = [];
    await pack(checkpoint, output, { ...NATIVE, name: 'm', onWarning: (warning) => void warnings.push(warning) });
    await use(output, warnings);
  });
}

describe('packs of heads that draft', () => {
  for (const fixture of ['deepseekv3', 'glmmoedsa', 'glm45', 'qwen3next', 'qwen35moe', 'mimov2flash']) {
    it(`hold the head's values, whole and once: ${fixture}`, async () => {
      const checkpoint = await openCheckpoint(fixturePath(fixture));
      await withTemporaryDirectory(async (directory) => {
        const { digest, leftOut } = await pack(fixturePath(fixture), directory, NATIVE);
        const packed = await openPack(directory);
        assert.deepEqual(
          leftOut.filter(({ name }) => /^mtp|enorm|hnorm/.test(name)),
          [],
        );
        const [wanted, found] = [checkpoint.draftHead, packed.draftHead];
        assert.ok(wanted && found);
        assert.deepEqual(found.shape, wanted.shape);
        assert.deepEqual([...found.sharedRoles], [...wanted.sharedRoles]);
        assert.equal(found.shippedFormat, wanted.shippedFormat);
        assert.deepEqual(denseOf(found).map(plainValues), denseOf(wanted).map(plainValues));
        for (const role of found.sharedRoles) assert.deepEqual(found.dense(role, 0), packed.dense(role, 0));
        assert.deepEqual(await verifyPack(packed, NATIVE_BYTE_TOOLS), []);
        // Packing again reads the experts of both, and compares them.
        const again = await pack(fixturePath(fixture), directory, NATIVE);
        assert.deepEqual([again.alreadyWhole, again.digest], [true, digest]);
      });
    });
  }

  it('are the first of several: MiMo-V2-Flash has one for each of its drafts', async () => {
    const first = await tensorsOfFixture('mimov2flash');
    const second = first.flatMap((tensor) => {
      const name = tensor.name.replace('model.mtp.layers.0.', 'model.mtp.layers.1.');
      return name === tensor.name ? [] : [{ ...tensor, name, data: tensor.data.map((byte) => byte ^ 1) }];
    });
    assert.ok(second.length > 0);
    await withTemporaryDirectory(async (directory) => {
      const [checkpoint, output] = [join(directory, 'checkpoint'), join(directory, 'pack')];
      await writeTinyCheckpoint(checkpoint, [...second, ...first], { config: configOfFixture('mimov2flash') });
      const { leftOut } = await pack(checkpoint, output, NATIVE);
      assert.deepEqual(
        leftOut.filter(({ name }) => /mtp/.test(name)).reduce((sum, { tensors }) => sum + tensors, 0),
        second.length,
      );
      const [wanted, packed] = [await openCheckpoint(fixturePath('mimov2flash')), await openPack(output)];
      assert.ok(wanted.draftHead && packed.draftHead);
      assert.deepEqual(denseOf(packed.draftHead).map(plainValues), denseOf(wanted.draftHead).map(plainValues));
      // It has no experts, so the pack has no file for them.
      const files = packed.manifest.files.map(({ name }) => name);
      assert.deepEqual(
        files.filter((name) => name.startsWith('draft-')),
        ['draft-dense.safetensors'],
      );
      assert.deepEqual(packed.manifest.draft_head?.experts, []);
    });
  });

  it('are of checkpoints with random weights, too, where config.json counts a head', async () => {
    for (const [heads, isThere] of [
      [1, true],
      [0, false],
    ] as const) {
      await withTemporaryDirectory(async (directory) => {
        const config = { ...DRAFT_HEAD_CONFIG, num_nextn_predict_layers: heads };
        await synthesizeFamily(directory, config, { seed: 1 });
        const { draftHead = null } = await openCheckpoint(directory);
        const shared = draftHead === null ? null : [...draftHead.sharedRoles].sort();
        assert.deepEqual(shared, isThere ? ['embedding', 'lmHead'] : null);
      });
    }
  });

  it('have the same model as packs without them, which open as before', async () => {
    await withTensors(
      () => true,
      async (output) => {
        const withHead = await manifestOf(output);
        await withTensors(
          (name) => !HEADS.test(name),
          async (without, warnings) => {
            assert.deepEqual(warnings, []);
            const text = await readFile(join(without, 'manifest.json'), 'utf8');
            assert.ok(!text.includes('draft'));
            const plain = await openPack(without);
            assert.equal(plain.draftHead, null);
            const { files, dense, experts, model } = plain.manifest;
            assert.deepEqual(withHead.files.slice(0, files.length), files);
            assert.deepEqual([withHead.dense, withHead.experts, withHead.model], [dense, experts, model]);
          },
        );
      },
    );
  });

  it('of a release that packed no heads are whole, with a warning; nothing is deleted for them', async () => {
    await withTensors(
      (name) => !HEADS.test(name),
      async (output) => {
        const { packDigest } = await openPack(output);
        await withTemporaryDirectory(async (checkpoint) => {
          await writeTinyCheckpoint(checkpoint, await tensorsOfFixture('qwen35moe'), {
            config: configOfFixture('qwen35moe'),
          });
          const warnings: string[] = [];
          const onWarning = (warning: string): void => void warnings.push(warning);
          const again = await pack(checkpoint, output, { ...NATIVE, name: 'm', onWarning });
          assert.deepEqual([again.alreadyWhole, again.digest], [true, packDigest]);
          assert.equal(warnings.length, 1);
          assert.match(warnings[0] ?? '', /has no head that drafts tokens.*remove the pack and pack again/);
          await assert.rejects(
            pack(checkpoint, output, { ...NATIVE, name: 'm', consume: true }),
            refusal('USAGE', /it was packed without the head/),
          );
          assert.notEqual((await openCheckpoint(checkpoint)).draftHead, null);
        });
      },
    );
  });

  it('say why a head was left out that cannot be read', async () => {
    await withTensors(
      (name) => name !== 'mtp.norm.weight',
      async (output, warnings) => {
        assert.equal(warnings.length, 1);
        assert.match(warnings[0] ?? '', /head that drafts tokens is left out: .*mtp\.norm\.weight.* is missing/);
        const { draft_head: head, source } = await manifestOf(output);
        assert.equal(head, undefined);
        assert.ok(source.left_out.some(({ name }) => name === 'mtp.fc.weight'));
      },
    );
  });

  it('say so, too, when they are made for serving, or from files that come one by one', async () => {
    const tensors = (await tensorsOfFixture('qwen35moe')).filter(({ name }) => name !== 'mtp.norm.weight');
    await withTemporaryDirectory(async (directory) => {
      const [checkpoint, cache, output] = ['checkpoint', 'cache', 'pack'].map((name) => join(directory, name));
      assert.ok(checkpoint !== undefined && cache !== undefined && output !== undefined);
      await writeTinyCheckpoint(checkpoint, tensors, { config: configOfFixture('qwen35moe') });
      const warnings: string[] = [];
      const onWarning = (warning: string): void => void warnings.push(warning);
      await packForServing(checkpoint, cache, RUNTIME, undefined, undefined, onWarning);
      const { files } = await openCheckpoint(checkpoint);
      const headers = new Map(files.map((file) => [basename(file.path), file]));
      const source = { directory: checkpoint, headers, bring: async () => undefined };
      await packComing(source, output, { codec: NATIVE.codec, shards: 4, name: 'm', onWarning }, NATIVE_PACKING_TOOLS);
      assert.equal(warnings.length, 2);
      for (const warning of warnings) assert.match(warning, /left out: .*mtp\.norm\.weight.* is missing/);
    });
  });

  it('are refused when the head is damaged, or the manifest contradicts itself', async () => {
    await withTensors(
      () => true,
      async (output) => {
        const packed = await openPack(output);
        for (const file of ['draft-dense.safetensors', 'draft-experts.bin']) {
          const path = join(output, file);
          const bytes = await readFile(path);
          const damaged = Buffer.from(bytes);
          damaged[bytes.length - 1] = (bytes.at(-1) ?? 0) ^ 1;
          // The last bytes of a file may be padding, whose damage only the file's digest shows.
          await writeFile(path, damaged);
          const found = await verifyPack(packed, NATIVE_BYTE_TOOLS);
          assert.ok(found.length > 0 && found.every((damage) => damage.file === file), JSON.stringify(found));
          await writeFile(path, bytes);
        }
        const { manifest } = packed;
        const head = manifest.draft_head;
        assert.ok(head !== undefined);
        const changes: [NonNullable<Manifest['draft_head']>, RegExp][] = [
          [{ ...head, experts: head.experts.slice(1) }, /draft_head: 15 experts, expected 1 layers of 16/],
          [{ ...head, dense: head.dense.slice(1) }, /draft_head: dense tensor tokenNorm of layer 0 is missing/],
          [{ ...head, shared: ['embedding'] }, /draft_head: dense tensor lmHead of layer 0 is missing/],
          [{ ...head, shape: { ...head.shape, hiddenSize: 32 } }, /draft_head: it has hidden states.*another size/],
          [{ ...head, shape: manifest.model.shape }, /draft_head: its shape is not that of a head/],
          [{ ...head, shape: twoLayers(head.shape) }, /draft_head: its shape is not that of a head/],
        ];
        for (const [changed, message] of changes) {
          const file = manifestFile({ ...manifest, draft_head: changed });
          await writeFile(join(output, 'manifest.json'), JSON.stringify(file));
          await assert.rejects(openPack(output), refusal('PACK_CORRUPT', message));
        }
        const model = {
          ...manifest.model,
          shape: { ...manifest.model.shape, draftHead: { chained: 'plain' as const } },
        };
        await writeFile(join(output, 'manifest.json'), JSON.stringify(manifestFile({ ...manifest, model })));
        await assert.rejects(openPack(output), refusal('PACK_CORRUPT', /model's own shape is that of a head/));
      },
    );
  });
});
