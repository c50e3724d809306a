/** What a worker tells of the experts that it keeps from one use to the next, on its device and beside it (proto/odmoe/v1/node.proto). */

export interface PoolCounts {
  full: number;
  compressed: number;
  signMantissa: number;
  exponent: number;
}

export interface CacheStatus {
  policy: string;
  bytes: number;
  capacities: PoolCounts;
  kept: PoolCounts;
  /** Whole ones that are held as fixed4. */
  packed: number;
  hits: PoolCounts;
  misses: number;
}

/** Experts that a worker keeps in host memory as they are stored. */
export interface HostMemoryStatus {
  /** That they may take now. */
  budgetBytes: number;
  heldBytes: number;
  experts: number;
  /** Loads that took bytes from there, and these bytes. */
  loads: number;
  loadedBytes: number;
  /** Read from storage to fill it. */
  filledBytes: number;
}
