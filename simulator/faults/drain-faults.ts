import type { DrainState } from '../../shared/decisions/draining/drain-state.js';
import { METHODS } from '../../shared/transport/methods.js';
import type { SimulatedCluster } from '../cluster/simulated-cluster.js';
import type { MessageTap } from '../network/channel.js';
import { MAIN_ID } from '../simulate/cluster-set-up.js';
import type { Fault } from './scenario.js';

/** An operator waits so long for main, which may be gone. */
const PATIENCE_MS = 2000;
/** Most violations that one run reports. */
const MOST_VIOLATIONS = 20;

/**
 * An operator who drains nodes, and undoes it or starts them again. Checks that main asks nothing of a worker that may go, unless it has placed it
 * again because no other worker was left.
 */
export class DrainFaults {
  readonly violations: string[] = [];
  /** Times that main said that a node may go. */
  mayGo = 0;
  /** Nodes that may go, as main said last. */
  private readonly idle = new Set<string>();
  /** The workers of main's latest placement. */
  private placed: ReadonlySet<string> = new Set();
  /** By node: ends when the operator's last call about it has ended. */
  private readonly asked = new Map<string, Promise<void>>();

  constructor(private readonly cluster: SimulatedCluster) {}

  readonly messages: MessageTap = (way, from, to, message) => {
    if (way !== 'sent' || from !== MAIN_ID) return;
    // A main that greets it may be another one, and the node another start of it.
    if (message.kind === 'hello') this.idle.delete(to);
    else if (message.kind === 'placement') this.placed = new Set(message.placement.workers.map(({ id }) => id));
    else if (message.kind === 'execute' || message.kind === 'announce') this.checkOrder(to, message.kind);
  };

  /** Begins to drain the node. `startAgain`: stops and starts it. Returns a function that ends the drain, by a start or by an order. */
  begin({ node, seed }: Fault, startAgain: (id: string) => void): () => void {
    this.order(node, false);
    return () => {
      if (seed % 2 === 0) startAgain(node);
      this.order(node, true);
    };
  }

  /** All nodes are to get work again. */
  undoAll(): void {
    for (const node of this.asked.keys()) this.order(node, true);
  }

  /** Asks main, after the call before: an order that overtook another one would have the last word. */
  private order(id: string, undo: boolean): void {
    const before = this.asked.get(id) ?? Promise.resolve();
    const { address } = this.cluster.node(MAIN_ID);
    const ask = async (): Promise<void> => {
      if (undo) this.idle.delete(id);
      const reply = await this.cluster.call(address, METHODS.operator.drain, { id, undo }, PATIENCE_MS);
      if (reply?.node?.state !== ('may go' satisfies DrainState)) return;
      this.mayGo += 1;
      if (!this.placed.has(id)) this.idle.add(id);
    };
    this.asked.set(id, before.then(ask));
  }

  private checkOrder(to: string, kind: string): void {
    if (!this.idle.has(to) || this.placed.has(to) || this.violations.length === MOST_VIOLATIONS) return;
    this.violations.push(
      `main sent ${to} an ${kind}, though it had said that ${to} may go, and has not placed it since`,
    );
  }
}
