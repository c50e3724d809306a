import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { once } from 'node:events';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { askHealth, daemonsOfHomes } from '../../cli/service/ask-health.js';
import { DaemonReport } from '../../engine/daemon/daemon-report.js';
import { healthDirectory, serveHealth } from '../../engine/daemon/health-socket.js';

describe('the socket by which a daemon is asked for its health', () => {
  let home: string;
  let closers: (() => void)[];

  beforeEach(() => {
    home = mkdtempSync(join(tmpdir(), 'odmoe-health-'));
    closers = [];
  });

  afterEach(() => {
    for (const close of closers) close();
    rmSync(home, { recursive: true });
  });

  async function serve(id: string, report = new DaemonReport()): Promise<void> {
    closers.push(await serveHealth({ id, role: 'worker', stateDirectory: join(home, 'cluster') }, report));
  }

  const pathOf = (id: string): string => join(healthDirectory(home), `${id}.sock`);

  it("answers with the daemon's phase and words, for its own user alone", async () => {
    const report = new DaemonReport();
    await serve('w1', report);
    assert.deepEqual(await askHealth(pathOf('w1')), { id: 'w1', role: 'worker', phase: 'starting', words: 'starts' });
    report.waiting('waiting for main');
    assert.deepEqual(await askHealth(pathOf('w1')), {
      id: 'w1',
      role: 'worker',
      phase: 'waiting',
      words: 'waiting for main',
    });
    assert.equal(statSync(pathOf('w1')).mode & 0o777, 0o600);
    assert.equal(statSync(dirname(pathOf('w1'))).mode & 0o777, 0o700);
  });

  it('is found by the id of the daemon, and gone with it', async () => {
    await serve('w2');
    await serve('w1');
    writeFileSync(join(healthDirectory(home), 'notes'), '');
    assert.deepEqual(
      (await daemonsOfHomes([home, join(home, 'nowhere')], null)).map(({ id }) => id),
      ['w1', 'w2'],
    );
    assert.deepEqual(await daemonsOfHomes([home], 'w2'), [{ id: 'w2', path: pathOf('w2') }]);
    assert.deepEqual(await daemonsOfHomes([home], 'w3'), []);
    closers.splice(0).forEach((close) => close());
    assert.ok(!existsSync(pathOf('w1')));
  });

  it('of a killed daemon answers nothing, and is replaced by the next one', async () => {
    await serve('w1');
    closers.splice(0).forEach((close) => close());
    // Node removes the socket of a server that it closes; one of a killed process stays.
    const script = `require('net').createServer().listen(${JSON.stringify(pathOf('w1'))}, () => process.kill(process.pid, 'SIGKILL'))`;
    spawnSync(process.execPath, ['-e', script]);
    assert.ok(existsSync(pathOf('w1')));
    assert.equal(await askHealth(pathOf('w1')), null);
    await serve('w1');
    assert.notEqual(await askHealth(pathOf('w1')), null);
    await assert.rejects(serve('w1'), { code: 'PORT_UNAVAILABLE', message: /another daemon with the id w1 runs/ });
  });

  it('that does not answer, or not in these words, is reported', async () => {
    await serve('w1');
    const path = join(healthDirectory(home), 'stuck.sock');
    const stuck = createServer((socket) => void closers.push(() => socket.destroy())).listen(path);
    await once(stuck, 'listening');
    closers.push(() => void stuck.close());
    await assert.rejects(askHealth(path, 100), { code: 'TIMEOUT', message: /does not answer/ });
    const strange = createServer((socket) => void socket.end('hello\n')).listen(join(healthDirectory(home), 'x.sock'));
    await once(strange, 'listening');
    closers.push(() => void strange.close());
    await assert.rejects(askHealth(join(healthDirectory(home), 'x.sock')), { code: 'PROTOCOL_VIOLATION' });
  });
});
