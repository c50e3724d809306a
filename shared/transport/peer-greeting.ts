import { OdmoeError } from '../base/errors/odmoe-error.js';
import type { Logger } from '../base/log/logger.js';
import { waitForPeer } from '../base/runtime/peer-wait.js';
import { RecentMap } from '../base/runtime/recent-map.js';
import type { Runtime } from '../base/runtime/runtime.js';
import { HANDSHAKE_TIMEOUT_MS } from '../wire/limits.js';
import type { NodeIdentity, Refusal, Welcome } from '../wire/messages.js';
import { identityRefusal } from './call-permission.js';
import { checkPeer } from './peer-check.js';
import type { PeerContext } from './peer-context.js';

/** The functions of a peer's stream that a greeting uses. */
export interface GreetedStream {
  send(reply: { kind: 'refusal'; refusal: Refusal } | { kind: 'welcome'; welcome: Welcome }): unknown;
  close(error?: OdmoeError): void;
}

/** Greets peers of a shadow or a worker. The stream of a peer ends if its hello is late or if the peer does not belong to this cluster. */
export class PeerGreeting {
  private readonly refusals: RefusalLog;

  /** `refuse`: the reason why this daemon refuses a peer that is otherwise compatible; null: it accepts the peer. */
  constructor(
    private readonly identity: () => NodeIdentity,
    private readonly refuse: (peer: NodeIdentity) => Refusal | null,
    private readonly runtime: Runtime,
    log: Logger,
  ) {
    this.refusals = new RefusalLog(log);
  }

  /** Begins to wait for the peer's hello. Returns a function to call when the hello has come, and when the stream is gone. */
  awaitHello(stream: GreetedStream): () => void {
    const timer = waitForPeer(this.runtime, HANDSHAKE_TIMEOUT_MS, () => {
      stream.close(new OdmoeError('TIMEOUT', `no hello came within ${HANDSHAKE_TIMEOUT_MS} ms`));
    });
    return () => {
      timer.cancel();
    };
  }

  /** True if the peer is accepted. A refused peer gets the reason, and its stream ends. `context`: the caller that opened the stream. */
  admits(stream: GreetedStream, peer: NodeIdentity, context: PeerContext): boolean {
    const refusal = identityRefusal(peer, context) ?? checkPeer(this.identity(), peer) ?? this.refuse(peer);
    if (refusal === null) {
      this.refusals.welcomed(peer);
      return true;
    }
    this.refusals.refused(peer, refusal);
    stream.send({ kind: 'refusal', refusal });
    stream.close();
    return false;
  }

  welcome(stream: GreetedStream, about: Omit<Welcome, 'identity'>): void {
    stream.send({ kind: 'welcome', welcome: { identity: this.identity(), ...about } });
  }
}

/** Most refusals that are remembered. The least recent ones are forgotten, and would be logged again. */
export const MAX_REMEMBERED_REFUSALS = 256;

/** Logs the reasons why peers are refused. Each pair of peer and reason is logged once, however often the peer comes back. */
export class RefusalLog {
  private readonly logged = new RecentMap<string, NodeIdentity['id']>(MAX_REMEMBERED_REFUSALS);

  constructor(private readonly log: Logger) {}

  refused(peer: NodeIdentity, refusal: Refusal): void {
    const key = JSON.stringify([peer.id, refusal.message]);
    if (this.logged.get(key) !== undefined) return;
    this.logged.set(key, peer.id);
    this.log.warn('refused a peer', { peer: peer.id, code: refusal.code, reason: refusal.message });
  }

  /** Forgets the refusals of a peer that is welcome now, so that a later refusal is logged again. */
  welcomed(peer: NodeIdentity): void {
    for (const [key, id] of this.logged) if (id === peer.id) this.logged.delete(key);
  }
}
