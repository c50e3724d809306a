import assert from 'node:assert/strict';
import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { identifyProcess, isRunning } from '../../cli/background/process-identity.js';
import { withHostLock } from '../../cli/background/host-lock.js';
import { readRecords, removeRecord, writeRecord, type ProcessRecord } from '../../cli/background/process-records.js';
import { stopInBackground } from '../../cli/background/stop-in-background.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { stateDirectory, stateHome } from '../../shared/base/files/state-directory.js';

const KEEPS_RUNNING = 'console.log("ready"); setInterval(() => undefined, 1000)';
const IGNORES_SIGTERM = `process.on("SIGTERM", () => undefined); ${KEEPS_RUNNING}`;

describe('up and down: the record of processes', () => {
  let directory: string;
  const children: ChildProcess[] = [];

  beforeEach(async () => {
    directory = await mkdtemp(join(tmpdir(), 'odmoe-up-down-'));
  });

  afterEach(async () => {
    for (const child of children.splice(0)) child.kill('SIGKILL');
    await rm(directory, { recursive: true, force: true });
  });

  async function startRecorded(id: string, script: string): Promise<ProcessRecord> {
    const child = spawn(process.execPath, ['-e', script], { stdio: ['ignore', 'pipe', 'inherit'] });
    children.push(child);
    await once(child.stdout, 'data');
    const identity = await identifyProcess(child.pid ?? 0);
    assert.ok(identity !== null, 'a running process is found');
    const { pid, startedAt, commandLine } = identity;
    const record: ProcessRecord = { id, role: 'worker', pid, started_at: startedAt, command_line: commandLine };
    await writeRecord(directory, record);
    return record;
  }

  const read = () => readRecords(directory, (path, reason) => assert.fail(`${path}: ${reason}`));
  const identity = (record: ProcessRecord) => ({
    pid: record.pid,
    startedAt: record.started_at,
    commandLine: record.command_line,
  });

  it('lets odmoe stop a process, and then forgets it', async () => {
    const record = await startRecorded('worker-1', KEEPS_RUNNING);
    assert.deepEqual([...(await read()).values()], [record]);
    assert.equal((await stopInBackground(directory, record)).kind, 'stopped');
    assert.equal(await isRunning(identity(record)), false);
    assert.deepEqual(await readdir(directory), []);
  });

  it('lets odmoe kill a process that does not stop', async () => {
    const record = await startRecorded('worker-1', IGNORES_SIGTERM);
    assert.equal((await stopInBackground(directory, record, 100)).kind, 'killed');
    assert.equal(await isRunning(identity(record)), false);
  });

  it('protects a process that only has the recorded number', async () => {
    const record = await startRecorded('worker-1', KEEPS_RUNNING);
    for (const other of [
      { ...record, started_at: 'another time' },
      { ...record, command_line: 'something else' },
    ]) {
      await writeRecord(directory, other);
      assert.equal((await stopInBackground(directory, other)).kind, 'wasNotRunning');
      assert.equal(await isRunning(identity(record)), true, 'the stranger lives');
      assert.deepEqual(await readdir(directory), [], 'the stale record is removed');
    }
  });

  it('counts an ended process as not running, even before its parent has looked', async () => {
    const record = await startRecorded('worker-1', KEEPS_RUNNING);
    const child = children[0];
    assert.ok(child !== undefined);
    const exited = once(child, 'exit');
    child.kill('SIGKILL');
    await exited;
    assert.equal((await stopInBackground(directory, record)).kind, 'wasNotRunning');
  });

  it('leaves out, and names, files that are no records', async () => {
    await writeFile(join(directory, 'worker-9.pid'), '12345\n');
    await writeFile(join(directory, 'worker-9.log'), 'not a record either');
    const unreadable: string[] = [];
    const records = await readRecords(directory, (path) => unreadable.push(path));
    assert.equal(records.size, 0);
    assert.deepEqual(unreadable, [join(directory, 'worker-9.pid')]);
  });

  it('is empty for a cluster that was never up', async () => {
    assert.equal((await readRecords(join(directory, 'none'), () => undefined)).size, 0);
  });

  it('keeps the entry of another process', async () => {
    const record = await startRecorded('worker-1', KEEPS_RUNNING);
    await removeRecord(directory, 'worker-1', record.pid + 1);
    assert.equal((await read()).size, 1);
    await removeRecord(directory, 'worker-1', record.pid);
    assert.equal((await read()).size, 0);
  });

  it('lets one command at a time work on a host’s daemons; another waits, or names that process', async () => {
    const order: string[] = [];
    let end: () => void = () => undefined;
    const ended = new Promise<void>((resolve) => (end = resolve));
    const first = withHostLock(directory, 0, assert.fail, async () => {
      await assert.rejects(
        withHostLock(directory, 0, assert.fail, async () => undefined),
        (thrown: unknown) =>
          thrown instanceof OdmoeError && thrown.code === 'TIMEOUT' && thrown.message.includes(`${process.pid}`),
      );
      await ended;
      order.push('first');
    });
    while (!(await readdir(directory)).includes('up-down.lock')) await new Promise(setImmediate);
    const waits: string[] = [];
    const second = withHostLock(
      directory,
      10_000,
      (reason) => {
        waits.push(reason);
        end();
      },
      async () => order.push('second'),
    );
    await Promise.all([first, second]);
    assert.deepEqual(order, ['first', 'second']);
    assert.equal(waits.length, 1);
    assert.deepEqual(await readdir(directory), []);
  });

  it('is stored where the XDG specification says', () => {
    assert.equal(stateDirectory('home', stateHome({ XDG_STATE_HOME: '/var/state' })), '/var/state/odmoe/home');
    const fallback = stateDirectory('home', stateHome({ XDG_STATE_HOME: 'relative' }));
    assert.ok(fallback.endsWith('/.local/state/odmoe/home'), fallback);
  });
});
