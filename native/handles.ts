/** Handles of the objects on a device. They check every argument, and every error that they throw is an OdmoeError. */
import { OdmoeError } from '../shared/base/errors/odmoe-error.js';
import type { DenseRole } from '../shared/model/dense-roles.js';
import type { ModelShape } from '../shared/model/model-shape.js';
import type { ExpertSource, TensorSource, WeightFormat } from '../shared/model/tensor-source.js';
import type {
  ExpertOrder,
  ExpertSlots,
  FlatExpertSlots,
  HoldOutcome,
  RouterChoice,
  LoadOutcome,
  LoadRequest,
  Model,
  ModelHandle,
  RecodeOutcome,
  Pass,
  ResidentWeights,
  Sequence,
  StorageReads,
} from './addon.d.ts';
import { awaiting, calling } from './addon-errors.js';
import {
  checkBytes,
  checkExpertSource,
  checkFloats,
  checkFormat,
  checkInt32s,
  checkInteger,
  checkLoadRequest,
  checkOrder,
  checkRole,
  checkTensorSource,
} from './argument-checks.js';
import { flatLoadRequest, loadOutcomeOf } from './part-fields.js';

/** Most rows of a pass and of an execute. */
export const LARGEST_PASS_ROWS = 65536;

class CheckedSequence implements Sequence {
  constructor(readonly handle: Sequence) {}

  readRows(layer: number, position: number, rows: number): Uint8Array {
    checkInteger('layer', layer, 0);
    checkInteger('position', position, 0);
    checkInteger('rows', rows, 0);
    return calling(() => this.handle.readRows(layer, position, rows));
  }

  writeRows(layer: number, position: number, rows: number, values: Uint8Array): void {
    checkInteger('layer', layer, 0);
    checkInteger('position', position, 0);
    checkInteger('rows', rows, 0);
    checkBytes('values', values);
    calling(() => this.handle.writeRows(layer, position, rows, values));
  }

  get oldestPosition(): number {
    return calling(() => this.handle.oldestPosition);
  }

  truncate(length: number): void {
    checkInteger('length', length, 0);
    calling(() => this.handle.truncate(length));
  }

  fork(length: number): CheckedSequence {
    checkInteger('length', length, 0);
    return new CheckedSequence(calling(() => this.handle.fork(length)));
  }

  bytesToWrite(position: number, end: number): number {
    checkInteger('position', position, 0);
    checkInteger('end', end, position);
    return calling(() => this.handle.bytesToWrite(position, end));
  }

  get length(): number {
    return calling(() => this.handle.length);
  }

  dispose(): void {
    this.handle.dispose();
  }
}

class CheckedPass implements Pass {
  constructor(private readonly handle: Pass) {}

  async begin(
    sequences: Sequence[],
    rowSequence: Int32Array,
    positions: Int32Array,
    tokenIds: Int32Array,
  ): Promise<void> {
    checkInt32s('rowSequence', rowSequence);
    checkInt32s('positions', positions);
    checkInt32s('tokenIds', tokenIds);
    const handles = sequences.map((sequence) => {
      if (sequence instanceof CheckedSequence) return sequence.handle;
      throw new OdmoeError('INTERNAL', 'native call: a sequence that no model created');
    });
    await awaiting(() => this.handle.begin(handles, rowSequence, positions, tokenIds));
  }

  async attend(layer: number, hidden: Uint8Array): Promise<RouterChoice> {
    checkInteger('layer', layer, 0);
    checkBytes('hidden', hidden);
    return await awaiting(() => this.handle.attend(layer, hidden));
  }

  attendHere(layer: number, hidden: Uint8Array): RouterChoice | null {
    checkInteger('layer', layer, 0);
    checkBytes('hidden', hidden);
    return calling(() => this.handle.attendHere?.(layer, hidden) ?? null);
  }

  async combine(layer: number, outputs: Uint8Array, weights: Float32Array): Promise<void> {
    checkInteger('layer', layer, 0);
    checkBytes('outputs', outputs);
    checkFloats('weights', weights);
    await awaiting(() => this.handle.combine(layer, outputs, weights));
  }

  combineHere(layer: number, outputs: Uint8Array, weights: Float32Array): boolean {
    checkInteger('layer', layer, 0);
    checkBytes('outputs', outputs);
    checkFloats('weights', weights);
    return calling(() => this.handle.combineHere?.(layer, outputs, weights) ?? false);
  }

  async chooseAhead(layer: number): Promise<RouterChoice> {
    checkInteger('layer', layer, 0);
    return await awaiting(() => this.handle.chooseAhead(layer));
  }

  async forward(onRouter: ((layer: number, choice: RouterChoice) => void) | null): Promise<void> {
    await awaiting(() => this.handle.forward(onRouter));
  }

  async logits(rows: Int32Array): Promise<Float32Array> {
    checkInt32s('rows', rows);
    return await awaiting(() => this.handle.logits(rows));
  }

  cancel(): void {
    calling(() => {
      this.handle.cancel();
    });
  }

  dispose(): void {
    this.handle.dispose();
  }
}

export class CheckedModel implements Model {
  constructor(
    readonly shape: ModelShape,
    private readonly handle: ModelHandle,
  ) {}

  async loadDense(role: DenseRole, layer: number, source: TensorSource, format: WeightFormat): Promise<void> {
    checkRole(role);
    checkInteger('layer', layer, 0);
    checkTensorSource(source);
    checkFormat(format);
    await awaiting(() => this.handle.loadDense(role, layer, source, format));
  }

  async loadResidentExpert(layer: number, expert: number, source: ExpertSource, format: WeightFormat): Promise<void> {
    checkInteger('layer', layer, 0);
    checkInteger('expert', expert, 0);
    checkExpertSource(source);
    checkFormat(format);
    await awaiting(() => this.handle.loadResidentExpert(layer, expert, source, format));
  }

  residentWeights(): ResidentWeights {
    return calling(() => this.handle.residentWeights());
  }

  createSequence(): Sequence {
    return new CheckedSequence(calling(() => this.handle.createSequence()));
  }

  get sequenceBytes(): number {
    return calling(() => this.handle.sequenceBytes);
  }

  createPass(maxRows: number): Pass {
    checkInteger('maxRows', maxRows, 1, LARGEST_PASS_ROWS);
    return new CheckedPass(calling(() => this.handle.createPass(maxRows)));
  }

  dispose(): void {
    this.handle.dispose();
  }
}

export class CheckedExpertSlots implements ExpertSlots {
  readonly count: number;
  readonly slotBytes: number;

  constructor(private readonly handle: FlatExpertSlots) {
    this.count = handle.count;
    this.slotBytes = handle.slotBytes;
  }

  get storageReads(): StorageReads {
    return calling(() => this.handle.storageReads);
  }

  register(source: ExpertSource): number {
    checkExpertSource(source);
    return calling(() => this.handle.register(source));
  }

  async load(slot: number, expert: number, request: LoadRequest): Promise<LoadOutcome> {
    checkInteger('slot', slot, 0);
    checkInteger('expert', expert, 0);
    checkLoadRequest(request);
    return loadOutcomeOf(await awaiting(() => this.handle.load(slot, expert, flatLoadRequest(request))));
  }

  cancel(slot: number): void {
    checkInteger('slot', slot, 0);
    calling(() => {
      this.handle.cancel(slot);
    });
  }

  prioritize(slot: number): void {
    checkInteger('slot', slot, 0);
    calling(() => {
      this.handle.prioritize(slot);
    });
  }

  reorder(slot: number, order: ExpertOrder | null): void {
    checkInteger('slot', slot, 0);
    checkOrder(order);
    calling(() => {
      this.handle.reorder(slot, order);
    });
  }

  async execute(slot: number, rows: number, hidden: Uint8Array, output: Uint8Array): Promise<{ executeMs: number }> {
    checkInteger('slot', slot, 0);
    checkInteger('rows', rows, 1);
    checkBytes('hidden', hidden);
    checkBytes('output', output);
    return await awaiting(() => this.handle.execute(slot, rows, hidden, output));
  }

  executeHere(slot: number, rows: number, hidden: Uint8Array, output: Uint8Array): number | null {
    checkInteger('slot', slot, 0);
    checkInteger('rows', rows, 1);
    checkBytes('hidden', hidden);
    checkBytes('output', output);
    return calling(() => this.handle.executeHere?.(slot, rows, hidden, output) ?? null);
  }

  letGo(slot: number): void {
    checkInteger('slot', slot, 0);
    calling(() => this.handle.letGo(slot));
  }

  take(slot: number): void {
    checkInteger('slot', slot, 0);
    calling(() => this.handle.take(slot));
  }

  async hold(expert: number): Promise<HoldOutcome> {
    checkInteger('expert', expert, 0);
    return await awaiting(() => this.handle.hold(expert));
  }

  cancelHold(): void {
    calling(() => {
      this.handle.cancelHold();
    });
  }

  dropHeld(expert: number): void {
    checkInteger('expert', expert, 0);
    calling(() => {
      this.handle.dropHeld(expert);
    });
  }

  async pack(slot: number): Promise<RecodeOutcome> {
    checkInteger('slot', slot, 0);
    return await awaiting(() => this.handle.pack(slot));
  }

  cancelPack(): void {
    calling(() => {
      this.handle.cancelPack();
    });
  }

  dispose(): void {
    this.handle.dispose();
  }
}
