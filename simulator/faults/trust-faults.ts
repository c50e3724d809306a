import { createPublicKey } from 'node:crypto';
import { SeededRandom } from '../../shared/base/runtime/seeded-random.js';
import { createAuthority, createNodeKey, issueCertificate } from '../../shared/transport/trust/certificate.js';
import { isPeerRole, PEER_ROLES } from '../../shared/transport/trust/peer-role.js';
import type { NodeIdentity } from '../../shared/wire/messages.js';
import type { SimulatedCluster } from '../cluster/simulated-cluster.js';
import type { MessageTap } from '../network/channel.js';
import { MAIN_ID } from '../simulate/cluster-set-up.js';
import type { Violation } from './accounts/violation.js';
import type { Scenario, TrustFault } from './scenario.js';
import type { ScenarioTrust } from './scenario-trust.js';
import { type ShownCertificate, Stranger } from './stranger.js';
import { TrustWatch } from './trust-watch.js';

/** Counts of the events of a cluster with an authority that have happened, not only been drawn. */
export interface TrustEvents {
  /** Nodes that joined while others worked. */
  letIn: number;
  renewals: number;
  /** Times at which keys before a renewal ended. */
  endsOfOldKeys: number;
  removals: number;
  /** Removed nodes that came back with another key. */
  returns: number;
  /** Starts of main with a roster of before. */
  oldRosters: number;
  /** Connections that a port refused. */
  refusedConnections: number;
  /** Calls of admitted callers that were refused, as they may not make them. */
  refusedCalls: number;
}

export const NO_TRUST_EVENTS: Readonly<TrustEvents> = {
  letIn: 0,
  renewals: 0,
  endsOfOldKeys: 0,
  removals: 0,
  returns: 0,
  oldRosters: 0,
  refusedConnections: 0,
  refusedCalls: 0,
};

/** Stops and starts a node. */
export type Restart = (id: string) => void;

/** Runs the events of a cluster with an authority, and checks that nobody gets in who was not let in. */
export class TrustFaults {
  private readonly events: TrustEvents = { ...NO_TRUST_EVENTS };
  private readonly watch: TrustWatch;
  /** The identity that main has stated last: a stranger states nearly the same. */
  private stated: NodeIdentity | null = null;

  constructor(
    private readonly cluster: SimulatedCluster,
    private readonly trust: ScenarioTrust,
    private readonly scenario: Scenario,
  ) {
    this.watch = new TrustWatch(cluster.clock, cluster.network, trust.ledger);
    trust.attach({
      nowMs: () => cluster.clock.nowMs,
      onOpened: (...opened) => this.watch.opened(...opened),
    });
  }

  get happened(): TrustEvents {
    return { ...this.events, refusedConnections: this.watch.refusedConnections };
  }

  readonly messages: MessageTap = (way, from, _, message) => {
    if (way === 'sent' && from === MAIN_ID && message.kind === 'hello') this.stated = message.hello;
  };

  /** Begins an event. Returns a function that ends it. */
  begin(fault: TrustFault, start: Restart, restart: Restart): () => void {
    const { trust, events } = this;
    const { kind, node } = fault;
    switch (kind) {
      case 'letIn':
        // The node has not been started before (runScenario), unless another fault has done so.
        if (trust.certificateOf(node) === null) events.letIn += 1;
        start(node);
        return nothing;
      case 'renewal':
        if (trust.renew(node)) events.renewals += 1;
        return nothing;
      case 'endOfOldKeys':
        if (trust.endPreviousKeys()) events.endsOfOldKeys += 1;
        return nothing;
      case 'removal':
        if (trust.remove(node)) events.removals += 1;
        return nothing;
      case 'removalAndReturn':
        if (trust.remove(node)) events.removals += 1;
        return () => this.comeBack(node, restart);
      case 'oldRoster':
        return this.startWithOldRoster(fault, restart);
      case 'strangerWithoutCertificate':
      case 'strangerOfOtherAuthority':
      case 'strangerWithRemovedKey':
      case 'strangerWithOthersKey':
        return this.beginStranger(fault);
    }
  }

  /** True if the node is not in the cluster any more. */
  isRemoved(id: string): boolean {
    return this.trust.isRemoved(id);
  }

  /** `isHeard`: whether main hears of the node. Call at rest. */
  check(isHeard: (id: string) => boolean): Violation[] {
    const details = [...this.watch.violations];
    for (const { settings } of this.scenario.nodes) {
      const { id } = settings;
      const newest = this.trust.count;
      const count = this.trust.rosterAt(id)?.count;
      if (this.isRemoved(id) && isHeard(id)) details.push(`main hears of ${id}, which was removed`);
      if ((id === MAIN_ID || isHeard(id)) && count !== newest)
        details.push(`${id} has the roster ${count} at rest, and ${newest} is the newest`);
    }
    return details.map((detail) => ({ invariant: 'nobody gets in who was not let in', detail }));
  }

  private comeBack(node: string, restart: Restart): void {
    if (!this.trust.forget(node)) return;
    this.events.returns += 1;
    restart(node);
  }

  private startWithOldRoster({ node, seed }: TrustFault, restart: Restart): () => void {
    const random = new SeededRandom(seed);
    if (!this.trust.openEarlier((rosters) => random.pick(rosters))) return nothing;
    this.events.oldRosters += 1;
    restart(node);
    return () => {
      this.trust.openNewest();
      restart(node);
    };
  }

  private beginStranger(fault: TrustFault): () => void {
    const shown = this.shownBy(fault);
    const stranger = new Stranger(this.cluster, fault, shown, {
      stated: () => this.stated,
      gotIn: (what) => this.watch.violate(`a stranger (${fault.kind}) got ${what}`),
      refused: (code) => {
        if (code === 'NOT_ALLOWED') this.events.refusedCalls += 1;
      },
    });
    return stranger.begin();
  }

  private shownBy({ kind, seed }: TrustFault): ShownCertificate {
    const random = new SeededRandom(seed).fork('certificate');
    if (kind === 'strangerOfOtherAuthority') return { certificate: otherAuthoritys(random), admitted: null };
    if (kind === 'strangerWithRemovedKey') return { certificate: this.trust.goneCertificate(), admitted: null };
    if (kind !== 'strangerWithOthersKey') return { certificate: null, admitted: null };
    const holders = this.scenario.nodes.filter(({ settings: { role } }) => role !== 'main');
    const { id, role } = random.pick(holders).settings;
    return { certificate: this.trust.certificateOf(id), admitted: isPeerRole(role) ? { id, role } : null };
  }
}

function nothing(): void {
  return undefined;
}

/** A certificate of another authority of a cluster with the same name. */
function otherAuthoritys(random: SeededRandom): Buffer {
  const peer = { role: random.pick(PEER_ROLES), id: random.pick([MAIN_ID, 'w0', 'other']) };
  return issueCertificate(createAuthority('simulated'), peer, createPublicKey(createNodeKey()), 1);
}
