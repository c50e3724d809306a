import assert from 'node:assert/strict';
import { createPublicKey } from 'node:crypto';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createAuthorityFiles } from '../../engine/trust/authority-files.js';
import { keyToCertify, storeIdentity } from '../../engine/trust/identity-files.js';
import {
  addressesOf,
  KEY_JITTER_MS,
  KEY_LIFE_MS,
  type KeyRenewal,
  keyStep,
  startKeyRenewal,
} from '../../engine/trust/key-renewal.js';
import { proveNextKey } from '../../engine/trust/key-proof.js';
import type { KeyStore, NodeTrust } from '../../engine/trust/node-trust.js';
import { openNodeTrust } from '../../engine/trust/open-node-trust.js';
import { certifyPeer, firstRoster } from '../../engine/trust/roster-changes.js';
import { type RosterEntry, signRoster } from '../../engine/trust/roster.js';
import { EMPTY_TOKEN_BOOK } from '../../engine/trust/token-book.js';
import { EnrolmentDesk } from '../../main-node/enrolment/enrolment-desk.js';
import { keysService, startMainKeys } from '../../main-node/enrolment/keys-service.js';
import { StoredEnrolmentState } from '../../main-node/enrolment/stored-enrolment-state.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { Runtime } from '../../shared/base/runtime/runtime.js';
import type { VirtualRuntime } from '../../shared/base/runtime/virtual-runtime.js';
import type { CallMethod } from '../../shared/transport/methods.js';
import type { Transport } from '../../shared/transport/transport.js';
import { createAuthority, createNodeKey, keyDigest, spkiOf } from '../../shared/transport/trust/certificate.js';
import type { CertifiedCaller } from '../../shared/transport/trust/peer-role.js';
import { KEY_QUESTIONS } from '../../shared/wire/limits.js';
import type { RenewRequest } from '../../shared/wire/messages.js';
import { Lines } from './log-lines.js';
import { done } from './refusals.js';
import { onVirtualClock } from './virtual-run.js';

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;
const NOW_MS = Date.UTC(2026, 10, 25);
const OLD = 'a1'.repeat(32);
const NEW = 'b2'.repeat(32);

describe('the decision when a key is renewed', () => {
  const entry: RosterEntry = { id: 'w1', role: 'worker', keyDigest: OLD, since: NOW_MS };
  const clock = { wallMs: NOW_MS, heldMs: 0, isRenewedHere: false, jitterMs: 5 };
  const dueMs = KEY_LIFE_MS + 5;

  it('is made by the age of the key, from its joining or its newest renewal', () => {
    assert.equal(keyStep(entry, OLD, { ...clock, wallMs: NOW_MS + dueMs - 1 }), 'wait');
    assert.equal(keyStep(entry, OLD, { ...clock, wallMs: NOW_MS + dueMs }), 'renew');
    const renewed = { ...entry, renewedAt: NOW_MS + DAY_MS };
    assert.equal(keyStep(renewed, OLD, { ...clock, wallMs: NOW_MS + dueMs }), 'wait');
    assert.equal(keyStep(renewed, OLD, { ...clock, wallMs: NOW_MS + dueMs + DAY_MS }), 'renew');
  });

  it('is made by the time of the process where the clock is of 1970, or before the joining', () => {
    for (const wallMs of [0, 5000, NOW_MS - DAY_MS]) {
      assert.equal(keyStep(entry, OLD, { ...clock, wallMs, heldMs: dueMs - 1 }), 'wait');
      assert.equal(keyStep(entry, OLD, { ...clock, wallMs, heldMs: dueMs }), 'renew');
    }
    // Main's clock was never set when the node joined.
    assert.equal(keyStep({ ...entry, since: 0 }, OLD, { ...clock, wallMs: 2 * dueMs }), 'wait');
  });

  it('does not renew over and over where the clocks of main and node disagree', () => {
    const year2100 = { ...clock, wallMs: Date.UTC(2100, 0, 1) };
    assert.equal(keyStep(entry, OLD, year2100), 'renew');
    assert.equal(keyStep(entry, OLD, { ...year2100, isRenewedHere: true, heldMs: dueMs - 1 }), 'wait');
    assert.equal(keyStep(entry, OLD, { ...year2100, isRenewedHere: true, heldMs: dueMs }), 'renew');
  });

  it('goes on with a renewal that was interrupted, and shows a new key until the day of the old one ends', () => {
    const renewed = { ...entry, keyDigest: NEW, previousKeyDigest: OLD, renewedAt: NOW_MS };
    assert.equal(keyStep(renewed, OLD, clock), 'renew');
    assert.equal(keyStep(renewed, NEW, clock), 'show');
    assert.equal(keyStep({ ...renewed, previousKeyDigest: undefined }, NEW, clock), 'wait');
  });

  it('leaves a node alone that is not listed with its key', () => {
    assert.equal(keyStep(undefined, OLD, { ...clock, wallMs: NOW_MS + dueMs }), 'wait');
    assert.equal(keyStep({ ...entry, keyDigest: NEW }, OLD, { ...clock, wallMs: NOW_MS + dueMs }), 'wait');
  });
});

describe('addresses of main', () => {
  it('are that of the settings, and then the one from which main came', () => {
    assert.deepEqual(addressesOf('a:1', 'b:2'), ['a:1', 'b:2']);
    assert.deepEqual(addressesOf(null, 'b:2'), ['b:2']);
    assert.deepEqual(addressesOf(null, null), []);
  });
});

describe('the renewal of keys', () => {
  let directory: string;
  const home = (host: string): string => join(directory, host);
  const WORKER = { role: 'worker', id: 'jetson-2', cluster: 'home' } as const;
  const MAIN = { role: 'main', id: 'box', cluster: 'home' } as const;

  beforeEach(() => {
    directory = mkdtempSync(join(tmpdir(), 'odmoe-renewal-'));
  });

  afterEach(() => {
    rmSync(directory, { recursive: true, force: true });
  });

  /** Main and a worker on their disks, without a network between them. */
  class Home {
    readonly log = new Lines();
    /** Calls that main has answered. */
    calls = 0;
    /** Thrown in place of replies that main has made. */
    replyLost: OdmoeError | null = null;
    readonly saves: (() => Promise<void>)[] = [];

    private constructor(
      readonly runtime: Runtime,
      readonly main: NodeTrust,
      readonly desk: EnrolmentDesk,
      private readonly state: StoredEnrolmentState,
    ) {}

    static async make(runtime: VirtualRuntime): Promise<Home> {
      const authority = createAuthority('home');
      await runtime.outside(async () => {
        const state = { authority, roster: firstRoster('home'), tokens: EMPTY_TOKEN_BOOK };
        await createAuthorityFiles(home('box'), state);
      });
      const opened = await runtime.outside(() =>
        openNodeTrust({ ...MAIN, stateDirectory: home('box') }, runtime.wallMs(), new Lines()),
      );
      assert.ok(opened !== null);
      assert.ok(opened.authority !== null);
      const state = new StoredEnrolmentState(opened.authority, home('box'), opened.trust, runtime);
      const desk = new EnrolmentDesk(state, runtime);
      const made = new Home(runtime, opened.trust, desk, state);
      made.saves.push(() => opened.saved());
      await made.join();
      return made;
    }

    private async join(): Promise<void> {
      const { runtime, desk, state } = this;
      const stateDirectory = home('jetson');
      const key = await runtime.outside(() => keyToCertify(stateDirectory, WORKER.id));
      let certificate: Buffer | null = null;
      const roster = await desk.changeRoster((before) => {
        const entry = done(certifyPeer(state.authority, before, WORKER, createPublicKey(key), runtime.wallMs()));
        ({ certificate } = entry);
        return entry.roster;
      });
      assert.ok(certificate !== null);
      const stored = { certificate, authority: desk.authority, roster: signRoster(roster, state.authority) };
      await runtime.outside(() => storeIdentity(stateDirectory, WORKER.id, stored));
    }

    /** As the worker's start opens it. */
    async openWorker(): Promise<NodeTrust> {
      const { runtime } = this;
      const opened = await runtime.outside(() =>
        openNodeTrust({ ...WORKER, stateDirectory: home('jetson') }, runtime.wallMs(), this.log),
      );
      assert.ok(opened !== null, 'a restart needs no token');
      this.saves.push(() => opened.saved());
      return opened.trust;
    }

    renewalOf(trust: NodeTrust): KeyRenewal {
      const { runtime } = this;
      const transport = { call: this.callAs(() => trust.ownPeer) } as Pick<Transport, 'call'>;
      const renewal = startKeyRenewal({ trust, transport, runtime, mainAddresses: () => ['main:1'] }, this.log);
      assert.ok(renewal !== null);
      return renewal;
    }

    private callAs(caller: () => CertifiedCaller) {
      return async (_address: string, method: CallMethod<unknown, unknown>, request: unknown) => {
        assert.equal(method.path, '/odmoe.v1.Keys/Renew');
        const refusal = this.main.refusalOf({ keyDigest: '', ...caller() });
        if (refusal !== null) throw new OdmoeError('TRUST_REFUSED', refusal);
        const reply = await keysService(this.desk, this.runtime).renew(request as RenewRequest, {
          host: '',
          caller: caller(),
        });
        this.calls += 1;
        if (this.replyLost !== null) throw this.replyLost;
        return reply;
      };
    }

    /** Main's roster arrives at the worker. */
    post(trust: NodeTrust): void {
      assert.ok(this.main.signedRoster !== null);
      trust.takeRoster(this.main.signedRoster);
    }

    async settled(): Promise<void> {
      await this.runtime.outside(async () => {
        for (const saved of this.saves) await saved();
      });
    }
  }

  const entryOf = (main: NodeTrust, id: string): RosterEntry => {
    const entry = main.roster?.entries.find((each) => each.id === id);
    assert.ok(entry !== undefined);
    return entry;
  };

  it('comes by itself after thirty days, without a restart; a restart later needs no token', async () => {
    await onVirtualClock(async (runtime) => {
      const cluster = await Home.make(runtime);
      const worker = await cluster.openWorker();
      const before = worker.ownPeer;
      const renewal = cluster.renewalOf(worker);
      await runtime.sleep(KEY_LIFE_MS - HOUR_MS);
      assert.deepEqual([worker.ownPeer, cluster.calls], [before, 0]);
      await runtime.sleep(KEY_JITTER_MS + 3 * HOUR_MS);
      const after = worker.ownPeer;
      assert.notEqual(after.keyDigest, before.keyDigest);
      assert.equal(entryOf(cluster.main, WORKER.id).keyDigest, after.keyDigest);
      assert.ok(cluster.calls >= 2, 'the new key is shown');
      assert.equal(cluster.main.refusalOf(before), null, 'the old key is good for a day');
      await runtime.sleep(2 * DAY_MS);
      await cluster.desk.endPreviousKeys();
      cluster.post(worker);
      assert.match(cluster.main.refusalOf(before) ?? '', /was replaced/);
      assert.equal(cluster.main.refusalOf(after), null);
      const { calls } = cluster;
      await runtime.sleep(20 * DAY_MS);
      assert.deepEqual([worker.ownPeer.keyDigest, cluster.calls], [after.keyDigest, calls], 'one renewal a month');
      await renewal.stop();
      await cluster.settled();
      assert.equal((await cluster.openWorker()).ownPeer.keyDigest, after.keyDigest);
    });
  });

  it('takes the same key again after a lost reply, and the old one stays good until the new one is shown', async () => {
    await onVirtualClock(async (runtime) => {
      const cluster = await Home.make(runtime);
      const worker = await cluster.openWorker();
      const before = worker.ownPeer;
      const renewal = cluster.renewalOf(worker);
      cluster.replyLost = new OdmoeError('TIMEOUT', 'no reply of main');
      await runtime.sleep(KEY_LIFE_MS + KEY_JITTER_MS + HOUR_MS);
      const certified = entryOf(cluster.main, WORKER.id).keyDigest;
      assert.notEqual(certified, before.keyDigest);
      await runtime.sleep(2 * DAY_MS);
      await cluster.desk.endPreviousKeys();
      assert.equal(worker.ownPeer.keyDigest, before.keyDigest);
      assert.equal(cluster.main.refusalOf(before), null);
      assert.ok(cluster.calls < 80, `${cluster.calls} calls: it is asked with pauses`);
      assert.equal(cluster.log.warnings.filter((line) => line.includes('could not be renewed')).length, 1);
      cluster.replyLost = null;
      await runtime.sleep(2 * HOUR_MS);
      assert.equal(worker.ownPeer.keyDigest, certified);
      await renewal.stop();
      await cluster.settled();
    });
  });

  it('goes on after a crash between any two of its steps', async () => {
    await onVirtualClock(async (runtime) => {
      const cluster = await Home.make(runtime);
      const first = await cluster.openWorker();
      const dead = cluster.renewalOf(withKeys(first, { store: () => Promise.reject(new Error('killed')) }));
      await runtime.sleep(KEY_LIFE_MS + KEY_JITTER_MS + HOUR_MS);
      await dead.stop();
      const certified = entryOf(cluster.main, WORKER.id).keyDigest;
      assert.notEqual(certified, first.ownPeer.keyDigest);
      await runtime.sleep(40 * DAY_MS);
      await cluster.desk.endPreviousKeys();
      const second = await cluster.openWorker();
      assert.equal(second.ownPeer.keyDigest, first.ownPeer.keyDigest);
      assert.equal(cluster.main.refusalOf(second.ownPeer), null);
      cluster.post(second);
      const renewal = cluster.renewalOf(second);
      await runtime.sleep(HOUR_MS);
      assert.equal(second.ownPeer.keyDigest, certified);
      await renewal.stop();
      await cluster.settled();
    });
  });

  it('goes on with the present key while the disk is full, and renews it when it is not', async () => {
    await onVirtualClock(async (runtime) => {
      const cluster = await Home.make(runtime);
      const worker = await cluster.openWorker();
      const before = worker.ownPeer.keyDigest;
      let isFull = true;
      const full = (): Promise<never> => Promise.reject(new OdmoeError('STORAGE_FULL', 'no space left'));
      const keys = worker.keys;
      assert.ok(keys !== null);
      const trust = withKeys(worker, { next: () => (isFull ? full() : keys.next()) });
      const renewal = cluster.renewalOf(trust);
      await runtime.sleep(KEY_LIFE_MS + KEY_JITTER_MS + DAY_MS);
      assert.deepEqual([trust.ownPeer.keyDigest, cluster.calls], [before, 0]);
      assert.ok(cluster.log.warnings.some((line) => line.includes('the present one stays good')));
      isFull = false;
      await runtime.sleep(2 * HOUR_MS);
      assert.notEqual(trust.ownPeer.keyDigest, before);
      await renewal.stop();
      await cluster.settled();
    });
  });

  it("renews main's own key, too", async () => {
    await onVirtualClock(async (runtime) => {
      const cluster = await Home.make(runtime);
      const { main, desk } = cluster;
      const before = main.ownPeer;
      const keys = startMainKeys({ desk, trust: main, runtime }, cluster.log);
      await runtime.sleep(KEY_LIFE_MS + KEY_JITTER_MS + HOUR_MS);
      assert.notEqual(main.ownPeer.keyDigest, before.keyDigest);
      assert.equal(main.refusalOf(before), null);
      await runtime.sleep(DAY_MS + 2 * HOUR_MS);
      assert.match(main.refusalOf(before) ?? '', /was replaced/);
      await keys.stop();
      await cluster.settled();
      const stateDirectory = home('box');
      const again = await runtime.outside(() =>
        openNodeTrust({ ...MAIN, stateDirectory }, runtime.wallMs(), cluster.log),
      );
      assert.equal(again?.trust.ownPeer.keyDigest, main.ownPeer.keyDigest);
    });
  });

  it('refuses a key that its asker does not hold, and an asker without a certificate', async () => {
    await onVirtualClock(async (runtime) => {
      const cluster = await Home.make(runtime);
      const worker = await cluster.openWorker();
      const key = createNodeKey();
      const spki = spkiOf(createPublicKey(key));
      const { renew } = keysService(cluster.desk, runtime);
      const ask = async (proof: Buffer, caller: CertifiedCaller | null) => renew({ spki, proof }, { host: '', caller });
      const lie = proveNextKey(createNodeKey(), WORKER.id);
      await assert.rejects(ask(lie, worker.ownPeer), { code: 'TRUST_REFUSED', message: /does not hold the key/ });
      const ofOther = proveNextKey(key, 'jetson-3');
      await assert.rejects(ask(ofOther, worker.ownPeer), { code: 'TRUST_REFUSED', message: /does not hold the key/ });
      const local = { role: 'operator', id: 'local', cluster: 'home' } as const;
      await assert.rejects(ask(proveNextKey(key, 'local'), local), { code: 'NOT_ALLOWED' });
      await assert.rejects(ask(proveNextKey(key, 'local'), null), { code: 'NOT_ALLOWED' });
      const stranger = { ...worker.ownPeer, keyDigest: keyDigest(createPublicKey(createNodeKey())) };
      await assert.rejects(ask(proveNextKey(key, WORKER.id), stranger), { message: /no key to renew/ });
      await cluster.settled();
    });
  });

  it('is not asked for without end by a node that lies: neither renewals nor questions', async () => {
    await onVirtualClock(async (runtime) => {
      const cluster = await Home.make(runtime);
      const worker = await cluster.openWorker();
      const { renew } = keysService(cluster.desk, runtime);
      let peer = worker.ownPeer;
      const ask = async (): Promise<void> => {
        const key = createNodeKey();
        const request = { spki: spkiOf(createPublicKey(key)), proof: proveNextKey(key, WORKER.id) };
        await renew(request, { host: '', caller: peer });
        peer = { ...peer, keyDigest: keyDigest(createPublicKey(key)) };
      };
      await ask();
      const { count } = cluster.main.roster ?? { count: 0 };
      const tooSoon = { code: 'TRUST_REFUSED', message: /was renewed less than an hour ago/ };
      for (let more = 1; more < KEY_QUESTIONS.burst; more++) await assert.rejects(ask(), tooSoon);
      await assert.rejects(ask(), { code: 'QUEUE_FULL', message: /node jetson-2 asks for its key too often/ });
      assert.equal(cluster.main.roster?.count, count, 'no roster goes to the nodes');
      await runtime.sleep(HOUR_MS);
      await ask();
      assert.equal(cluster.main.roster?.count, count + 1);
      await cluster.settled();
    });
  });

  /** The same trust, with other keys. */
  function withKeys(trust: NodeTrust, changes: Partial<KeyStore>): NodeTrust {
    const { keys } = trust;
    assert.ok(keys !== null);
    const changed: KeyStore = { next: () => keys.next(), store: (certified) => keys.store(certified), ...changes };
    return Object.create(trust, { keys: { value: changed } }) as NodeTrust;
  }
});
