import type { ClusterEvent } from '../../shared/wire/cluster-events.js';

/** Memory of a device that gives way when others want it, as experts that are kept do for the rows of sequences. */
export interface YieldingMemory {
  /** Bytes that could still be given back, though perhaps not at once. */
  readonly yieldableBytes: number;
  /** Gives so many bytes back, or what of them can be given now; returns how many were. */
  giveBack(bytes: number): number;
  /** So many bytes of the device are free: takes what it had given back, as far as they go. */
  takeBack(freeBytes: number): void;
}

/** Handle of a running daemon, in its own process or in a test's. */
export interface RunningNode {
  /** "host:port" it listens on. */
  readonly address: string;
  /** Of main: "host:port" where HTTP clients are served; null: nowhere. */
  readonly httpAddress?: string | null;
  /** What it holds for requests, by name: all of it is 0 when nobody has asked for anything for a while. */
  openCounts(): Readonly<Record<string, number>>;
  /** Objects whose fields lead to all its maps, sets and lists (shared/base/runtime/collection-sizes.ts). */
  parts(): readonly object[];
  /** Of main and shadow: native sequences that no request uses, and that are kept for later ones that begin alike. */
  keptSequences?(): number;
  /** Of a worker: what its slots take of its device. */
  readonly memory?: YieldingMemory;
  /** Of main: its metrics in Prometheus' text format. */
  metrics?(): Promise<string>;
  /** Of main: what `GET /cluster/events` tells, from now on. */
  events?(wantsPasses: boolean): { next(): Promise<ClusterEvent | null>; end(): void };
  /**
   * Of main: takes no more requests and lets those under way end, within main.stop_grace_ms or until the signal aborts; stop() follows.
   * Others have nothing that stop() would cut off.
   */
  drain?(cut: AbortSignal): Promise<void>;
  /** At once. Idempotent; resolves when everything is closed and disposed. */
  stop(): Promise<void>;
}
