import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import type { CudaStatus } from '../../native/index.js';
import { packageRoot } from '../../shared/base/files/package-root.js';

const library = join(packageRoot(), 'build', 'Release', 'libodmoe_cuda.so');

/** The build's own reason for leaving out the CUDA part; empty: it is built. */
function absence(): string {
  const cache = readFileSync(join(packageRoot(), 'build', 'CMakeCache.txt'), 'utf8');
  const words = /^ODMOE_CUDA_ABSENCE:INTERNAL=(.*)$/m.exec(cache)?.[1];
  assert.ok(words !== undefined, 'the build does not say whether it has made the CUDA part');
  return words;
}

/** The addon's CUDA status in a separate process. `changes`: changes to the process's environment. */
function statusOf(changes: Record<string, string>): CudaStatus {
  const addon = pathToFileURL(join(packageRoot(), 'dist', 'native', 'index.js')).href;
  const script = `import(${JSON.stringify(addon)}).then((native) => console.log(JSON.stringify(native.cudaStatus())))`;
  const env = { ...process.env, ODMOE_CUDA_LIBRARY: '', ...changes };
  const { status, stdout, stderr } = spawnSync(process.execPath, ['-e', script], { env, encoding: 'utf8' });
  assert.equal(status, 0, stderr);
  return JSON.parse(stdout) as CudaStatus;
}

describe('the CUDA library of the build', () => {
  it('exists beside the addon where nvcc exists, and opens without a driver', function () {
    const why = absence();
    if (why !== '') {
      assert.ok(!existsSync(library), `${library} is there, though it was left out: ${why}`);
      return this.skip();
    }
    assert.ok(existsSync(library), `${library} is missing`);
    // The environment hides all devices, in case the machine has a driver.
    const cuda = statusOf({ CUDA_VISIBLE_DEVICES: '' });
    assert.ok(cuda.built);
    assert.equal(cuda.library, library);
    assert.match(cuda.runtimeVersion ?? '', /^\d+\.\d+$/);
    assert.ok(cuda.architectures.length >= 2);
    assert.ok(cuda.architectures.slice(0, -1).every((name) => /^sm_\d+$/.test(name)));
    // PTX of the newest, for devices that are newer still.
    assert.equal(cuda.architectures.at(-1), cuda.architectures.at(-2)?.replace('sm_', 'compute_'));
    assert.equal(cuda.usable, false);
    assert.match(cuda.reason ?? '', /driver/);
    assert.deepEqual(cuda.devices, []);
  });

  it('is reported as missing where it was not built', () => {
    const absent = join(packageRoot(), 'build', 'Release', 'no-such-library.so');
    const cuda = statusOf({ ODMOE_CUDA_LIBRARY: absent });
    assert.equal(cuda.built, false);
    assert.equal(cuda.usable, false);
    assert.match(cuda.reason ?? '', /ODMOE_CUDA_LIBRARY names .*no-such-library\.so, which is not there/);
  });

  it('is distinguished from a truncated file, which does not end the process', async () => {
    const directory = await mkdtemp(join(tmpdir(), 'odmoe-cuda-'));
    try {
      const whole = await readFile(join(packageRoot(), 'build', 'Release', 'odmoe.node'));
      const cut = join(directory, 'libodmoe_cuda.so');
      await writeFile(cut, whole.subarray(0, whole.length / 2));
      const cuda = statusOf({ ODMOE_CUDA_LIBRARY: cut });
      assert.equal(cuda.usable, false);
      assert.match(cuda.reason ?? '', /is cut off/);
    } finally {
      await rm(directory, { recursive: true });
    }
  });
});
