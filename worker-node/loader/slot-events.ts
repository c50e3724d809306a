import type { PoolCapacities } from '../../shared/settings/cache-policies.js';
import type { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { CompressionState } from '../../shared/decisions/caching/load-times.js';
import type { CachedPart } from './cache-decisions.js';
import type { PassLayer } from '../../shared/wire/messages.js';
import type { PerPart } from '../../shared/model/expert-parts.js';

/** Experts of a layer that the rows of a pass may ask for, or will not ask for. */
export interface LayerExperts extends PassLayer {
  experts: readonly number[];
}

/** `critical`: those of the experts whose lower slices are expected to be read, too. Left out: none. */
export interface PredictedExperts extends LayerExperts {
  critical?: readonly number[];
}

/** An event that the slot schedule handles. */
export type SlotEvent =
  /** A later prediction of shadow for the same layer replaces its earlier one; a later one of main adds to it. */
  | ({ kind: 'predict'; source: 'main' | 'shadow' } & PredictedExperts)
  /** Main had announced these experts, and expects now that it will not ask for them. */
  | ({ kind: 'doubt' } & LayerExperts)
  /** Shadow had guessed a wrong token: its predictions for the sequence from `position` on are void. */
  | { kind: 'restart'; sequence: number; position: number }
  /**
   * Tickets rise from event to event. `last`: no further mini-batch for this expert follows. `readsLower`: a row of it reads the lower slices,
   * too; left out: none does, or the expert is not sliced. `isOfHead`: the expert is of the model's own head, whose passes run beside those of answers.
   */
  | ({
      kind: 'execute';
      ticket: number;
      last: boolean;
      expert: number;
      readsLower?: boolean;
      isOfHead?: boolean;
    } & PassLayer)
  /** The pass's router has chosen at this layer: these experts will not be requested. */
  | ({ kind: 'release' } & LayerExperts)
  /** The sequence has ended. */
  | { kind: 'end'; sequence: number }
  | ({ kind: 'loadSettled'; slot: number } & LoadEnd)
  /** The oldest execution under way in the slot has ended. */
  | { kind: 'executeSettled'; slot: number }
  /** All messages that had come together are handled; sent when `wantsTurnEnd`. */
  | { kind: 'turnEnded' }
  /** Main has had time to send its remaining messages about its current layer; sent when `wantsDecisionWaitEnd`. */
  | { kind: 'decisionWaitEnded' }
  /** A new placement: predictions under the old one are void. */
  | { kind: 'epochChanged' }
  /** The layers that this worker serves have changed, and so have the cache capacities of each layer. */
  | { kind: 'capacitiesChanged'; capacities: ReadonlyMap<number, PoolCapacities> }
  /**
   * This many slots should yield their memory, as far as they are idle; the last working slot never does. `spareOnly`: only empty slots
   * of the cache.
   */
  | { kind: 'memoryWanted'; slots: number; spareOnly?: boolean }
  /** A slot has its memory again. */
  | { kind: 'memoryTaken'; slot: number }
  /** Main is gone: nobody waits for anything now. */
  | { kind: 'mainLost' };

/** The end of a load, and whether the parts that entries should cache are complete. */
export interface LoadEnd {
  outcome: 'loaded' | 'cancelled' | 'failed';
  cached: PerPart<boolean>;
}

/** An expert to load, or slices of it; the source of its parts, and the entries that cache them. */
export interface SlotLoad {
  slot: number;
  layer: number;
  expert: number;
  parts: PerPart<CachedPart>;
  /** Main waits for it. */
  urgent: boolean;
}

export type SlotAction =
  | ({ kind: 'load' } & SlotLoad)
  /** Main now waits for the load in this slot. */
  | { kind: 'prioritize'; slot: number }
  | { kind: 'cancelLoad'; slot: number }
  | { kind: 'evict'; slot: number }
  /** The slot is empty and nothing loads into it: its memory goes back to the device. */
  | { kind: 'letGo'; slot: number }
  | { kind: 'execute'; slot: number; ticket: number; wasLoaded: boolean }
  /** Nobody waits for that execute any more. */
  | { kind: 'withdraw'; ticket: number }
  /**
   * The expert, or the lower slices that the execute reads, could not be loaded into the slot. `refusal`: the device had no memory for them;
   * left out: the load that has just ended says why.
   */
  | { kind: 'fail'; slot: number; ticket: number; refusal?: OdmoeError };

export interface SlotCounters {
  /** Experts that came too late to be loaded. */
  latePredictions: number;
  /** Predictions dropped because there was no room. */
  droppedPredictions: number;
  /** Experts that were loaded without an announcement. */
  unannouncedLoads: number;
  /** Uses of an expert, by the parts in memory when the use began. */
  uses: Readonly<Record<CompressionState, number>>;
}
