import assert from 'node:assert/strict';
import { spawn, type ChildProcess } from 'node:child_process';
import { randomInt } from 'node:crypto';
import { readdirSync, readFileSync, statSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { packageRoot } from '../../shared/base/files/package-root.js';
import type { RoleSetting } from '../../shared/settings/setting-choices.js';
import { openTokenizer } from '../../shared/language/tokenizer/load-tokenizer.js';
import { identifyPeer } from '../wall.js';
import { packOf } from './harness/test-models.js';
import { waitUntil } from './harness/wait-until.js';

const MARK = 'Zebedee keeps 7391 violet umbrellas';
/** So many tokens in a row, in any notation of a list, are no accident. */
const RUN_TOKENS = 5;
const MAX_TOKENS = 12;

/** A daemon in a process of its own, and all that it has written. */
interface Listening {
  readonly child: ChildProcess;
  readonly written: Buffer[];
}

/** All bytes of the files under the directory. */
function filesUnder(directory: string): Buffer[] {
  return readdirSync(directory, { recursive: true, encoding: 'utf8' }).flatMap((name) => {
    const path = join(directory, name);
    return statSync(path).isFile() ? [readFileSync(path)] : [];
  });
}

/** The forms in which the mark may stand in bytes. */
function traces(text: string, tokens: readonly number[]): (string | Buffer)[] {
  const words = text.split(' ').slice(0, 2).join(' ');
  const runs = tokens.slice(0, tokens.length - RUN_TOKENS + 1).map((_, at) => tokens.slice(at, at + RUN_TOKENS));
  const numbers = runs.flatMap((run) => [run.join(','), run.join(', '), run.join(' ')]);
  const packed = runs.map((run) => Buffer.from(Uint32Array.from(run).buffer));
  return [words, Buffer.from(words, 'utf16le'), JSON.stringify(words).slice(1, -1), ...numbers, ...packed];
}

describe('a prompt in a cluster of processes that log all they can', function () {
  this.timeout(120_000);
  const daemons: Listening[] = [];
  const cluster = `secret-${process.pid}-${randomInt(1_000_000)}`;
  let directory: string;
  let pack: string;

  before(async () => {
    directory = await mkdtemp(join(tmpdir(), 'odmoe-secret-'));
    pack = await packOf('demo');
  });

  after(async () => {
    for (const { child } of daemons) child.kill('SIGKILL');
    await rm(directory, { recursive: true, force: true });
  });

  function run(args: readonly string[], input = ''): Listening {
    const child = spawn(process.execPath, [...args], {
      stdio: ['pipe', 'pipe', 'pipe'],
      cwd: directory,
      env: { ...process.env, XDG_STATE_HOME: directory, ODMOE_STATE: directory, HOME: directory },
    });
    const written: Buffer[] = [];
    child.stdout?.on('data', (bytes: Buffer) => written.push(bytes));
    child.stderr?.on('data', (bytes: Buffer) => written.push(bytes));
    child.stdin?.end(input);
    return { child, written };
  }

  /** Starts a daemon. Resolves to what it says of its addresses. */
  async function start(role: RoleSetting, flags: readonly string[]): Promise<string> {
    const fixed = [
      '--cluster',
      cluster,
      '--discovery',
      'static',
      '--host',
      '127.0.0.1',
      '--port',
      '0',
      '--device',
      'cpu',
    ];
    const entry = join(packageRoot(), 'dist', `${role}-node`, 'main.js');
    const started = run([entry, ...fixed, '--model', pack, '--threads', '1', '--log-level', 'debug', ...flags]);
    daemons.push(started);
    const said = (): string => Buffer.concat(started.written).toString();
    await waitUntil(`${role} listens`, () => /listening on \S+\n/.test(said()));
    return said();
  }

  const addressIn = (said: string): string => /listening on (\S+)\n/.exec(said)?.[1] ?? assert.fail(said);

  it('stands in no log, metric, file, core limit or list of processes', async () => {
    const said = await start('main', ['--http', '127.0.0.1:0']);
    const main = addressIn(said);
    const url = /serves HTTP at (\S+)/.exec(said)?.[1] ?? assert.fail(said);
    await start('worker', ['--main', main]);
    await start('shadow', ['--main', main]);
    assert.equal((await identifyPeer(main, 5000)).cluster, cluster);
    await waitUntil('a worker and a shadow are connected', async () => {
      const metrics = await (await fetch(`${url}/metrics`)).text();
      return /odmoe_nodes\{role="worker"\} 1/.test(metrics) && /odmoe_nodes\{role="shadow"\} 1/.test(metrics);
    });

    const asked = run(
      [join(packageRoot(), 'bin', 'odmoe'), 'prompt', '-', '--main', main, '--max-tokens', String(MAX_TOKENS)],
      `${MARK}\n`,
    );
    const watched = new Set<string>();
    const look = (): void => {
      for (const { child } of [...daemons, asked]) {
        if (child.pid === undefined || child.exitCode !== null) continue;
        for (const name of ['cmdline', 'comm', 'environ'])
          watched.add(readFileSync(`/proc/${child.pid}/${name}`, 'latin1'));
      }
    };
    look();
    await new Promise((resolve) => asked.child.once('close', resolve));
    assert.equal(asked.child.exitCode, 0, Buffer.concat(asked.written).toString());
    const body = { messages: [{ role: 'user', content: MARK }], max_tokens: MAX_TOKENS };
    const headers = { 'content-type': 'application/json' };
    const answer = await fetch(`${url}/v1/chat/completions`, { method: 'POST', headers, body: JSON.stringify(body) });
    assert.equal(answer.status, 200);
    const refused = await fetch(`${url}/v1/completions`, {
      method: 'POST',
      headers,
      body: JSON.stringify({ prompt: MARK, max_tokens: 'many' }),
    });
    assert.equal(refused.status, 400);
    look();
    const metrics = Buffer.from(await (await fetch(`${url}/metrics`)).arrayBuffer());

    const tokens = (await openTokenizer(pack))?.encode(MARK) ?? assert.fail('the pack has a tokenizer');
    assert.ok(tokens.length > RUN_TOKENS);
    const places: [string, Buffer][] = [
      ['the metrics', metrics],
      ...daemons.map(({ written }, at): [string, Buffer] => [`what daemon ${at} wrote`, Buffer.concat(written)]),
      ...[...watched].map((text): [string, Buffer] => ['the list of processes', Buffer.from(text, 'latin1')]),
      ...filesUnder(directory).map((bytes): [string, Buffer] => ['a file of state', bytes]),
    ];
    for (const [place, bytes] of places) {
      for (const trace of traces(MARK, tokens)) {
        assert.ok(!bytes.includes(trace), `${place} has ${typeof trace === 'string' ? trace : trace.toString('hex')}`);
      }
    }
    const written = daemons.map(({ written: parts }) => Buffer.concat(parts).toString());
    assert.match(written[0] ?? '', /HTTP request ended/, "main's log has the request");

    for (const { child } of daemons) {
      assert.match(readFileSync(`/proc/${child.pid}/limits`, 'utf8'), /Max core file size\s+0\s+0\s/);
      assert.equal(Number.parseInt(readFileSync(`/proc/${child.pid}/coredump_filter`, 'utf8'), 16), 0);
    }
  });

  it('is found where it does stand: the search is not blind', () => {
    const tokens = [11, 222, 3, 44, 5, 666];
    const found = (bytes: Buffer): boolean => traces(MARK, tokens).some((trace) => bytes.includes(trace));
    assert.ok(found(Buffer.from(`x ${MARK} y`)));
    assert.ok(found(Buffer.from(MARK, 'utf16le')));
    assert.ok(found(Buffer.from('tokens: [222, 3, 44, 5, 666]')));
    assert.ok(found(Buffer.from(Uint32Array.from(tokens).buffer)));
    assert.ok(!found(Buffer.from('tokens: [222, 3]')));
  });
});
