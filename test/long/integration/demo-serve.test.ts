import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { chmod, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { runningDemos, type RunningDemo } from '../../integration/harness/running-demo.js';
import { waitUntil } from '../../integration/harness/wait-until.js';

const WORKERS = ['--workers', '2'];
const ANY_PORT = ['--http', '127.0.0.1:0'];

interface Completion {
  model: string;
  choices: { message: { role: string; content: string } }[];
}

describe('odmoe demo --serve', () => {
  const start = runningDemos();

  /** Waits for the line that the demo prints when it accepts clients, and returns the content of that line. */
  async function served(running: RunningDemo): Promise<{ url: string; model: string }> {
    await waitUntil('clients are served', () => running.printed.includes('"url"'));
    return JSON.parse(running.printed.trim().split('\n').at(-1) ?? '') as { url: string; model: string };
  }

  async function ask(url: string, model: string): Promise<string> {
    const messages = [{ role: 'user', content: 'What is 17 plus 25?' }];
    const response = await fetch(`${url}/v1/chat/completions`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ model, messages, max_tokens: 20 }),
    });
    assert.equal(response.status, 200, await response.clone().text());
    return ((await response.json()) as Completion).choices[0]?.message.content ?? '';
  }

  it('answers HTTP clients until Ctrl-C, which ends everything in order', async () => {
    const demo = start(['--serve', '--json', ...ANY_PORT, ...WORKERS]);
    const { url, model } = await served(demo);
    assert.equal(model, 'demo');
    const health = await fetch(`${url}/health`);
    assert.deepEqual([health.status, await health.json()], [200, { status: 'ok' }]);
    assert.match(await ask(url, model), /^17 plus 25 is 42\.$/);
    demo.child.kill('SIGINT');
    const { status, stderr } = await demo.outcome;
    assert.equal(status, 0, stderr);
    assert.equal(stderr, '');
    assert.deepEqual(demo.daemons(), [], 'they had stopped before it ended');
    await assert.rejects(fetch(`${url}/health`));
  });

  it('prints a command that gets an answer, after the requested one', async () => {
    const running = start(['What is 17 plus 25?', '--serve', ...ANY_PORT, ...WORKERS, '--max-tokens', '20']);
    await waitUntil('there is a command', () => /^curl .*\n/m.test(running.printed));
    assert.match(
      running.printed,
      /^\n> What is 17 plus 25\?\n\n17 plus 25 is 42\.\n[^]*served at http:\/\/127\.0\.0\.1:\d+ until Ctrl-C/,
    );
    const command = /^curl .*$/m.exec(running.printed)?.[0] ?? '';
    const answer = JSON.parse(execFileSync('sh', ['-c', `${command} --silent`], { encoding: 'utf8' })) as Completion;
    assert.ok((answer.choices[0]?.message.content ?? '').includes('fox'), JSON.stringify(answer));
    running.child.kill('SIGTERM');
    assert.equal((await running.outcome).status, 0);
    await running.assertNothingLeft();
  });

  it('continues without a lost worker, and ends with main', async () => {
    const running = start(['--serve', '--json', ...ANY_PORT, ...WORKERS]);
    const { url, model } = await served(running);
    running.killDaemon('worker-1');
    await waitUntil('the loss is shown', () => running.said.includes('worker-1 was ended by SIGKILL'));
    assert.match(await ask(url, model), /42/);
    running.killDaemon('main');
    const { status, stderr } = await running.outcome;
    assert.equal(status, 3);
    assert.match(stderr, /main was ended by SIGKILL.*\[NO_MAIN\]/s);
    await running.assertNothingLeft();
  });

  it('shows the warnings of main', async () => {
    const directory = await mkdtemp(join(tmpdir(), 'odmoe-demo-keys-'));
    try {
      const keys = join(directory, 'keys');
      await writeFile(keys, 'a-key-of-mine\n');
      await chmod(keys, 0o644);
      const running = start(['--serve', '--json', ...ANY_PORT, ...WORKERS, '--api-keys', keys]);
      await served(running);
      assert.match(running.said, /^\S+ warn +main main: everybody on this machine can read the API keys.*path=/m);
    } finally {
      await rm(directory, { recursive: true, force: true });
    }
  });

  it('refuses a used address, and contradictory flags', async () => {
    const taken = createServer().listen(0, '127.0.0.1');
    try {
      await waitUntil('the port is taken', () => taken.listening);
      const address = taken.address();
      assert.ok(address !== null && typeof address === 'object');
      const demo = start(['--serve', '--http', `127.0.0.1:${address.port}`, ...WORKERS]);
      const { status, stderr } = await demo.outcome;
      assert.equal(status, 3);
      assert.match(stderr, /cannot serve HTTP clients at [^]*in use[^]*\[PORT_UNAVAILABLE\]\n$/);
      assert.deepEqual(demo.daemons(), []);
    } finally {
      taken.close();
    }
    for (const flags of [
      ['--http', '127.0.0.1:0'],
      ['--serve', '--http', 'off'],
      ['--serve', '--http', 'default'],
      ['--api-keys', 'keys'],
    ]) {
      const demo = start(flags);
      const { status, stderr } = await demo.outcome;
      assert.equal(status, 2, flags.join(' '));
      assert.doesNotMatch(stderr, /starting main/);
    }
  });
});
