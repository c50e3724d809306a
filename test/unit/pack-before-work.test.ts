import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { packageRoot } from '../../shared/base/files/package-root.js';
import { withTemporaryDirectory, writeTinyCheckpoint } from './tiny-checkpoint.js';

function packByCommand(
  checkpoint: string,
  output: string,
  ...flags: string[]
): { status: number | null; stdout: string; stderr: string } {
  const command = [join(packageRoot(), 'bin', 'odmoe'), 'pack', checkpoint, output, '--json', ...flags];
  return spawnSync(process.execPath, command, { encoding: 'utf8', timeout: 60_000 });
}

describe('odmoe pack before it begins', () => {
  it('refuses a tokenizer that cannot be loaded, before anything is written', async function () {
    this.timeout(120_000);
    await withTemporaryDirectory(async (directory) => {
      const [checkpoint, output] = [join(directory, 'tiny'), join(directory, 'pack')];
      await writeTinyCheckpoint(checkpoint);
      await writeFile(join(checkpoint, 'tokenizer.json'), '{"model": {"type": "Nonsense", "vocab": {}}}');
      const { status, stdout, stderr } = packByCommand(checkpoint, output);
      assert.equal(status, 3, stderr);
      assert.equal((JSON.parse(stdout) as { error: { code: string } }).error.code, 'TOKENIZER_INVALID');
      assert.match(stderr, /tokenizer\.json: not a tokenizer that can be used.*take tokenizer\.json away/);
      assert.equal(existsSync(output), false);

      await rm(join(checkpoint, 'tokenizer.json'));
      await writeFile(join(checkpoint, 'tokenizer.model'), 'a model of sentencepiece');
      const packed = packByCommand(checkpoint, output);
      assert.equal(packed.status, 0, packed.stderr);
      assert.match(packed.stderr, /tiny: there is no tokenizer\.json \(tokenizer\.model is there, and is not read\)/);
      assert.equal((JSON.parse(packed.stdout) as { already_whole: boolean }).already_whole, false);
    });
  });

  it('says nothing of a tokenizer where there is no model', () => {
    const { stderr } = packByCommand('/nowhere/model', '/nowhere/pack');
    assert.doesNotMatch(stderr, /tokenizer/);
    assert.match(stderr, /\[MODEL_NOT_FOUND\]/);
  });

  it('lists the codecs that it knows where another one is named', () => {
    const { status, stderr } = packByCommand('/nowhere/model', '/nowhere/pack', '--codec', 'brotli');
    assert.equal(status, 2, stderr);
    assert.match(stderr, /'brotli' is invalid\. Allowed choices are raw, zstd, lz4hc, fixed4, huffman, auto\./);
  });
});
