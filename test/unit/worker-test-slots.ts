import assert from 'node:assert/strict';
import {
  ONE_READ_AT_A_TIME,
  type ExpertSlots,
  type HoldOutcome,
  type LoadOutcome,
  type LoadRequest,
  type RecodeOutcome,
} from '../../native/index.js';
import type { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { Logger } from '../../shared/base/log/logger.js';
import type { PrecisionRule } from '../../shared/decisions/slices/plan-readings.js';
import type { ModelSource } from '../../shared/model/tensor-source.js';
import type { ExpertCache } from '../../worker-node/cache/expert-cache.js';
import { ExpertService } from '../../worker-node/executor/expert-service.js';
import { RUNTIME } from '../wall.js';
import { perPart, type PerPart } from '../../shared/model/expert-parts.js';

const OUTCOME = {
  readMs: perPart(() => 0),
  decompressMs: 0,
  cached: perPart(() => false),
};

/** Slots whose loads end when the test says so; "experts" that add their number (layer x 100 + expert) to every byte. */
export class TestSlots implements ExpertSlots {
  readonly slotBytes = 10;
  readonly storageReads = ONE_READ_AT_A_TIME;
  readonly calls: string[] = [];
  readonly requests: LoadRequest[] = [];
  readonly pending = new Map<
    number,
    {
      expert: number;
      fills: PerPart<boolean>;
      resolve: (outcome: LoadOutcome) => void;
      reject: (e: Error) => void;
    }
  >();
  private readonly contents = new Map<number, number>();
  holding: { resolve: (outcome: HoldOutcome) => void; reject: (fault: Error) => void } | null = null;
  executeFault: Error | null = null;
  cancelFault: Error | null = null;
  takeFault: Error | null = null;
  /** Loads that are cancelled end when the test says so. */
  cancelsEndLate = false;

  constructor(readonly count: number) {}

  register(source: unknown): number {
    return (source as { expert: number }).expert;
  }

  load(slot: number, expert: number, request: LoadRequest): Promise<LoadOutcome> {
    this.calls.push(`load ${slot} ${expert}`);
    this.requests.push(request);
    assert.ok(!this.pending.has(slot), 'two loads of one slot at a time');
    this.contents.delete(slot);
    const fills = perPart((part) => request.parts[part].entry >= 0);
    return new Promise((resolve, reject) => this.pending.set(slot, { expert, fills, resolve, reject }));
  }

  letGo(slot: number): void {
    this.calls.push(`let go ${slot}`);
    this.contents.delete(slot);
  }

  take(slot: number): void {
    if (this.takeFault !== null) throw this.takeFault;
    this.calls.push(`take ${slot}`);
  }

  letGoLower(slot: number): void {
    this.calls.push(`let go lower ${slot}`);
  }

  takeLower(slot: number): void {
    this.calls.push(`take lower ${slot}`);
  }

  async endLoad(slot: number, fault: Error | null = null, loadMs = 2): Promise<void> {
    const load = this.pending.get(slot);
    assert.ok(load, `no load of slot ${slot} is under way`);
    this.pending.delete(slot);
    if (fault === null) {
      this.contents.set(slot, load.expert);
      load.resolve({ ...OUTCOME, cached: load.fills, loaded: true, readBytes: 7, loadMs });
    } else {
      load.reject(fault);
    }
    await settle();
  }

  cancel(slot: number): void {
    this.calls.push(`cancel ${slot}`);
    if (this.cancelFault !== null) throw this.cancelFault;
    if (!this.cancelsEndLate) this.endCancelled(slot);
  }

  /** The load of the slot ends without its expert. */
  endCancelled(slot: number): void {
    this.pending.get(slot)?.resolve({ ...OUTCOME, loaded: false, readBytes: 3, loadMs: 1 });
    this.pending.delete(slot);
  }

  prioritize(slot: number): void {
    this.calls.push(`prioritize ${slot}`);
  }

  reorder(slot: number): void {
    this.calls.push(`reorder ${slot}`);
  }

  async execute(slot: number, rows: number, hidden: Uint8Array, output: Uint8Array): Promise<{ executeMs: number }> {
    this.calls.push(`execute ${slot} ${rows}`);
    if (this.executeFault !== null) throw this.executeFault;
    const expert = this.contents.get(slot);
    assert.ok(expert !== undefined, 'an empty slot is executed');
    output.set(hidden.map((value) => value + expert));
    return { executeMs: 1 };
  }

  hold(expert: number): Promise<HoldOutcome> {
    this.calls.push(`hold ${expert}`);
    return new Promise((resolve, reject) => {
      this.holding = { resolve, reject };
    });
  }

  cancelHold(): void {
    this.calls.push('cancel hold');
    this.endHold(false);
  }

  /** Ends the hold under way, if there is one. */
  endHold(held: boolean, fault: Error | null = null): void {
    const { holding } = this;
    this.holding = null;
    if (fault !== null) holding?.reject(fault);
    else holding?.resolve({ held, bytes: held ? 4096 : 0, readBytes: 7 });
  }

  dropHeld(expert: number): void {
    this.calls.push(`drop ${expert}`);
  }

  /** The pack under way, to be ended by the test. */
  recoding: { slot: number; resolve: (outcome: RecodeOutcome) => void; reject: (fault: Error) => void } | null = null;

  pack(slot: number): Promise<RecodeOutcome> {
    this.calls.push(`pack ${slot}`);
    assert.equal(this.recoding, null, 'one pack at a time');
    return new Promise((resolve, reject) => {
      this.recoding = { slot, resolve, reject };
    });
  }

  cancelPack(): void {
    this.calls.push('cancel pack');
    this.endPack('givenUp');
  }

  failPack(fault: Error): void {
    this.recoding?.reject(fault);
    this.recoding = null;
  }

  /** Ends the pack under way, if there is one. */
  endPack(outcome: RecodeOutcome): void {
    const { recoding } = this;
    this.recoding = null;
    recoding?.resolve(outcome);
  }

  dispose(): void {
    this.calls.push('dispose');
  }
}

/** Lets all due work run. */
export const settle = (): Promise<void> => new Promise((resolve) => setImmediate(() => setImmediate(resolve)));
const NO_CHUNKS = { view: null, chunks: [] };

/** Experts that TestSlots knows by number. */
export const testSource = {
  shape: { experts: 100 },
  expert: (layer: number, expert: number) => ({
    expert: layer * 100 + expert,
    gate: NO_CHUNKS,
    up: NO_CHUNKS,
    down: NO_CHUNKS,
  }),
} as unknown as ModelSource;

const nothing = (): void => undefined;

/** A worker's experts in these slots, those of the cache at the end of them. */
export function testService(
  slots: TestSlots,
  maxRows: number,
  runtime = RUNTIME,
  cache: ExpertCache | null = null,
  onDeviceLost: (error: OdmoeError) => void = nothing,
  packs = false,
  rule: PrecisionRule | null = null,
): ExpertService {
  const workerSlots = { slots, maxRows, decompressionThreads: 1, cache, packs };
  const options = { source: testSource, runtime, log: silentLog, supply: null, onDeviceLost, rule };
  return new ExpertService(workerSlots, options);
}

export const silentLog: Logger = { error: nothing, warn: nothing, info: nothing, debug: nothing };
