import assert from 'node:assert/strict';
import { createPublicKey } from 'node:crypto';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createAuthorityFiles, readAuthorityFiles, writeAuthorityRoster } from '../../engine/trust/authority-files.js';
import { forgetIdentity, keyToCertify, readIdentity, storeIdentity } from '../../engine/trust/identity-files.js';
import { openNodeTrust } from '../../engine/trust/open-node-trust.js';
import { certifyPeer, firstRoster, removePeer, restoredRoster } from '../../engine/trust/roster-changes.js';
import { type Roster, signRoster } from '../../engine/trust/roster.js';
import { EMPTY_TOKEN_BOOK } from '../../engine/trust/token-book.js';
import type { Logger } from '../../shared/base/log/logger.js';
import { createAuthority, createNodeKey, readPeerCertificate } from '../../shared/transport/trust/certificate.js';
import { done } from './refusals.js';

const SILENT: Logger = { error: () => undefined, warn: () => undefined, info: () => undefined, debug: () => undefined };
const NOW_MS = 1_000_000;

describe("a daemon's part in the trust of its cluster", () => {
  let stateDirectory: string;
  const authority = createAuthority('home');

  beforeEach(() => {
    stateDirectory = mkdtempSync(join(tmpdir(), 'odmoe-trust-'));
  });

  afterEach(() => {
    rmSync(stateDirectory, { recursive: true, force: true });
  });

  const node = (role: 'main' | 'worker', id: string) => ({ role, id, cluster: 'home', stateDirectory }) as const;

  async function makeAuthority(): Promise<void> {
    const state = { authority, roster: firstRoster('home'), tokens: EMPTY_TOKEN_BOOK };
    await createAuthorityFiles(stateDirectory, state);
  }

  /** Lets the node join as main would. Returns the roster that lists it. */
  async function joined(role: 'worker', id: string, roster = firstRoster('home')): Promise<Roster> {
    const key = await keyToCertify(stateDirectory, id);
    const entry = done(certifyPeer(authority, roster, { role, id }, createPublicKey(key), NOW_MS));
    await storeIdentity(stateDirectory, id, {
      certificate: entry.certificate,
      authority: authority.certificate,
      roster: signRoster(entry.roster, authority),
    });
    return entry.roster;
  }

  it('is nothing without an authority, and before a worker has joined', async () => {
    assert.equal(await openNodeTrust(node('main', 'box'), NOW_MS, SILENT), null);
    assert.equal(await openNodeTrust(node('worker', 'jetson-2'), NOW_MS, SILENT), null);
  });

  it('begins with the first start of main, which lists and certifies itself once', async () => {
    await makeAuthority();
    const first = await openNodeTrust(node('main', 'box'), NOW_MS, SILENT);
    assert.ok(first !== null);
    const peer = done(readPeerCertificate(first.trust.own.certificate, first.trust.authority));
    assert.deepEqual([peer.role, peer.id, peer.cluster], ['main', 'box', 'home']);
    assert.equal(first.trust.refusalOf(peer), null);
    const kept = await readAuthorityFiles(stateDirectory, 'home');
    assert.deepEqual(
      kept?.roster.entries.map(({ id, role }) => [id, role]),
      [['box', 'main']],
    );
    const second = await openNodeTrust(node('main', 'box'), NOW_MS + 1, SILENT);
    assert.ok(second !== null);
    assert.ok(second.trust.own.certificate.equals(first.trust.own.certificate));
    assert.equal(second.trust.roster?.count, first.trust.roster?.count);
  });

  it("goes on with the newest roster that main has seen where the authority's files have an old one", async () => {
    await makeAuthority();
    const first = await openNodeTrust(node('main', 'box'), NOW_MS, SILENT);
    assert.ok(first?.authority);
    const old = first.authority.roster;
    const worker = { role: 'worker', id: 'jetson' } as const;
    const { roster: listed, ...entry } = done(
      certifyPeer(authority, old, worker, createPublicKey(createNodeKey()), NOW_MS),
    );
    const removed = done(removePeer(listed, 'jetson', NOW_MS));
    done(first.trust.takeRoster(signRoster(removed, authority)));
    await first.saved();
    await writeAuthorityRoster(stateDirectory, listed, authority);
    const second = await openNodeTrust(node('main', 'box'), NOW_MS, SILENT);
    assert.equal(second?.trust.roster?.count, removed.count);
    assert.equal(second?.authority?.roster.count, removed.count);
    assert.equal((await readAuthorityFiles(stateDirectory, 'home'))?.roster.count, removed.count);
    const peer = done(readPeerCertificate(entry.certificate, first.trust.authority));
    assert.notEqual(second?.trust.refusalOf(peer), null);
  });

  it('lists main with a new key where it has lost the one of before, and not again after that', async () => {
    await makeAuthority();
    const first = await openNodeTrust(node('main', 'box'), NOW_MS, SILENT);
    const before = first?.trust.roster?.entries[0]?.keyDigest;
    await forgetIdentity(stateDirectory, 'box');
    const second = await openNodeTrust(node('main', 'box'), NOW_MS + 1, SILENT);
    const entries = second?.trust.roster?.entries ?? [];
    assert.deepEqual(
      entries.map(({ id, role, removed }) => [id, role, removed]),
      [
        ['box', 'main', NOW_MS + 1],
        ['box', 'main', undefined],
      ],
    );
    assert.equal(entries[0]?.keyDigest, before);
    assert.equal(second?.trust.ownRemoval, null);
    const third = await openNodeTrust(node('main', 'box'), NOW_MS + 2, SILENT);
    assert.equal(third?.trust.roster?.count, second?.trust.roster?.count);
  });

  it('lists main with a new key where the roster of a backup has not the one that it has', async () => {
    await makeAuthority();
    const first = await openNodeTrust(node('main', 'box'), NOW_MS, SILENT);
    await writeAuthorityRoster(stateDirectory, restoredRoster(firstRoster('home'), NOW_MS), authority);
    const second = await openNodeTrust(node('main', 'box'), NOW_MS + 1, SILENT);
    assert.ok(first !== null && second !== null);
    assert.equal(second.trust.ownRemoval, null);
    assert.notEqual(second.trust.ownPeer.keyDigest, first.trust.ownPeer.keyDigest);
    assert.deepEqual(
      second.trust.roster?.entries.map(({ keyDigest }) => keyDigest),
      [second.trust.ownPeer.keyDigest],
    );
  });

  it('ends the key of a main of another id, and gives it a new one when it starts again', async () => {
    await makeAuthority();
    for (const [id, nowMs] of [
      ['box', NOW_MS],
      ['other', NOW_MS + 1],
      ['box', NOW_MS + 2],
    ] as const) {
      const opened = await openNodeTrust(node('main', id), nowMs, SILENT);
      assert.equal(opened?.trust.ownRemoval, null);
      const present = opened?.trust.roster?.entries.filter(({ removed }) => removed === undefined) ?? [];
      assert.deepEqual(
        present.map((entry) => [entry.id, entry.keyDigest]),
        [[id, opened?.trust.ownPeer.keyDigest]],
      );
    }
  });

  it('starts again with a new authority when main has one', async () => {
    await joined('worker', 'box');
    await makeAuthority();
    // The identity of "box" is that of a worker of the same authority, which main cannot be.
    await assert.rejects(openNodeTrust(node('main', 'box'), NOW_MS, SILENT), { code: 'CONFIG_INVALID' });
    const other = await openNodeTrust(node('main', 'other'), NOW_MS, SILENT);
    assert.equal(other?.trust.cluster, 'home');
  });

  it('keeps a newer roster for the next start', async () => {
    const roster = await joined('worker', 'jetson-2');
    const opened = await openNodeTrust(node('worker', 'jetson-2'), NOW_MS, SILENT);
    assert.ok(opened !== null);
    const newer = done(removePeer(roster, 'jetson-2', NOW_MS));
    done(opened.trust.takeRoster(signRoster(newer, authority)));
    await opened.saved();
    assert.equal((await readIdentity(stateDirectory, 'jetson-2'))?.roster.count, newer.count);
    const again = await openNodeTrust(node('worker', 'jetson-2'), NOW_MS, SILENT);
    assert.equal(again?.trust.roster?.count, newer.count);
  });

  it('says when a roster could not be kept, and goes on with it', async () => {
    const roster = await joined('worker', 'jetson-2');
    const lines: string[] = [];
    const log: Logger = { ...SILENT, error: (event) => void lines.push(event) };
    const opened = await openNodeTrust(node('worker', 'jetson-2'), NOW_MS, log);
    assert.ok(opened !== null);
    rmSync(stateDirectory, { recursive: true });
    const newer = done(removePeer(roster, 'jetson-2', NOW_MS));
    done(opened.trust.takeRoster(signRoster(newer, authority)));
    await opened.saved();
    assert.equal(opened.trust.roster?.count, newer.count);
    assert.match(lines[0] ?? '', /was not kept/);
  });

  it('goes on with the roster of the authority when main was ended between writing it and its own', async () => {
    await makeAuthority();
    await openNodeTrust(node('main', 'box'), NOW_MS, SILENT);
    const kept = await readAuthorityFiles(stateDirectory, 'home');
    assert.ok(kept !== null);
    const next = await joined('worker', 'jetson-2', kept.roster);
    await writeAuthorityRoster(stateDirectory, next, authority);
    const again = await openNodeTrust(node('main', 'box'), NOW_MS, SILENT);
    assert.equal(again?.trust.roster?.count, next.count);
  });
});
