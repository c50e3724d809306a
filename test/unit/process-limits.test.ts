import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { join } from 'node:path';
import { codeOfEnd, memoryAdvice } from '../../cli/demo/daemon-process.js';
import { packageRoot } from '../../shared/base/files/package-root.js';
import { isShortOfFiles, readProcessLimits, requireMemory } from '../../engine/daemon/process-limits.js';

const GIBIBYTE = 2 ** 30;
const ENOUGH = { openFiles: 1024, addressBytes: null, heapBytes: GIBIBYTE };
const NODE_NEEDS_OF_ADDRESSES_KIBIBYTES = 900_000;

/** `odmoe WORDS` in a shell that has set the limits. */
async function odmoeUnder(
  limits: string,
  words: string,
  nodeOptions = '',
): Promise<{ status: number | null; stderr: string }> {
  const command = `${limits}; exec "${process.execPath}" "${join(packageRoot(), 'bin', 'odmoe')}" ${words}`;
  const env = { ...process.env, NODE_OPTIONS: nodeOptions };
  const child = spawn('bash', ['-c', command], { stdio: ['ignore', 'ignore', 'pipe'], env });
  let stderr = '';
  child.stderr.setEncoding('utf8').on('data', (text: string) => (stderr += text));
  const status = await new Promise<number | null>((resolve) => child.once('close', resolve));
  return { status, stderr };
}

describe('the limits of a process', () => {
  it('are sufficient on ordinary machines', () => {
    for (const kind of ['command', 'main', 'shadow', 'worker'] as const) requireMemory(ENOUGH, kind);
    requireMemory(readProcessLimits(), 'main');
  });

  it('cause a warning where they leave too little memory at the start', () => {
    const few = { ...ENOUGH, addressBytes: GIBIBYTE + 1 };
    requireMemory(few, 'command');
    assert.throws(() => requireMemory(few, 'worker'), { code: 'PROCESS_LIMIT', message: /ulimit -v/ });
    const small = { ...ENOUGH, heapBytes: 64 * 2 ** 20 };
    assert.throws(() => requireMemory(small, 'main'), { code: 'PROCESS_LIMIT', message: /--max-old-space-size/ });
  });

  it('explain a missing module where file descriptors are short, and only there', () => {
    assert.equal(isShortOfFiles('ERR_MODULE_NOT_FOUND', { ...ENOUGH, openFiles: 100 }), true);
    assert.equal(isShortOfFiles('ERR_MODULE_NOT_FOUND', ENOUGH), false);
    assert.equal(isShortOfFiles('ERR_OTHER', { ...ENOUGH, openFiles: 100 }), false);
  });

  it('end a daemon or a command with one line and a code, and no stack', async function () {
    if (process.platform !== 'linux') this.skip();
    this.timeout(60_000);
    const cases = [
      ['ulimit -n 20', 'main --model x'],
      ['ulimit -n 30', 'status'],
      ['ulimit -n 64', 'worker --model x'],
      ['ulimit -n 100', 'main --model x'],
      [`ulimit -v ${NODE_NEEDS_OF_ADDRESSES_KIBIBYTES}`, 'status'],
      ['true', 'shadow --model x', '--max-old-space-size=20'],
    ] as const;
    const ended = await Promise.all(
      cases.map(async ([limits, words, options]) => ({ limits, ...(await odmoeUnder(limits, words, options)) })),
    );
    for (const { limits, status, stderr } of ended) {
      assert.match(
        stderr,
        /^odmoe[^\n]*ulimit[^\n]* \[PROCESS_LIMIT\]\n$|^odmoe[^\n]*heap[^\n]* \[PROCESS_LIMIT\]\n$/,
        limits,
      );
      assert.equal(status, 3, limits);
    }
  });

  it('give a daemon that another process started the code of its last words, or else of its loss', () => {
    const words = 'info ready\nodmoe worker: the model cannot be fetched:\n/nope is missing [CONFIG_INVALID]\n';
    assert.equal(codeOfEnd('worker', words), 'CONFIG_INVALID');
    assert.equal(codeOfEnd('main', ''), 'NO_MAIN');
    assert.equal(codeOfEnd('shadow', 'Killed [WHATEVER]'), 'SHADOW_LOST');
    assert.equal(codeOfEnd('worker', 'warn peer refused [NODE_REFUSED]\ninfo and so on'), 'WORKER_LOST');
  });

  it('are named by the process that started a daemon which ran out of memory', () => {
    assert.match(memoryAdvice('got SIGABRT', 'FATAL ERROR: JavaScript heap out of memory'), /too little memory/);
    assert.match(memoryAdvice('was ended by SIGKILL', ''), /dmesg/);
    assert.equal(memoryAdvice('ended with status 2', 'cannot listen'), '');
  });
});
