/** The only door to the native core. Everything thrown or rejected here is an OdmoeError. */
import type { Split } from '../shared/model/tensor-source.js';
import { calling } from './addon-errors.js';
import { addon } from './addon-loader.js';
import { checkBytes, checkInteger, checkSplit } from './argument-checks.js';

export type {
  Device,
  DeviceInfo,
  DeviceOptions,
  ExpertShape,
  ExpertSlots,
  GateChoice,
  LoadOutcome,
  Model,
  Pass,
  Sequence,
} from './addon.d.ts';
export { nativeStatus, type NativeStatus } from './addon-loader.js';
export { createExpertSlots, createModel, expertSlotBytes, measureMachine, openDevice } from './handles.js';

/** Cuts row-major values into byte planes (docs/pack-format.md). */
export function splitPlanes(values: Uint8Array, split: Split): Uint8Array[] {
  checkBytes('values', values);
  checkSplit(split);
  return calling(() => addon().splitPlanes(values, split));
}

/** The row-major values again, from all planes of the split. */
export function joinPlanes(planes: Uint8Array[], split: Split): Uint8Array {
  planes.forEach((plane) => checkBytes('plane', plane));
  checkSplit(split);
  return calling(() => addon().joinPlanes(planes, split));
}

/** CRC-32C. `seed`: the CRC of the bytes before these, 0 at the start. */
export function crc32c(bytes: Uint8Array, seed: number): number {
  checkBytes('bytes', bytes);
  checkInteger('seed', seed, 0, 2 ** 32 - 1);
  return calling(() => addon().crc32c(bytes, seed));
}

/** Linux: the process is killed when its parent dies. Elsewhere nothing. */
export function exitWithParent(): void {
  calling(() => {
    addon().exitWithParent();
  });
}

/** Instruction sets usable here, widest first. */
export function instructionSets(): string[] {
  return calling(() => addon().instructionSets());
}
