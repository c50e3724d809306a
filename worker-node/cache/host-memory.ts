import type { ExpertId } from '../../shared/model/expert-id.js';
import type { ExpertSlots } from '../../native/index.js';
import { toOdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { Logger } from '../../shared/base/log/logger.js';
import { type PartSizes, partSizes } from '../../shared/model/part-sizes.js';
import type { ModelSource } from '../../shared/model/tensor-source.js';
import type { ActivationCounts } from '../../shared/decisions/caching/activation-counts.js';
import {
  type HoldCandidate,
  hostMemoryBudget,
  type LoadRates,
  planDividedExperts,
  planHeldExperts,
} from '../loader/host-memory-plan.js';
import type { HostMemoryStatus } from '../../shared/wire/messages.js';
import type { Runtime, Timer } from '../../shared/base/runtime/runtime.js';
import { sumOfParts } from '../../shared/model/expert-parts.js';

/** Interval at which the host's free memory is read and the held experts are planned again. */
export const HOST_MEMORY_INTERVAL_MS = 2000;
/** After the host has refused memory, no expert is read into host memory for this time. */
export const REFUSED_REST_MS = 30_000;

/** Fills between two plannings: with tens of thousands of experts, a planning takes as long as a fill. */
export const FILLS_PER_PLAN = 16;

/** Settings and sources of a worker's host memory. */
export interface HostMemoryOptions {
  /** worker.host_memory; not 0. */
  setting: number | 'auto';
  source: Pick<ModelSource, 'expert' | 'shape'>;
  /** Counts of the uses of each expert. */
  counts: ActivationCounts;
  /** True if the expert's bytes are on the disk. */
  isHere: (layer: number, expert: number) => boolean;
}

/** Access to the other components of the worker. */
export interface HostMemoryParts {
  slots: Pick<ExpertSlots, 'hold' | 'cancelHold' | 'dropHeld'>;
  /** The number by which the slots know the expert. */
  numberOf: (layer: number, expert: number) => number;
  /** When layers are divided by bandwidth: the measured load rates. Null: the most used experts of all layers are held. */
  rates: () => LoadRates | null;
  /** Experts that are whole in the device's cache. */
  cached: () => readonly ExpertId[];
  runtime: Pick<Runtime, 'every' | 'freeHostMemoryBytes' | 'nowMs'>;
  log: Logger;
}

interface Held {
  number: number;
  bytes: number;
}

/**
 * The experts that a worker holds in host memory, as they are stored. Fills the memory in the background with the most used experts of the
 * worker's layers. Drops experts when others are used more or when the host runs short of memory. No answer needs it: if something fails, loads
 * read from storage.
 */
export class HostMemory {
  private readonly held = new Map<number, Held>();
  /** Numbers of experts that could not be read; an expert that is fetched again gets a new number. */
  private readonly failed = new Set<number>();
  /** Bytes of the experts whose size was computed before. */
  private readonly sizes = new Map<number, number>();
  private readonly timer: Timer;
  private layers: readonly number[] = [];
  /** The next experts to fill, by the last plan. */
  private due: HoldCandidate[] = [];
  private filling: Promise<void> | null = null;
  private closed = false;
  private hasLogged = false;
  private restUntilMs = 0;
  private heldBytes = 0;
  private budgetBytes = 0;
  private filledBytes = 0;
  private loads = 0;
  private loadedBytes = 0;

  constructor(
    private readonly options: HostMemoryOptions,
    private readonly parts: HostMemoryParts,
  ) {
    this.timer = parts.runtime.every(HOST_MEMORY_INTERVAL_MS, () => {
      this.adapt();
    });
    this.timer.unref();
  }

  get status(): HostMemoryStatus {
    const { budgetBytes, heldBytes, loads, loadedBytes, filledBytes } = this;
    return { budgetBytes, heldBytes, experts: this.held.size, loads, loadedBytes, filledBytes };
  }

  /** The number of the held expert; null: it is not held. */
  heldNumber(layer: number, expert: number): number | null {
    return this.held.get(this.keyOf(layer, expert))?.number ?? null;
  }

  /** Counts one use of the expert. For a worker without a cache, which would count it. */
  countUse(layer: number, expert: number): void {
    this.options.counts.add(layer, expert, 1);
  }

  /** A load took these bytes from host memory. */
  countLoad(bytes: number): void {
    if (bytes === 0) return;
    this.loads += 1;
    this.loadedBytes += bytes;
  }

  /** Sets the layers that this worker serves from now on. */
  serve(layers: readonly number[]): void {
    this.layers = layers;
    this.adapt();
  }

  /** Stops filling and gives all memory back. Idempotent. */
  async close(): Promise<void> {
    this.end();
    this.parts.slots.cancelHold();
    await this.filling;
    for (const key of [...this.held.keys()]) this.drop(key);
  }

  /** Stops the planning; held experts stay. */
  private end(): void {
    this.closed = true;
    this.timer.cancel();
  }

  /** Reads the host's free memory, drops experts that should no longer be held, and continues the filling. */
  private adapt(): void {
    if (this.closed) return;
    const { heldBytes } = this;
    try {
      this.replan();
    } catch (thrown) {
      this.parts.log.warn('what to keep in host memory could not be planned', { error: toOdmoeError(thrown) });
      return;
    }
    if (this.filling !== null) {
      // The host has no memory left for the expert that is being read now.
      if (this.budgetBytes <= heldBytes) this.parts.slots.cancelHold();
      return;
    }
    if (this.due.length === 0) return;
    this.filling = this.fill()
      .catch((thrown: unknown) => {
        this.parts.log.warn('filling host memory has ended early', { error: toOdmoeError(thrown) });
      })
      .finally(() => {
        this.filling = null;
      });
  }

  /** Fills one expert after the other, until the plan has none left. */
  private async fill(): Promise<void> {
    for (let next = this.nextDue(); next !== undefined; next = this.nextDue()) {
      if (!(await this.hold(next)) || this.closed) return;
    }
  }

  /** Plans again when all planned experts are filled, or when others have taken the memory meanwhile. */
  private nextDue(): HoldCandidate | undefined {
    // A plan made during a fill also contains the expert of that fill.
    const isOpen = ({ layer, expert }: HoldCandidate): boolean =>
      !this.held.has(this.keyOf(layer, expert)) && !this.hasFailed(layer, expert);
    this.due = this.due.filter(isOpen);
    const [next] = this.due;
    if (next === undefined || this.heldBytes + next.bytes > this.readBudget()) this.replan();
    return this.due.shift();
  }

  /** False: the fill was cancelled, and filling should stop for now. */
  private async hold({ layer, expert }: HoldCandidate): Promise<boolean> {
    let number: number | null = null;
    try {
      number = this.parts.numberOf(layer, expert);
      const { held, bytes, readBytes } = await this.parts.slots.hold(number);
      this.filledBytes += readBytes;
      if (!held) return false;
      this.held.set(this.keyOf(layer, expert), { number, bytes });
      this.heldBytes += bytes;
      return true;
    } catch (thrown) {
      const error = toOdmoeError(thrown);
      // A pack with many damaged experts is worth only one warning.
      const level = this.failed.size === 0 ? 'warn' : 'info';
      this.parts.log[level]('an expert could not be read into host memory', { layer, expert, error });
      if (number === null || error.code === 'DEVICE_LOST') this.end();
      // Memory may become free later. A damaged expert stays damaged, so it is marked as failed.
      else if (error.code === 'DEVICE_OUT_OF_MEMORY') this.restUntilMs = this.parts.runtime.nowMs() + REFUSED_REST_MS;
      else this.failed.add(number);
      return !this.closed && error.code !== 'DEVICE_OUT_OF_MEMORY';
    }
  }

  /** Drops experts that should no longer be held, and plans the next ones to fill. */
  private replan(): void {
    const isResting = this.parts.runtime.nowMs() < this.restUntilMs;
    this.readBudget();
    this.tellOfLessThanAsked();
    const rates = this.parts.rates();
    const wanted =
      rates === null
        ? planHeldExperts(this.candidates(), this.budgetBytes)
        : planDividedExperts(this.candidates(), this.budgetBytes, rates);
    const wantedKeys = new Set(wanted.map(({ layer, expert }) => this.keyOf(layer, expert)));
    for (const key of [...this.held.keys()]) if (!wantedKeys.has(key)) this.drop(key);
    this.due = isResting ? [] : wanted.filter(({ isHeld }) => !isHeld).slice(0, FILLS_PER_PLAN);
  }

  /**
   * Sets the bytes that may be held now, from the host's free memory. It is read each time because other workers of the host fill theirs
   * meanwhile.
   */
  private readBudget(): number {
    const freeBytes = this.parts.runtime.freeHostMemoryBytes();
    this.budgetBytes = hostMemoryBudget(this.options.setting, { freeBytes, heldBytes: this.heldBytes });
    return this.budgetBytes;
  }

  /** Warns once, with the first plan: later the host may be short for a moment. */
  private tellOfLessThanAsked(): void {
    const [{ setting }, { budgetBytes }] = [this.options, this];
    if (!this.hasLogged && setting !== 'auto' && budgetBytes < setting) {
      this.parts.log.warn('the host has less free memory than worker.host_memory asks for: what is free is used', {
        askedBytes: setting,
        budgetBytes,
      });
    }
    this.hasLogged = true;
  }

  private candidates(): HoldCandidate[] {
    const { counts, source, isHere } = this.options;
    const cached = new Set(this.parts.cached().map(({ layer, expert }) => this.keyOf(layer, expert)));
    return this.layers.flatMap((layer) => {
      const ofLayer = counts.of(layer);
      return Array.from({ length: source.shape.experts }, (_, expert) => expert)
        .filter((expert) => isHere(layer, expert) && !this.hasFailed(layer, expert))
        .map((expert) => {
          const key = this.keyOf(layer, expert);
          const held = this.held.get(key);
          return {
            layer,
            expert,
            bytes: held?.bytes ?? this.bytesOf(layer, expert),
            activations: ofLayer[expert] ?? 0,
            isCached: cached.has(key),
            isHeld: held !== undefined,
          };
        });
    });
  }

  private hasFailed(layer: number, expert: number): boolean {
    return this.failed.size > 0 && this.failed.has(this.parts.numberOf(layer, expert));
  }

  /** Host memory that the expert takes: its chunks, on whole pages of 4096 bytes. */
  private bytesOf(layer: number, expert: number): number {
    const key = this.keyOf(layer, expert);
    const bytes = this.sizes.get(key) ?? heldBytesOf(partSizes([this.options.source.expert(layer, expert)]));
    this.sizes.set(key, bytes);
    return bytes;
  }

  private drop(key: number): void {
    const held = this.held.get(key);
    if (held === undefined) return;
    this.held.delete(key);
    this.heldBytes -= held.bytes;
    this.parts.slots.dropHeld(held.number);
  }

  private keyOf(layer: number, expert: number): number {
    return layer * this.options.source.shape.experts + expert;
  }
}

/** One page more than all parts, as in native/src/runtime/host_chunks.cc. */
function heldBytesOf({ expertBytes }: PartSizes): number {
  return sumOfParts(expertBytes) + PAGE_BYTES;
}

const PAGE_BYTES = 4096;
