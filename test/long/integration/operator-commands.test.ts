import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { existsSync, readdirSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { odmoeCommand } from '../../../cli/demo/daemon-process.js';
import { pairWithMain } from '../../../engine/trust/enrol.js';
import { keyToCertify } from '../../../engine/trust/identity-files.js';
import { openNodeTrust } from '../../../engine/trust/open-node-trust.js';
import type { Roster } from '../../../engine/trust/roster.js';
import { stateDirectory } from '../../../shared/base/files/state-directory.js';
import { GrpcTransport } from '../../../shared/transport/grpc-transport.js';
import { identifyPeer } from '../../../shared/transport/node-clients.js';
import { Lines } from '../../unit/log-lines.js';
import { joinWithFiles, operatorServices, StoredMain } from '../../unit/stored-main.js';
import { UserDirectories } from '../../unit/user-directories.js';
import { RUNTIME } from '../../wall.js';

interface Ended {
  readonly status: number;
  readonly stdout: string;
  readonly stderr: string;
}

const TIME_LIMIT_MS = 60_000;
const DEVICE = 'cuda sm_87';

function rosterOf({ trust }: StoredMain): Roster {
  assert.ok(trust.roster !== null);
  return trust.roster;
}

/** The id of the main that answers a shadow which has joined before, with the roster that it had then. */
async function answerTo(stateDirectory: string, { address }: StoredMain): Promise<string> {
  const node = { id: 'attic', role: 'shadow', cluster: 'home', stateDirectory } as const;
  const opened = await openNodeTrust(node, RUNTIME.wallMs(), new Lines());
  assert.ok(opened !== null);
  const transport = new GrpcTransport(RUNTIME, null, opened.trust);
  return (await identifyPeer(transport, address, TIME_LIMIT_MS)).id;
}

describe('the commands of operators', function () {
  this.timeout(4 * TIME_LIMIT_MS);
  let user: UserDirectories;
  let main: StoredMain | null;

  beforeEach(() => {
    user = new UserDirectories();
    main = null;
  });

  afterEach(async () => {
    await main?.stop();
    user.remove();
  });

  function odmoe(...words: string[]): Promise<Ended> {
    const [executable, ...rest] = odmoeCommand(words);
    return new Promise((resolve) => {
      execFile(executable, rest, { timeout: TIME_LIMIT_MS }, (error, stdout, stderr) => {
        resolve({ status: error === null ? 0 : Number(error.code), stdout, stderr });
      });
    });
  }

  /** The standard output of a command that must succeed. */
  async function done(...words: string[]): Promise<string> {
    const { status, stdout, stderr } = await odmoe(...words);
    assert.equal(status, 0, `odmoe ${words.join(' ')}: ${stderr}`);
    return stdout;
  }

  async function start(): Promise<StoredMain> {
    const directory = stateDirectory('home');
    main = await StoredMain.start(directory, 'home', operatorServices(directory));
    return main;
  }

  /** A cluster that odmoe cluster init has made, with its main. */
  async function startNew(): Promise<StoredMain> {
    const made = await done('cluster', 'init', '--cluster', 'home');
    assert.match(
      made,
      /^Cluster "home" has an authority now: \/.*\/home\/authority \(back it up; who has it owns the cluster\)\.\n/,
    );
    return start();
  }

  it('make an authority once, and let a machine in by its code', async () => {
    const { desk, address } = await startNew();
    const again = await odmoe('cluster', 'init', '--cluster', 'home');
    assert.equal(again.status, 2);
    assert.match(again.stderr, /this cluster has an authority already.*\[CONFIG_INVALID\]/);
    const machine = { id: 'jetson-2', role: 'worker', device: DEVICE } as const;
    const key = await keyToCertify(user.path('jetson'), machine.id);
    const code = await new Promise<string>((resolve, reject) => {
      pairWithMain(address, { ...machine, key }, resolve, { runtime: RUNTIME }).catch(reject);
    });
    const wrong = await odmoe('accept', code === '000000' ? '000001' : '000000');
    assert.equal(wrong.status, 2);
    assert.match(
      wrong.stderr,
      /no machine with the code 000 00[01] waits; if a machine shows it.*\[JOIN_TOKEN_INVALID\]/,
    );
    assert.match(
      await done('node', 'list'),
      /1 machine waits: odmoe accept CODE\n {2}jetson-2 \(worker, "cuda sm_87", 127\.0\.0\.1\), for /,
    );
    const line = await done('accept', code.slice(0, 3), code.slice(3));
    assert.equal(line, `jetson-2 (worker, ${DEVICE}, 127.0.0.1) is in "home".   words: ${desk.words}\n`);
    const listed = await done('node', 'list');
    assert.match(listed, new RegExp(`^cluster home, words: ${desk.words}\\n`));
    assert.match(listed, /^jetson-2 +worker +\d{4}-\d\d-\d\d \d\d:\d\d UTC /m);
    assert.doesNotMatch(listed, /waits/);
  });

  it('make, list and revoke tokens, and remove who has joined by one', async () => {
    const { address } = await startNew();
    const created = await odmoe('token', 'create', '--role', 'worker', '--ttl', '2h', '--uses', '3');
    const token = created.stdout.trim();
    assert.match(token, /^odmoe1-[a-z2-7-]+$/);
    const [, id = ''] = /^valid 2 h 0 min, 3 machines, role worker; {2}id ([a-z2-7]{8})\n$/.exec(created.stderr) ?? [];
    await joinWithFiles(address, token, { id: 'jetson-2', role: 'worker', stateDirectory: user.path('jetson') });
    assert.match(
      await done('token', 'list'),
      new RegExp(`^${id} +worker +any +valid +2 +1 h 59 min .* jetson-2$`, 'm'),
    );
    assert.match(await done('token', 'revoke', id), /is revoked: nobody joins by it any more/);
    const { tokens } = JSON.parse(await done('token', 'list', '--json')) as { tokens: object[] };
    assert.ok(tokens.some((line) => 'state' in line && line.state === 'revoked' && 'uses_left' in line));
    assert.equal(await done('node', 'remove', 'jetson-2'), 'jetson-2 is removed; it had no connection with main.\n');
    const unknown = await odmoe('node', 'remove', 'jetson-2');
    assert.equal(unknown.status, 2);
    assert.match(unknown.stderr, /"home" has no node jetson-2.*\[USAGE\]/);
    assert.doesNotMatch(await done('node', 'list'), /jetson-2/);
    assert.match(await done('node', 'list', '--all'), /jetson-2/);
  });

  it('let another machine take the id of one that was lost', async () => {
    const { address, desk } = await startNew();
    const joinAt = async (host: string): Promise<void> => {
      const { text } = await desk.createToken({ role: 'worker', uses: 1, lifeMs: 60_000 });
      const machine = { id: 'jetson-2', role: 'worker', stateDirectory: user.path(host) } as const;
      await joinWithFiles(address, text, machine);
    };
    await joinAt('lost');
    await assert.rejects(joinAt('new'), { code: 'TRUST_REFUSED', message: /say on main: odmoe node replace jetson-2/ });
    assert.equal(
      await done('node', 'replace', 'jetson-2'),
      'the old jetson-2 is removed; it had no connection with main. Another machine can take its id: start it there with --id jetson-2.\n',
    );
    await joinAt('new');
    assert.match(await done('node', 'list'), /^jetson-2 +worker /m);
    const unknown = await odmoe('node', 'replace', 'jetson-3');
    assert.deepEqual([unknown.status, /has no node jetson-3.*\[USAGE\]/.test(unknown.stderr)], [2, true]);
  });

  it('make a laptop the one of an operator', async () => {
    const { address, desk } = await startNew();
    const added = await done('operator', 'add', 'anna');
    // The line that the operator copies has no token among its arguments.
    const [, token = ''] = / ODMOE_JOIN_TOKEN=(odmoe1-\S+) odmoe operator join --id anna\n/.exec(added) ?? [];
    const tokenFile = user.path('token');
    writeFileSync(tokenFile, `${token}\n`);
    user.moveTo('laptop');
    const stranger = await odmoe('node', 'list', '--main', address);
    assert.equal(stranger.status, 3);
    assert.match(
      stranger.stderr,
      /lets only operators ask: run this as the user who runs main, .* odmoe operator add NAME, then here ODMOE_JOIN_TOKEN=/,
    );
    const other = await odmoe('operator', 'join', '--id', 'berta', token, '--main', address);
    assert.equal(other.status, 2);
    assert.match(other.stderr, /is for the operator anna, and not for berta: give --id anna/);
    // Without --id it is the name of this user, which the token was not made for either.
    const unnamed = await odmoe('operator', 'join', token, '--main', address);
    assert.match(unnamed.stderr, /is for the operator anna, and not for \S+: give --id anna/);
    assert.equal(existsSync(user.path('laptop/config/odmoe/clusters/home')), false, 'a refused join leaves nothing');
    const both = await odmoe('operator', 'join', '--id', 'anna', token, '--join-file', tokenFile);
    assert.match(both.stderr, /give the token or --join-file, not both \[USAGE\]/);
    const none = await odmoe('operator', 'join', '--id', 'anna', '--main', address);
    assert.match(none.stderr, /by --join-file FILE or the variable ODMOE_JOIN_TOKEN \[USAGE\]/);
    const joined = await done('operator', 'join', '--id', 'anna', '--join-file', tokenFile, '--main', address);
    assert.match(joined, new RegExp(`^You are operator anna of "home" on this machine \\(words: ${desk.words}\\)`));
    assert.match(await done('node', 'list', '--main', address), /^anna +operator /m);
    const twice = await done('operator', 'join', '--id', 'anna', '--join-file', tokenFile, '--main', address);
    assert.match(twice, /^You are operator anna of "home" on this machine already, and the token was not used/);
    const taken = await odmoe('operator', 'add', 'anna', '--main', address);
    assert.equal(taken.status, 2);
    assert.match(
      taken.stderr,
      /anna is an operator of "home" since .*: choose another name, .*node replace anna \[USAGE\]/,
    );
    const ofMain = await odmoe('token', 'create', '--name', 'box', '--main', address);
    assert.match(ofMain.stderr, /box is main of "home" itself: choose another name \[USAGE\]/);
    const ids = user.path('laptop/config/odmoe/clusters/home/nodes');
    assert.deepEqual(readdirSync(ids), ['anna']);
    const again = await odmoe('operator', 'join', '--id', 'anna', `${token}x`, '--main', address);
    assert.equal(again.status, 2);
    assert.deepEqual(readdirSync(ids), ['anna'], 'a refusal takes no key from who has joined');
    const key = join(ids, 'anna', 'node.key');
    assert.equal(statSync(key).mode & 0o777, 0o600);
  });

  it('bring a cluster back whose main has lost its disk, and its machines go on', async () => {
    const first = await startNew();
    const { text } = await first.desk.createToken({ role: 'shadow', uses: 1, lifeMs: 60_000 });
    await joinWithFiles(first.address, text, { id: 'attic', role: 'shadow', stateDirectory: user.path('attic') });
    const file = user.path('home.backup');
    assert.match(await done('cluster', 'backup', file, '--cluster', 'home'), /Who has it owns the cluster/);
    assert.equal(statSync(file).mode & 0o777, 0o600);
    await first.desk.createToken({ role: 'worker', uses: 1, lifeMs: 60_000 });
    const { count } = rosterOf(first);
    await first.stop();
    user.moveTo('new-disk');
    const restored = await done('cluster', 'restore', file, '--cluster', 'home');
    assert.match(restored, /^The authority of "home" is restored: .*, with 1 machine beside main\.\n/);
    assert.match(restored, /\nNo join token of before is good any more: odmoe token create makes new ones\.\n/);
    const second = await start();
    assert.equal(second.desk.words, first.desk.words);
    assert.ok(rosterOf(second).count > count + 1000);
    assert.equal(await answerTo(user.path('attic'), second), 'box');
    assert.equal(rosterOf(second).entries.filter(({ id, removed }) => id === 'box' && removed === undefined).length, 1);
  });
});
