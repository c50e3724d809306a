import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createServer, type Socket } from 'node:net';
import { join } from 'node:path';
import { MainWait } from '../../cli/client/main-wait.js';
import { packageRoot } from '../../shared/base/files/package-root.js';

/** A clock that goes on only when a test says so. */
class HandClock {
  private atMs = 0;
  private readonly due = new Map<object, [ms: number, run: () => void]>();

  nowMs(): number {
    return this.atMs;
  }

  after(delayMs: number, run: () => void): { cancel: () => void; unref: () => void } {
    const key = {};
    this.due.set(key, [this.atMs + delayMs, run]);
    return { cancel: () => void this.due.delete(key), unref: () => undefined };
  }

  advance(ms: number): void {
    this.atMs += ms;
    for (const [key, [dueMs, run]] of this.due) {
      if (dueMs > this.atMs) continue;
      this.due.delete(key);
      run();
    }
  }
}

describe('the wait of a command for main', () => {
  let clock: HandClock;
  let said: string[];
  let wait: MainWait;
  beforeEach(() => {
    clock = new HandClock();
    said = [];
    wait = new MainWait(clock, (text) => said.push(text));
  });

  const work = (ms: number) => async (): Promise<void> => clock.advance(ms);

  it('is told after 3 s, once', async () => {
    await wait.during('at a:1', true, work(2999));
    assert.deepEqual(said, []);
    await wait.during('at a:1', true, work(3000));
    await wait.during('at a:1', true, work(9000));
    assert.deepEqual(said, ['waiting for main at a:1']);
  });

  it('goes on from the search to the question, and ends with the answer', async () => {
    await wait.during('on this host', false, work(2000));
    await wait.during('at a:1', true, work(900));
    await wait.during('at a:1', true, work(2000));
    assert.deepEqual(said, []);
    await wait.during('on this host', false, work(2000));
    await wait.during('at a:1', true, work(1000));
    assert.deepEqual(said, ['waiting for main at a:1']);
  });

  it('is told on stderr by a command whose main accepts and says nothing, with --json, too', async function () {
    this.timeout(30_000);
    const sockets: Socket[] = [];
    const server = createServer((socket) => {
      sockets.push(socket);
      socket.on('error', () => undefined);
    }).listen(0, '127.0.0.1');
    await once(server, 'listening');
    const bound = server.address();
    assert.ok(typeof bound === 'object' && bound !== null);
    const address = `127.0.0.1:${bound.port}`;
    const asking = spawn(process.execPath, [join(packageRoot(), 'bin/odmoe'), 'status', '--main', address, '--json']);
    try {
      const [first] = (await once(asking.stderr, 'data')) as [Buffer];
      assert.equal(first.toString(), `odmoe: waiting for main at ${address}\n`);
    } finally {
      asking.kill('SIGKILL');
      for (const socket of sockets) socket.destroy();
      server.close();
      await once(asking, 'close');
    }
  });
});
