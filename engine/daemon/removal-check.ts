import { type OdmoeError, toOdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { Logger } from '../../shared/base/log/logger.js';
import type { Runtime } from '../../shared/base/runtime/runtime.js';
import type { NodeSettings } from '../../shared/settings/node-settings.js';
import type { Discovery } from '../../shared/transport/discovery/discovery.js';
import { FairAddresses } from '../../shared/transport/discovery/fair-addresses.js';
import type { Transport } from '../../shared/transport/transport.js';
import { refusalByMain } from '../trust/key-renewal.js';
import type { NodeTrust } from '../trust/node-trust.js';

/** Pause between two looks at whether main serves this node. */
export const REMOVAL_CHECK_MS = 30_000;
/** Time in which mains are searched for. */
export const MAIN_SEARCH_MS = 3000;
/** Most mains that are asked, in all and per host: any program can advertise one. */
const ASKED_LIMITS = { all: 8, ofHost: 2 };

export interface CheckedNode {
  readonly settings: NodeSettings;
  readonly environment: {
    readonly runtime: Runtime;
    readonly transport: Pick<Transport, 'call'>;
    /** null: the cluster has no authority. */
    readonly trust: NodeTrust | null;
    readonly discovery: Pick<Discovery, 'watchPeers'>;
  };
  /** True while main's stream to this node stands. */
  hasMain(): boolean;
  /** Ends the daemon. */
  giveUp(reason: OdmoeError): void;
}

/**
 * Asks main whether this node was removed, while no main serves it. Main dials the nodes that it finds by mDNS or DNS, and does not dial one that it
 * removed while that node was off: such a node would wait for ever.
 */
export class RemovalCheck {
  private readonly ended = new AbortController();
  private readonly checks: Promise<void>;

  constructor(
    private readonly node: CheckedNode,
    private readonly log: Logger,
  ) {
    this.checks = this.checkUntilEnded();
  }

  /** Resolves when no question is under way any more. */
  async stop(): Promise<void> {
    this.ended.abort();
    await this.checks;
  }

  private async checkUntilEnded(): Promise<void> {
    const { runtime } = this.node.environment;
    const { signal } = this.ended;
    for (;;) {
      await runtime.sleep(REMOVAL_CHECK_MS, signal);
      if (signal.aborted) return;
      if (this.node.hasMain()) continue;
      try {
        await this.askMains();
      } catch (thrown) {
        this.log.debug('no main could be searched for', { error: toOdmoeError(thrown) });
      }
    }
  }

  private async askMains(): Promise<void> {
    for (const address of await this.foundMains()) {
      const refusal = await this.refusalBy(address);
      if (this.ended.signal.aborted || this.node.hasMain()) return;
      if (refusal !== null) this.node.giveUp(refusal);
    }
  }

  /**
   * Main's words if it refuses this node's certificate. A call also ends with this code when a new roster no longer lists that main, but then no
   * second connection stands.
   */
  private async refusalBy(address: string): Promise<OdmoeError | null> {
    const { trust, transport } = this.node.environment;
    if (trust === null) return null;
    const first = await refusalByMain(trust, transport, address, this.ended.signal);
    return first === null ? null : refusalByMain(trust, transport, address, this.ended.signal);
  }

  private async foundMains(): Promise<readonly string[]> {
    const { settings, environment } = this.node;
    const found = new FairAddresses<string>(ASKED_LIMITS);
    const watch = await environment.discovery.watchPeers(
      settings,
      ({ role, address }) => {
        if (role === 'main') found.set(address, address);
      },
      this.log,
    );
    try {
      await environment.runtime.sleep(MAIN_SEARCH_MS, this.ended.signal);
    } finally {
      await watch.stop();
    }
    return found.values();
  }
}

/** Null: the node has nobody to ask, or asks main by itself (JoinLoop). */
export function startRemovalCheck(node: CheckedNode, log: Logger): RemovalCheck | null {
  const { settings, environment } = node;
  const findsMain = settings.mainAddress === null && settings.discovery.provider !== 'static';
  return environment.trust !== null && findsMain ? new RemovalCheck(node, log) : null;
}
