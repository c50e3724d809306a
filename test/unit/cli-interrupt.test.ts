import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { withInterrupt } from '../../cli/client/interrupt.js';
import { packageRoot } from '../../shared/base/files/package-root.js';

const MODULE = pathToFileURL(join(packageRoot(), 'dist', 'cli', 'client', 'interrupt.js')).href;
const DEAF = `
  import { withInterrupt } from '${MODULE}';
  setInterval(() => undefined, 1000);
  await withInterrupt((signal) => {
    signal.addEventListener('abort', () => process.stdout.write('cancelled\\n'));
    process.stdout.write('running\\n');
    return new Promise(() => undefined);
  });`;

describe('a command that can be interrupted', () => {
  it('leaves no listener behind, however it ends', async () => {
    const count = (): number[] => ['SIGINT', 'SIGTERM'].map((signal) => process.listenerCount(signal));
    const before = count();
    let during: number[] = [];
    assert.equal(
      await withInterrupt(async () => {
        during = count();
        return 7;
      }),
      7,
    );
    await assert.rejects(
      withInterrupt(async () => {
        throw new Error('failed');
      }),
    );
    assert.deepEqual(
      during,
      before.map((listeners) => listeners + 1),
    );
    assert.deepEqual(count(), before);
  });
});

describe('a command that does not end when it is cancelled', () => {
  for (const [first, second] of [
    ['SIGINT', 'SIGINT'],
    ['SIGTERM', 'SIGTERM'],
    ['SIGINT', 'SIGTERM'],
    ['SIGTERM', 'SIGINT'],
  ] as const) {
    it(`is ended by ${second} after ${first}`, async () => {
      const child = spawn(process.execPath, ['--input-type=module', '-e', DEAF], {
        stdio: ['ignore', 'pipe', 'inherit'],
      });
      const timer = setTimeout(() => child.kill('SIGKILL'), 10_000);
      const closed = once(child, 'close');
      let printed = '';
      child.stdout.setEncoding('utf8').on('data', (text: string) => {
        printed += text;
        if (text.includes('running')) child.kill(first);
        if (text.includes('cancelled')) child.kill(second);
      });
      const [, signal] = (await closed) as [number | null, NodeJS.Signals | null];
      clearTimeout(timer);
      assert.equal(printed, 'running\ncancelled\n');
      assert.equal(signal, second);
    });
  }
});
