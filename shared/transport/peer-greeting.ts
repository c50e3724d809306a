import { OdmoeError } from '../base/errors/odmoe-error.js';
import type { Logger } from '../base/log/logger.js';
import { waitForPeer } from '../base/runtime/peer-wait.js';
import type { Runtime } from '../base/runtime/runtime.js';
import { HANDSHAKE_TIMEOUT_MS } from '../wire/limits.js';
import type { NodeIdentity, Refusal, Welcome } from '../wire/messages.js';
import { checkPeer } from './peer-check.js';
import { RefusalLog } from './refusal-log.js';

/** What a greeting asks of a stream that a peer has opened. */
export interface GreetedStream {
  send(reply: { kind: 'refusal'; refusal: Refusal } | { kind: 'welcome'; welcome: Welcome }): unknown;
  close(error?: OdmoeError): void;
}

/** The door of a shadow or a worker: a peer says hello in time and belongs here, or its stream is ended. */
export class PeerGreeting {
  private readonly refusals: RefusalLog;

  /** `refuse`: why this daemon takes no such peer, whatever it is compatible with; null: it does. */
  constructor(
    private readonly identity: () => NodeIdentity,
    private readonly refuse: (peer: NodeIdentity) => Refusal | null,
    private readonly runtime: Runtime,
    log: Logger,
  ) {
    this.refusals = new RefusalLog(log);
  }

  /** The stream has come. Returns what is to be called when the peer has said hello, and when the stream is gone. */
  awaitHello(stream: GreetedStream): () => void {
    const timer = waitForPeer(this.runtime, HANDSHAKE_TIMEOUT_MS, () => {
      stream.close(new OdmoeError('TIMEOUT', `no hello came within ${HANDSHAKE_TIMEOUT_MS} ms`));
    });
    return () => {
      timer.cancel();
    };
  }

  /** Whether the peer belongs here; one that does not is told why, and its stream is ended. */
  admits(stream: GreetedStream, peer: NodeIdentity): boolean {
    const refusal = checkPeer(this.identity(), peer) ?? this.refuse(peer);
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
