import type { PoolCapacities } from '../../shared/settings/cache-policies.js';
import type { CompressionState } from '../../shared/decisions/caching/load-times.js';
import type { CachedPart } from './cache-decisions.js';
import type { PassLayer } from '../../shared/wire/messages.js';

/** Experts of a layer that the rows of a pass may ask for, or will not. */
export interface LayerExperts extends PassLayer {
  experts: readonly number[];
}

/** What happens to a worker's slots. */
export type SlotEvent =
  /** Of shadow, a later prediction for the same layer replaces an earlier one; of main, it adds. */
  | ({ kind: 'predict'; source: 'main' | 'shadow' } & LayerExperts)
  /** Shadow had guessed a token wrong: what it has predicted for the sequence from `position` on is void. */
  | { kind: 'restart'; sequence: number; position: number }
  /** Tickets rise from event to event. `last`: no mini-batch for this expert follows. */
  | ({ kind: 'execute'; ticket: number; last: boolean; expert: number } & PassLayer)
  /** The pass's router has chosen at this layer: these experts are not asked for. */
  | ({ kind: 'release' } & LayerExperts)
  /** The sequence has ended. */
  | { kind: 'end'; sequence: number }
  | ({ kind: 'loadSettled'; slot: number } & LoadEnd)
  /** Of the executions of a slot the one started first. */
  | { kind: 'executeSettled'; slot: number }
  /** All messages that had come together are in; sent when `wantsTurnEnd`. */
  | { kind: 'turnEnded' }
  /** What main may still have had to say about the layer it is at has had time to come; sent when `wantsGraceEnd`. */
  | { kind: 'graceEnded' }
  /** Another placement: what was predicted under the old one is void. */
  | { kind: 'epochChanged' }
  /** The layers that this worker serves have changed, and with them which of them keep how many experts. */
  | { kind: 'capacitiesChanged'; capacities: ReadonlyMap<number, PoolCapacities> }
  /** So many slots are to give their memory back, as far as they are idle; the last working slot never does. `spareOnly`: slots of the cache with nothing in them. */
  | { kind: 'memoryWanted'; slots: number; spareOnly?: boolean }
  /** A slot has its memory again. */
  | { kind: 'memoryTaken'; slot: number }
  /** Main is gone: nobody waits for anything any more. */
  | { kind: 'mainLost' };

/** How a load ended; the parts that were to be kept are complete in their entries, or not. */
export interface LoadEnd {
  outcome: 'loaded' | 'cancelled' | 'failed';
  exponentsKept: boolean;
  signMantissaKept: boolean;
}

/** An expert to be loaded, where its parts come from and what of them is kept. */
export interface SlotLoad {
  slot: number;
  layer: number;
  expert: number;
  exponents: CachedPart;
  signMantissa: CachedPart;
  /** Main waits for it. */
  urgent: boolean;
}

export type SlotAction =
  | ({ kind: 'load' } & SlotLoad)
  /** Main has come to wait for what the slot loads. */
  | { kind: 'prioritize'; slot: number }
  | { kind: 'cancelLoad'; slot: number }
  | { kind: 'evict'; slot: number }
  /** Nothing is in the slot or on its way there: its memory goes back to the device. */
  | { kind: 'letGo'; slot: number }
  | { kind: 'execute'; slot: number; ticket: number; wasLoaded: boolean }
  /** Nobody waits for that execute any more. */
  | { kind: 'withdraw'; ticket: number }
  /** The expert could not be loaded into the slot. */
  | { kind: 'fail'; slot: number; ticket: number };

export interface SlotCounters {
  /** Experts that came too late to be loaded. */
  latePredictions: number;
  /** Experts dropped for want of room. */
  droppedPredictions: number;
  /** Experts loaded that no prediction had announced. */
  reloads: number;
  /** Uses of an expert by what of it was in memory when the use began. */
  uses: Readonly<Record<CompressionState, number>>;
}
