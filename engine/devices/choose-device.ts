import type { CudaStatus, DeviceOptions } from '../../native/index.js';
import type { ErrorCode } from '../../shared/base/errors/registry.js';
import type { OdmoeError } from '../../shared/base/errors/odmoe-error.js';

/** What somebody wants to run on. Any DeviceOptions is one. */
export interface DeviceWish extends Pick<DeviceOptions, 'instructionSet' | 'threads' | 'budgetBytes'> {
  /** auto: a GPU where one can be used and the budget holds its context and what the node puts there, else the processor. */
  backend: 'auto' | 'cpu' | 'cuda';
  /** Which CUDA device; null or left out: the first that can be used. */
  device?: number | null;
  arithmetic?: DeviceOptions['arithmetic'];
}

export interface DeviceChoice {
  options: DeviceOptions;
  /** Why this one, for a log and the status. */
  reason: string;
}

/** Whether what CUDA there is matters to the choice: asking for it wakes the driver. */
export function dependsOnCuda({ backend }: DeviceWish, emulated: boolean): boolean {
  return backend !== 'cpu' && !emulated;
}

/**
 * Which device a node takes. `cuda`: what this machine has of it; null where nothing depends on it. A GPU that was asked for by name is
 * chosen whether or not it can be used: opening it says why not.
 */
export function chooseDevice(wish: DeviceWish, cuda: CudaStatus | null, emulated: boolean): DeviceChoice {
  if (emulated) return onProcessor(wish, "under emulation the arithmetic is the processor's");
  if (wish.backend === 'cpu') return onProcessor(wish, 'as configured');
  const wanted = wish.device ?? null;
  const usable = cuda?.devices.find(({ index, usable }) => usable && (wanted === null || index === wanted));
  if (wish.backend === 'cuda') return onGpu(wish, wanted ?? usable?.index ?? 0, 'as configured');
  if (usable !== undefined) return onGpu(wish, usable.index, 'the first GPU that can be used');
  return onProcessor(wish, `CUDA is not used: ${cuda?.reason ?? 'nobody has looked for it'}`);
}

/**
 * What is left when a GPU that was chosen turned out not to do: it could not be opened, or (`filling`) it does not hold what the node
 * puts there. Null: it was asked for by name, or something else is wrong.
 */
export function afterRefusal(
  wish: DeviceWish,
  { options }: Pick<DeviceChoice, 'options'>,
  failure: OdmoeError,
  filling: boolean,
): DeviceChoice | null {
  const refused = filling ? failure.code === 'DEVICE_OUT_OF_MEMORY' : REFUSALS.has(failure.code);
  if (wish.backend !== 'auto' || options.backend !== 'cuda' || !refused) return null;
  return onProcessor(wish, `CUDA is not used: ${failure.message}`);
}

/** Of opening a GPU: a budget that does not hold its context, a program that has it for itself, and so on. */
const REFUSALS: ReadonlySet<ErrorCode> = new Set([
  'DEVICE_UNAVAILABLE',
  'DEVICE_OUT_OF_MEMORY',
  'DEVICE_LOST',
  'DEVICE_DRIVER_TOO_OLD',
  'DEVICE_ARCHITECTURE_UNSUPPORTED',
]);

function onProcessor(wish: DeviceWish, reason: string): DeviceChoice {
  return { options: optionsFor(wish, 'cpu', 0), reason };
}

function onGpu(wish: DeviceWish, device: number, reason: string): DeviceChoice {
  return { options: optionsFor(wish, 'cuda', device), reason };
}

function optionsFor(wish: DeviceWish, backend: DeviceOptions['backend'], device: number): DeviceOptions {
  const { instructionSet, threads, budgetBytes, arithmetic } = wish;
  return { backend, instructionSet, threads, budgetBytes, device, arithmetic: arithmetic ?? 'exact' };
}
