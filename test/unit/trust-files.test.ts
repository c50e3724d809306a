import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { createPublicKey } from 'node:crypto';
import {
  chmodSync,
  chownSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { open } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import fc from 'fast-check';
import {
  authorityDirectory,
  createAuthorityFiles,
  readAuthorityFiles,
  removeUnfinished,
  writeAuthorityRoster,
  writeTokens,
  type AuthorityState,
} from '../../engine/trust/authority-files.js';
import { backupCluster, restoreCluster } from '../../engine/trust/cluster-backup.js';
import { createCluster } from '../../engine/trust/create-cluster.js';
import { whileHeld } from '../../engine/trust/main-lock.js';
import {
  forgetIdentity,
  identityDirectory,
  keyToCertify,
  readIdentity,
  storeIdentity,
  storeRoster,
  type NodeCredentials,
} from '../../engine/trust/identity-files.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { packageRoot } from '../../shared/base/files/package-root.js';
import {
  createAuthority,
  createNodeKey,
  issueCertificate,
  keyDigest,
  type Authority,
} from '../../shared/transport/trust/certificate.js';
import { isRefusal } from '../../shared/transport/trust/refusal.js';
import { certifyPeer, firstRoster } from '../../engine/trust/roster-changes.js';
import { readRoster, signRoster, type Roster } from '../../engine/trust/roster.js';
import { createToken, EMPTY_TOKEN_BOOK } from '../../engine/trust/token-book.js';

/** The user who owns nothing. */
const NOBODY = 65_534;
const KEY_FILES = join(packageRoot(), 'dist', 'engine', 'trust', 'key-files.js');
const NOW_MS = Date.UTC(2026, 10, 25);
const home = createAuthority('home');

let folder = '';

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'odmoe-trust-'));
});
afterEach(() => rmSync(folder, { recursive: true }));

/** The directory of a cluster's state, in a folder that is not there yet. */
function stateOf(host: string): string {
  return join(folder, host, 'odmoe', 'home');
}

function code(expected: string, words: RegExp): (thrown: unknown) => boolean {
  return (thrown) => {
    assert.ok(thrown instanceof OdmoeError, String(thrown));
    assert.equal(thrown.code, expected, thrown.message);
    assert.match(thrown.message, words);
    return true;
  };
}

/** All that is written to standard error meanwhile. */
async function saidDuring(run: () => Promise<void>): Promise<string> {
  const write = process.stderr.write.bind(process.stderr);
  let said = '';
  process.stderr.write = (text: string | Uint8Array): boolean => ((said += String(text)), true);
  try {
    await run();
  } finally {
    process.stderr.write = write;
  }
  return said;
}

function modeOf(path: string): string {
  return (statSync(path).mode & 0o777).toString(8);
}

function newState(authority: Authority = home): AuthorityState {
  const made = createToken(
    EMPTY_TOKEN_BOOK,
    { role: 'worker', uses: 3, lifeMs: 1000 },
    '0'.repeat(64),
    { nowMs: NOW_MS, uptimeMs: 0, bootId: 'one', clockIsSetBack: false },
    { randomInt: () => 1 },
  );
  assert.ok(!isRefusal(made));
  const roster = certifyPeer(
    authority,
    firstRoster('home'),
    { role: 'main', id: 'box' },
    createPublicKey(createNodeKey()),
    NOW_MS,
  );
  assert.ok(!isRefusal(roster));
  return { authority, roster: roster.roster, tokens: made.book };
}

/** The state without the objects of keys, which are equal only to themselves. */
function comparable({ authority, roster, tokens }: AuthorityState): unknown {
  const key = authority.key.export({ type: 'pkcs8', format: 'der' }).toString('hex');
  return { key, certificate: authority.certificate, cluster: authority.cluster, roster, tokens };
}

describe('the files of an authority', () => {
  it('are read as they were written, and are for this user alone', async () => {
    const directory = stateOf('main');
    assert.equal(await readAuthorityFiles(directory, 'home'), null);
    const state = newState();
    await createAuthorityFiles(directory, state);
    const read = await readAuthorityFiles(directory, 'home');
    assert.ok(read !== null);
    assert.deepEqual(comparable(read), comparable(state));
    assert.deepEqual(readdirSync(directory), ['authority']);
    assert.equal(modeOf(join(directory, 'authority')), '700');
    assert.deepEqual(readdirSync(join(directory, 'authority')).sort(), [
      'authority.crt',
      'authority.key',
      'roster',
      'tokens',
    ]);
    for (const name of readdirSync(join(directory, 'authority'))) {
      assert.equal(modeOf(join(directory, 'authority', name)), '600', name);
    }
  });

  it('follow their roster and tokens', async () => {
    const directory = stateOf('main');
    const state = newState();
    await createAuthorityFiles(directory, state);
    const roster: Roster = { ...state.roster, count: 9 };
    await writeAuthorityRoster(directory, roster, home);
    await writeTokens(directory, EMPTY_TOKEN_BOOK);
    const read = await readAuthorityFiles(directory, 'home');
    assert.deepEqual([read?.roster, read?.tokens], [roster, EMPTY_TOKEN_BOOK]);
    assert.equal(modeOf(join(authorityDirectory(directory), 'roster')), '600');
  });

  it('are never overwritten by another authority', async () => {
    const directory = stateOf('main');
    await createAuthorityFiles(directory, newState());
    const again = createAuthorityFiles(directory, newState(createAuthority('home')));
    await assert.rejects(
      again,
      code(
        'CONFIG_INVALID',
        /has an authority already, .*put this directory aside.*after a restore the machines .* go on.*new one every machine has to join again/,
      ),
    );
    const read = await readAuthorityFiles(directory, 'home');
    assert.deepEqual(read?.authority.certificate, home.certificate);
    assert.deepEqual(readdirSync(directory), ['authority']);
  });

  it('are made whole by one of several that make them at the same time', async () => {
    const stateDirectory = stateOf('main');
    const made = Array.from({ length: 6 }, () =>
      whileHeld(stateDirectory, () => createCluster(stateDirectory, 'home')),
    );
    const results = await Promise.allSettled(made);
    assert.equal(results.filter(({ status }) => status === 'fulfilled').length, 1);
    assert.equal((await readAuthorityFiles(stateDirectory, 'home'))?.authority.cluster, 'home');
  });

  it('name what is missing or does not fit', async () => {
    const directory = stateOf('main');
    await createAuthorityFiles(directory, newState());
    await assert.rejects(
      readAuthorityFiles(directory, 'away'),
      code('CONFIG_INVALID', /of the cluster "home", and this is "away"/),
    );
    const other = stateOf('other');
    await createAuthorityFiles(other, newState(createAuthority('home')));
    for (const [name, words] of [
      ['authority.key', /authority\.crt: the key does not belong/],
      ['roster', /roster: the roster is not signed by this cluster's authority/],
    ] as const) {
      const path = join(authorityDirectory(directory), name);
      const own = readFileSync(path);
      writeFileSync(path, readFileSync(join(authorityDirectory(other), name)), { mode: 0o600 });
      await assert.rejects(readAuthorityFiles(directory, 'home'), code('STORAGE_FAILED', words));
      writeFileSync(path, 'damaged');
      await assert.rejects(readAuthorityFiles(directory, 'home'), code('STORAGE_FAILED', new RegExp(name)));
      rmSync(path);
      await assert.rejects(
        readAuthorityFiles(directory, 'home'),
        code('STORAGE_FAILED', /no such file; .*cluster restore/),
      );
      writeFileSync(path, own, { mode: 0o600 });
    }
    writeFileSync(join(authorityDirectory(directory), 'tokens'), '{}');
    await assert.rejects(
      readAuthorityFiles(directory, 'home'),
      code('STORAGE_FAILED', /tokens: not a list of join tokens/),
    );
  });
});

describe('the files of a node', () => {
  const rosterOf = (authority: Authority, count = 2): Buffer =>
    signRoster({ ...firstRoster('home'), count }, authority);

  /** Main certifies the key that the node asks for. */
  async function joined(directory: string, authority = home, id = 'w1'): Promise<NodeCredentials> {
    const key = await keyToCertify(directory, id);
    const certificate = issueCertificate(authority, { role: 'worker', id }, createPublicKey(key), 1);
    const roster = rosterOf(authority);
    await storeIdentity(directory, id, { certificate, authority: authority.certificate, roster });
    const identity = await readIdentity(directory, id);
    assert.ok(identity !== null);
    assert.equal(identity.peer.keyDigest, keyDigest(createPublicKey(key)));
    assert.equal(keyDigest(createPublicKey(identity.key)), identity.peer.keyDigest);
    return identity;
  }

  it('are there once it has joined, for this user alone', async () => {
    const directory = stateOf('worker');
    assert.equal(await readIdentity(directory, 'w1'), null);
    const { peer, roster, signedRoster, authority } = await joined(directory);
    assert.deepEqual(readRoster(signedRoster, authority), roster);
    assert.deepEqual([peer.id, peer.role, roster.count], ['w1', 'worker', 2]);
    assert.ok(authority.equals(home.certificate));
    const own = identityDirectory(directory, 'w1');
    assert.equal(own, join(directory, 'nodes', 'w1'));
    assert.equal(modeOf(own), '700');
    assert.deepEqual(readdirSync(own).sort(), ['authority.crt', 'node.crt', 'node.key', 'roster']);
    for (const name of readdirSync(own)) assert.equal(modeOf(join(own, name)), '600', name);
    assert.throws(() => identityDirectory(directory, '../w1'), /with the id/);
  });

  it('become private again, with a warning, if other users got rights to them', async () => {
    const directory = stateOf('worker');
    await joined(directory);
    const own = identityDirectory(directory, 'w1');
    const key = join(own, 'node.key');
    chmodSync(own, 0o755);
    chmodSync(key, 0o644);
    const said = await saidDuring(async () => assert.notEqual(await readIdentity(directory, 'w1'), null));
    assert.deepEqual([modeOf(own), modeOf(key)], ['700', '600']);
    const lines = said.trim().split('\n');
    assert.deepEqual(
      lines.map((line) => /^odmoe: (\S+): other users .* \(mode (\d+)\), .*none now/.exec(line)?.slice(1)),
      [
        [own, '755'],
        [key, '644'],
      ],
    );
    assert.equal(
      await saidDuring(async () => void (await readIdentity(directory, 'w1'))),
      '',
      'the warning comes once',
    );
  });

  it('are refused if they cannot be made private', async function () {
    // Only root can give a file away.
    if (process.getuid?.() !== 0) this.skip();
    const directory = stateOf('worker');
    const key = join(directory, 'node.key');
    await joined(directory);
    renameSync(join(identityDirectory(directory, 'w1'), 'node.key'), key);
    chmodSync(key, 0o644);
    chmodSync(folder, 0o755);
    for (const open of [join(folder, 'worker'), join(folder, 'worker', 'odmoe')]) chmodSync(open, 0o755);
    chownSync(directory, NOBODY, NOBODY);
    const errors = { missing: 'STORAGE_FAILED', invalid: 'STORAGE_FAILED', remedy: 'x' };
    const script = `import { readKey } from ${JSON.stringify(pathToFileURL(KEY_FILES).href)};
      readKey(${JSON.stringify(key)}, ${JSON.stringify(errors)}).then(() => console.log('read'), (error) => console.log(error.code, error.message));`;
    const as = { uid: NOBODY, gid: NOBODY, encoding: 'utf8' } as const;
    const { stdout, stderr } = spawnSync(process.execPath, ['--input-type=module', '-e', script], as);
    assert.match(
      stdout,
      /^STORAGE_FAILED .*node\.key: other users .*mode 644.*cannot be taken.*EPERM.*chmod 600/,
      stderr,
    );
  });

  it('keep the key that was asked for until its certificate comes', async () => {
    const directory = stateOf('worker');
    const one = await keyToCertify(directory, 'w1');
    const again = await keyToCertify(directory, 'w1');
    assert.ok(createPublicKey(again).equals(createPublicKey(one)));
    assert.equal(await readIdentity(directory, 'w1'), null, 'asking is not joining');
    await joined(directory);
    assert.ok(
      !createPublicKey(await keyToCertify(directory, 'w1')).equals(createPublicKey(one)),
      'each renewal has its key',
    );
  });

  it('are whole wherever a renewal was broken off', async () => {
    const directory = stateOf('worker');
    const own = identityDirectory(directory, 'w1');
    const before = await joined(directory);
    const next = await keyToCertify(directory, 'w1');
    assert.deepEqual((await readIdentity(directory, 'w1'))?.peer, before.peer, 'broken off before main answered');
    const certificate = issueCertificate(home, { role: 'worker', id: 'w1' }, createPublicKey(next), 2);
    const oldKey = readFileSync(join(own, 'node.key'));
    const nextKey = readFileSync(join(own, 'node.key.next'));
    await storeIdentity(directory, 'w1', { certificate, authority: home.certificate, roster: rosterOf(home, 3) });
    // The state between the last two steps: the certificate is new, and the key has its first name.
    writeFileSync(join(own, 'node.key'), oldKey);
    writeFileSync(join(own, 'node.key.next'), nextKey, { mode: 0o600 });
    const after = await readIdentity(directory, 'w1');
    assert.equal(after?.peer.keyDigest, keyDigest(createPublicKey(next)));
    assert.deepEqual(readFileSync(join(own, 'node.key')), nextKey);
    assert.equal(existsSync(join(own, 'node.key.next')), false);
  });

  it('take no certificate that is not for them', async () => {
    const directory = stateOf('worker');
    const publicKey = createPublicKey(await keyToCertify(directory, 'w1'));
    const other = createAuthority('home');
    const peer = { role: 'worker', id: 'w1' } as const;
    const authority = home.certificate;
    const roster = rosterOf(home);
    for (const [certified, words] of [
      [{ certificate: issueCertificate(other, peer, publicKey), authority }, /not of the authority/],
      [
        { certificate: issueCertificate(home, { ...peer, id: 'w2' }, publicKey), authority },
        /another node or another key/,
      ],
      [{ certificate: issueCertificate(home, peer, createPublicKey(createNodeKey())), authority }, /another key/],
      [{ certificate: authority, authority: Buffer.from('none') }, /not one of odmoe/],
      [
        { certificate: issueCertificate(home, peer, publicKey), authority, roster: rosterOf(other) },
        /roster is not signed by this cluster's authority/,
      ],
    ] as const) {
      await assert.rejects(storeIdentity(directory, 'w1', { roster, ...certified }), code('TRUST_REFUSED', words));
    }
    assert.equal(await readIdentity(directory, 'w1'), null);
  });

  it('never hold a roster of a lower count, in any order of arrival', async () => {
    const directory = stateOf('worker');
    await joined(directory);
    await fc.assert(
      fc.asyncProperty(fc.array(fc.integer({ min: 1, max: 30 }), { minLength: 1, maxLength: 8 }), async (counts) => {
        rmSync(join(identityDirectory(directory, 'w1'), 'roster'), { force: true });
        let highest = 0;
        for (const count of counts) {
          const result = await storeRoster(directory, 'w1', signRoster({ ...firstRoster('home'), count }, home));
          assert.equal(isRefusal(result), count < highest);
          highest = Math.max(highest, count);
          assert.equal((await readIdentity(directory, 'w1'))?.roster.count, highest);
        }
      }),
      { numRuns: 15 },
    );
  });

  it('keep their certificate when main comes with an older roster than they have seen', async () => {
    const directory = stateOf('worker');
    const before = await joined(directory);
    await storeRoster(directory, 'w1', rosterOf(home, 50));
    const next = createPublicKey(await keyToCertify(directory, 'w1'));
    const certificate = issueCertificate(home, { role: 'worker', id: 'w1' }, next, 3);
    const certified = { certificate, authority: home.certificate, roster: rosterOf(home, 4) };
    await assert.rejects(storeIdentity(directory, 'w1', certified), code('TRUST_REFUSED', /count 4, .* seen 50/));
    const after = await readIdentity(directory, 'w1');
    assert.deepEqual([after?.peer, after?.roster.count], [before.peer, 50]);
  });

  it('take rosters of their own authority alone', async () => {
    const directory = stateOf('worker');
    await joined(directory);
    const strange = signRoster({ ...firstRoster('home'), count: 99 }, createAuthority('home'));
    const result = await storeRoster(directory, 'w1', strange);
    assert.ok(isRefusal(result));
    assert.equal((await readIdentity(directory, 'w1'))?.roster.count, 2);
  });

  it('keep nothing of one authority beside another, and nothing once forgotten', async () => {
    const directory = stateOf('worker');
    await joined(directory);
    await storeRoster(directory, 'w1', signRoster({ ...firstRoster('home'), count: 50 }, home));
    const other = createAuthority('home');
    const moved = await joined(directory, other);
    assert.ok(moved.authority.equals(other.certificate));
    assert.equal(moved.roster.count, 2);
    await forgetIdentity(directory, 'w1');
    assert.equal(await readIdentity(directory, 'w1'), null);
    assert.equal(existsSync(directory), false, 'no directory stays that is empty then');
  });

  it('name what is missing or does not fit', async () => {
    const directory = stateOf('worker');
    const own = identityDirectory(directory, 'w1');
    await joined(directory);
    await joined(directory, home, 'w2');
    const tryWith = async (name: string, change: () => void, words: RegExp): Promise<void> => {
      const before = readFileSync(join(own, name));
      change();
      await assert.rejects(readIdentity(directory, 'w1'), code('STORAGE_FAILED', words));
      writeFileSync(join(own, name), before);
    };
    const copy = (name: string): void =>
      writeFileSync(join(own, name), readFileSync(join(identityDirectory(directory, 'w2'), name)));
    await tryWith('node.key', () => copy('node.key'), /the key of the certificate is not there; .*--rejoin/);
    await tryWith('node.crt', () => copy('node.crt'), /it is that of w2/);
    await tryWith('node.crt', () => writeFileSync(join(own, 'node.crt'), 'x'), /not a certificate in PEM/);
    await tryWith('roster', () => rmSync(join(own, 'roster')), /roster: no such file/);
    await tryWith('authority.crt', () => rmSync(join(own, 'authority.crt')), /no such file/);
    await tryWith(
      'authority.crt',
      () => writeFileSync(join(own, 'authority.crt'), readFileSync(join(own, 'node.crt'))),
      /not one of odmoe/,
    );
    assert.ok((await readIdentity(directory, 'w1')) !== null);
  });
});

describe('a backup of a cluster', () => {
  it('is restored on another disk, with a roster that nodes take', async () => {
    const directory = stateOf('main');
    const state = newState();
    await createAuthorityFiles(directory, state);
    const path = join(folder, 'home.backup');
    await backupCluster(directory, 'home', path);
    assert.equal(modeOf(path), '600');
    const restored = await restoreCluster(stateOf('new'), 'home', path, NOW_MS);
    const expected = { ...state, roster: { ...state.roster, count: NOW_MS }, tokens: EMPTY_TOKEN_BOOK };
    assert.equal(state.tokens.tokens.length, 1);
    assert.deepEqual(comparable(restored), comparable(expected), 'no token of before the backup is good again');
    const read = await readAuthorityFiles(stateOf('new'), 'home');
    assert.ok(read !== null);
    assert.deepEqual(comparable(read), comparable(restored));
    assert.deepEqual(readdirSync(stateOf('new')), ['authority'], 'nothing of the trial is left');
  });

  it('leaves no half of a file when it could not be written, so that the next try has the name', async () => {
    const directory = stateOf('main');
    await createAuthorityFiles(directory, newState());
    const path = join(folder, 'home.backup');
    const probe = await open(folder);
    const files = Object.getPrototypeOf(probe) as object;
    await probe.close();
    const sync = Object.getOwnPropertyDescriptor(files, 'sync');
    assert.ok(sync !== undefined);
    const fails = () => Promise.reject(Object.assign(new Error('no space left on device'), { code: 'ENOSPC' }));
    Object.defineProperty(files, 'sync', { ...sync, value: fails });
    try {
      await assert.rejects(backupCluster(directory, 'home', path), code('STORAGE_FULL', /home\.backup/));
    } finally {
      Object.defineProperty(files, 'sync', sync);
    }
    assert.equal(existsSync(path), false);
    await backupCluster(directory, 'home', path);
    await restoreCluster(stateOf('new'), 'home', path, NOW_MS);
  });

  it('keeps no key that a crashed process has left: when it is made, restored, and when main starts', async () => {
    const leave = (directory: string): void => {
      for (const name of ['authority.4242.partial', 'restoring-aB3xYz']) {
        mkdirSync(join(directory, name), { recursive: true });
        writeFileSync(join(directory, name, 'authority.key'), 'a key');
      }
    };
    leave(stateOf('main'));
    await createAuthorityFiles(stateOf('main'), newState());
    assert.deepEqual(readdirSync(stateOf('main')), ['authority']);
    const path = join(folder, 'home.backup');
    await backupCluster(stateOf('main'), 'home', path);
    leave(stateOf('new'));
    await restoreCluster(stateOf('new'), 'home', path, NOW_MS);
    assert.deepEqual(readdirSync(stateOf('new')), ['authority']);
    leave(stateOf('new'));
    await removeUnfinished(stateOf('new'));
    assert.deepEqual(readdirSync(stateOf('new')), ['authority']);
    await removeUnfinished(join(folder, 'nothing here'));
  });

  it('overwrites nothing', async () => {
    const directory = stateOf('main');
    await createAuthorityFiles(directory, newState());
    const path = join(folder, 'home.backup');
    await backupCluster(directory, 'home', path);
    const before = readFileSync(path);
    await assert.rejects(backupCluster(directory, 'home', path), code('USAGE', /home\.backup exists already/));
    assert.deepEqual(readFileSync(path), before);
    await assert.rejects(
      restoreCluster(directory, 'home', path, NOW_MS),
      code('CONFIG_INVALID', /has an authority already/),
    );
    assert.deepEqual(readdirSync(directory), ['authority']);
  });

  it('is made of an authority that is there and whole', async () => {
    const path = join(folder, 'home.backup');
    await assert.rejects(
      backupCluster(stateOf('main'), 'home', path),
      code(
        'CONFIG_INVALID',
        /no authority of "home" at .*authority: run this on main's host, as the user who runs main/,
      ),
    );
    await createAuthorityFiles(stateOf('main'), newState());
    rmSync(join(authorityDirectory(stateOf('main')), 'authority.key'));
    await assert.rejects(backupCluster(stateOf('main'), 'home', path), code('STORAGE_FAILED', /no such file/));
    assert.equal(existsSync(path), false);
  });

  it('is refused where it is damaged, of another cluster, or none, and then changes nothing', async () => {
    await createAuthorityFiles(stateOf('main'), newState());
    const path = join(folder, 'home.backup');
    await backupCluster(stateOf('main'), 'home', path);
    const text = readFileSync(path, 'utf8');
    const refuse = async (contents: string, words: RegExp, cluster = 'home'): Promise<void> => {
      writeFileSync(path, contents);
      await assert.rejects(restoreCluster(stateOf('new'), cluster, path, NOW_MS), code('CONFIG_INVALID', words));
      assert.equal(existsSync(authorityDirectory(stateOf('new'))), false);
    };
    await refuse(text, /a backup of the cluster "home", and this is "away"/, 'away');
    await refuse(text.slice(0, -10), /not valid JSON/);
    await refuse('{}', /not a backup of a cluster/);
    await refuse(text.replace('backup 1', 'backup 2'), /of another version/);
    await refuse(
      text.replace(/("authority.key": ")(.)/, (_, name: string, first: string) => name + (first === 'A' ? 'B' : 'A')),
      /is damaged/,
    );
    const { format, cluster } = JSON.parse(text) as { format: string; cluster: string };
    await refuse(JSON.stringify({ format, cluster, files: {}, sha256: '' }), /not a backup of a cluster/);
    rmSync(path);
    await assert.rejects(restoreCluster(stateOf('new'), 'home', path, NOW_MS), code('CONFIG_INVALID', /no such file/));
  });
});
