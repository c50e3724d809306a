import type { ClusterEvent } from '../../shared/wire/cluster-events.js';

/** Device memory that its holder yields to others, such as that of cached experts, which yield to the rows of sequences. */
export interface YieldingMemory {
  /** Bytes that it could still yield, perhaps not at once. */
  readonly yieldableBytes: number;
  /** Yields this many bytes, or as many as it can yield now; returns how many. */
  yieldBytes(bytes: number): number;
  /** Takes back memory that it had yielded, up to `freeBytes`, the free bytes of the device. */
  takeBack(freeBytes: number): void;
}

/** Handle of a running daemon, in its own process or in a test's process. */
export interface RunningNode {
  /** The address "host:port" on which it listens. */
  readonly address: string;
  /** The cluster that it has entered, which may be another than that of its settings; left out: it has entered none by itself. */
  readonly cluster?: string;
  /** Main only: the address "host:port" of the HTTP API; null: it is not served. */
  readonly httpAddress?: string | null;
  /** Main only: the key that it has made for the page, and its file; null: none. */
  readonly ownKey?: { readonly path: string; readonly text: string } | null;
  /** Further words for its user when it is ready; left out: there are none. */
  readonly notice?: string | undefined;
  /** Numbers of resources held for requests, by name: all are 0 when there has been no request for a while. */
  openCounts(): Readonly<Record<string, number>>;
  /** Objects whose fields lead to all its maps, sets and lists (shared/base/runtime/collection-sizes.ts). */
  components(): readonly object[];
  /** Main and shadow only: number of native sequences that no request uses and that are retained for later prompts with the same beginning. */
  retainedSequences?(): number;
  /** Worker only: the device memory of its slots. */
  readonly memory?: YieldingMemory;
  /** Main only: its metrics in Prometheus' text format. */
  metrics?(): Promise<string>;
  /** Main only: the events of `GET /cluster/events` from now on. */
  events?(wantsPasses: boolean): { next(): Promise<ClusterEvent | null>; end(): void };
  /**
   * Main only: takes no more requests and lets those under way end, within main.stop_grace_ms or until the signal aborts; call stop() after it.
   * Other nodes do not need it, because stop() cuts off no request of theirs.
   */
  drain?(cut: AbortSignal): Promise<void>;
  /** Worker and shadow only: main is connected to it. */
  hasMain?(): boolean;
  /** Stops at once. Idempotent; resolves when everything is closed and disposed of. */
  stop(): Promise<void>;
}
