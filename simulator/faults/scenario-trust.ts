import { createPublicKey } from 'node:crypto';
import { NodeTrust } from '../../engine/trust/node-trust.js';
import {
  allowPacks,
  certifyPeer,
  firstRoster,
  PREVIOUS_KEY_MS,
  removePeer,
  RENEWAL_PAUSE_MS,
  renewPeer,
  withoutPreviousKeys,
} from '../../engine/trust/roster-changes.js';
import { presentEntry, type Roster, signRoster } from '../../engine/trust/roster.js';
import { assertInvariant } from '../../shared/base/errors/assert-invariant.js';
import { WALL_ZERO_MS, type VirtualRuntime } from '../../shared/base/runtime/virtual-runtime.js';
import {
  type Authority,
  createAuthority,
  createNodeKey,
  keyDigest,
  readPeerCertificate,
} from '../../shared/transport/trust/certificate.js';
import type { OwnCertificate } from '../../shared/transport/trust/cluster-trust.js';
import type { PeerRole } from '../../shared/transport/trust/peer-role.js';
import { isRefusal, type Refusal } from '../../shared/transport/trust/refusal.js';
import { MAIN_ID } from '../simulate/cluster-set-up.js';
import { KeyLedger } from './key-ledger.js';

/** A peer, as a certificate names it. */
export interface Named {
  readonly role: PeerRole;
  readonly id: string;
}

/** The id of the clients' certificate, and that of a node which was removed before the scenario begins. */
export const CLIENT_ID = 'client';
const GONE: Named = { role: 'worker', id: 'gone' };

/** The files of a node that has joined. */
interface Stored {
  readonly own: OwnCertificate;
  readonly signedRoster: Uint8Array;
}

/** The clock, and who is told of the trust of each process that starts. */
interface Around {
  nowMs(): number;
  onOpened(id: string, trust: NodeTrust, runtime: VirtualRuntime): void;
}

interface Running {
  readonly trust: NodeTrust;
  readonly runtime: VirtualRuntime;
}

/**
 * The authority of a simulated cluster, the files by which its nodes have joined, and the trust of their processes. Keys are new on every run, so
 * nothing of them may enter the history.
 */
export class ScenarioTrust {
  readonly ledger = new KeyLedger();
  private readonly authority: Authority;
  private roster: Roster;
  private readonly stored = new Map<string, Stored>();
  private readonly running = new Map<string, Running>();
  /** Rosters that main has had since all nodes of the beginning were listed. */
  private readonly earlier: Roster[] = [];
  private opensEarlier: Roster | null = null;
  private readonly gone: OwnCertificate;
  private around: Around = { nowMs: () => 0, onOpened: () => undefined };

  /** `listed`: the nodes that have joined before the scenario begins. `packs`: digests of what nodes may fetch. */
  constructor(
    private readonly cluster: string,
    listed: readonly Named[],
    packs: readonly string[],
  ) {
    this.authority = createAuthority(cluster);
    this.roster = allowPacks(firstRoster(cluster), packs);
    for (const peer of [...listed, GONE, CLIENT]) this.ensureCertified(peer);
    this.gone = this.storedOf(GONE.id).own;
    this.remove(GONE.id);
    this.earlier.length = 0;
    // Joining gives a node the roster of its time; all of these have the last one.
    const signedRoster = this.signed();
    for (const [id, { own }] of this.stored) this.stored.set(id, { own, signedRoster });
  }

  /** The cluster whose authority this is. */
  attach(around: Around): void {
    this.around = around;
  }

  /** Count of the newest roster. */
  get count(): number {
    return this.roster.count;
  }

  /** The trust of a process that starts. A node that has not joined yet joins now. */
  open(peer: Named, runtime: VirtualRuntime): NodeTrust {
    const { id, role } = peer;
    this.ensureCertified(peer);
    const { own, signedRoster } = this.storedOf(id);
    const ofMain = this.opensEarlier === null ? this.signed() : signRoster(this.opensEarlier, this.authority);
    const trust = new NodeTrust({
      cluster: this.cluster,
      authority: this.authority.certificate,
      own,
      admission: role === 'worker' ? 'not-removed' : 'listed',
      signedRoster: id === MAIN_ID ? ofMain : signedRoster,
      saveRoster: (signed) => this.stored.set(id, { own: this.storedOf(id).own, signedRoster: signed }),
    });
    this.running.set(id, { trust, runtime });
    this.around.onOpened(id, trust, runtime);
    return trust;
  }

  /** The trust of the clients, which have a certificate of role operator. */
  clients(): NodeTrust {
    const { own, signedRoster } = this.storedOf(CLIENT_ID);
    const saveRoster = (): void => undefined;
    const { cluster, authority } = this;
    return new NodeTrust({
      cluster,
      authority: authority.certificate,
      own,
      admission: 'not-removed',
      signedRoster,
      saveRoster,
    });
  }

  /** The newest roster of the process of this node; null: it does not run. */
  rosterAt(id: string): Roster | null {
    return this.running.get(id)?.trust.roster ?? null;
  }

  /** True if it was in the cluster and is not any more. */
  isRemoved(id: string): boolean {
    return this.roster.entries.some((entry) => entry.id === id) && presentEntry(this.roster, id) === undefined;
  }

  /** Certificate (DER) of the node that was removed before. */
  goneCertificate(): Buffer {
    return this.gone.certificate;
  }

  /** Certificate (DER) that a node has on its disk; null: it has not joined. */
  certificateOf(id: string): Buffer | null {
    return this.stored.get(id)?.own.certificate ?? null;
  }

  /** The node has a new key from now on. False: it or main stands still or is away, or it has been removed. */
  renew(id: string): boolean {
    const node = this.running.get(id);
    if (node?.runtime.isRunning !== true || this.running.get(MAIN_ID)?.runtime.isRunning !== true) return false;
    const peer = readPeerCertificate(node.trust.own.certificate, this.authority.certificate);
    assertInvariant(!isRefusal(peer), 'A node has a certificate of its authority.');
    const key = createNodeKey();
    const before = presentEntry(this.roster, id);
    // The roster's clock goes ahead, as a scenario renews keys within seconds.
    const rosterMs = Math.max(this.wallMs(), (before?.renewedAt ?? 0) + RENEWAL_PAUSE_MS);
    const renewed = renewPeer(this.authority, this.roster, peer, createPublicKey(key), rosterMs);
    if (isRefusal(renewed)) return false;
    const earlierKey = before?.previousKeyDigest;
    if (earlierKey !== undefined && earlierKey !== peer.keyDigest) this.ledger.ended(earlierKey, renewed.roster.count);
    this.ledger.listed(peer, keyDigest(createPublicKey(key)), renewed.roster.count);
    const own = { key, certificate: renewed.certificate };
    this.publish(renewed.roster);
    this.stored.set(id, { own, signedRoster: this.storedOf(id).signedRoster });
    const signed = this.signed();
    node.runtime.happen(() => {
      node.trust.renew(own);
      node.trust.takeRoster(signed);
    });
    return true;
  }

  /** A day after a renewal: the keys before it are not good any more. False: there are none. */
  endPreviousKeys(): boolean {
    const lastMs = Math.max(this.wallMs(), ...this.roster.entries.map(({ renewedAt }) => renewedAt ?? 0));
    const next = withoutPreviousKeys(this.roster, lastMs + PREVIOUS_KEY_MS + 1, () => true);
    if (next === this.roster) return false;
    for (const { previousKeyDigest } of this.roster.entries)
      if (previousKeyDigest !== undefined) this.ledger.ended(previousKeyDigest, next.count);
    this.publish(next);
    return true;
  }

  /** False: it is not in the cluster. */
  remove(id: string): boolean {
    const next = removePeer(this.roster, id, this.wallMs());
    if (isRefusal(next)) return false;
    for (const { keyDigest: digest } of this.ledger.presentOf(id)) this.ledger.ended(digest, next.count);
    this.publish(next);
    return true;
  }

  /** A removed node forgets what it had, and gets a new key when it starts again. False: it is in the cluster. */
  forget(id: string): boolean {
    if (!this.isRemoved(id)) return false;
    this.stored.delete(id);
    return true;
  }

  /** Main opens a roster of before its last change from now on, as from a copy of its disk. False: there is none. */
  openEarlier(pick: (rosters: readonly Roster[]) => Roster): boolean {
    if (this.earlier.length === 0) return false;
    this.opensEarlier = pick(this.earlier);
    return true;
  }

  /** Main has its newest roster again when it starts. */
  openNewest(): void {
    this.opensEarlier = null;
  }

  private ensureCertified(peer: Named): void {
    if (this.stored.has(peer.id)) return;
    const key = createNodeKey();
    const publicKey = createPublicKey(key);
    const certified = certifyPeer(this.authority, this.roster, peer, publicKey, this.wallMs());
    assertInvariant(!isRefusal(certified), `${peer.id} joins: ${refusalOf(certified)}`);
    this.ledger.listed({ ...peer, cluster: this.cluster }, keyDigest(publicKey), certified.roster.count);
    this.publish(certified.roster);
    this.stored.set(peer.id, { own: { key, certificate: certified.certificate }, signedRoster: this.signed() });
  }

  /** Main has the roster on its disk at once. Its process goes on with it as soon as it does anything. */
  private publish(roster: Roster): void {
    this.earlier.push(this.roster);
    this.roster = roster;
    const main = this.running.get(MAIN_ID);
    const signed = this.signed();
    main?.runtime.happen(() => {
      const taken = main.trust.takeRoster(signed);
      assertInvariant(!isRefusal(taken), `Main takes the roster that it has signed: ${refusalOf(taken)}`);
    });
  }

  private storedOf(id: string): Stored {
    const stored = this.stored.get(id);
    assertInvariant(stored !== undefined, `${id} has joined.`);
    return stored;
  }

  private signed(): Buffer {
    return signRoster(this.roster, this.authority);
  }

  /** The time of the authority's machine. */
  private wallMs(): number {
    return WALL_ZERO_MS + Math.floor(this.around.nowMs());
  }
}

const CLIENT: Named = { role: 'operator', id: CLIENT_ID };

function refusalOf(result: object | Refusal): string {
  return isRefusal(result) ? result.refusal : '';
}
