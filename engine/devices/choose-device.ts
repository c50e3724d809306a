import type { CudaStatus, DeviceOptions } from '../../native/index.js';
import type { ErrorCode } from '../../shared/base/errors/registry.js';
import type { OdmoeError } from '../../shared/base/errors/odmoe-error.js';

/** A request for a device. Any DeviceOptions fits this type. */
export interface DeviceWish extends Pick<DeviceOptions, 'instructionSet' | 'threads' | 'budgetBytes'> {
  /** auto: a GPU if one can be used and the budget holds its context and the node's data; otherwise the processor. */
  backend: 'auto' | 'cpu' | 'cuda';
  /** Index of the CUDA device; null or left out: the first usable one. */
  device?: number | null;
  arithmetic?: DeviceOptions['arithmetic'];
}

export interface DeviceChoice {
  options: DeviceOptions;
  /** The reason for this choice, for a log and the status. */
  reason: string;
}

/** True if the choice depends on the machine's CUDA devices. Otherwise they are not queried, because a query wakes the driver. */
export function dependsOnCuda({ backend }: DeviceWish, emulated: boolean): boolean {
  return backend !== 'cpu' && !emulated;
}

/**
 * Chooses the device of a node. `cuda`: the CUDA devices of this machine; null if the choice does not depend on them. A GPU that the settings
 * name is chosen even if it cannot be used: opening it reports the reason.
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
 * The second choice when the chosen GPU did not work: it could not be opened, or (`filling`) it does not hold the node's data. Null: the
 * settings named this GPU, or the error has another cause.
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

/** Errors of opening a GPU: for example the budget does not hold its context, or another program has the GPU exclusively. */
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

/** How a device computes: only a GPU may compute in a way that is faster than exact. */
export function computedBy(device: { info(): { backend: string } }, arithmetic: 'exact' | 'fast'): 'exact' | 'fast' {
  return device.info().backend === 'cuda' ? arithmetic : 'exact';
}

function optionsFor(wish: DeviceWish, backend: DeviceOptions['backend'], device: number): DeviceOptions {
  const { instructionSet, threads, budgetBytes, arithmetic } = wish;
  return { backend, instructionSet, threads, budgetBytes, device, arithmetic: arithmetic ?? 'exact' };
}
