import { measureExperts, type Device } from '../../native/index.js';
import type { Resident } from '../../shared/settings/node-settings.js';
import { toOdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { WeightFormat } from '../../shared/model/tensor-source.js';

/** What `resident: auto` has chosen. */
export interface ResidentChoice {
  format: WeightFormat;
  /**
   * BF16's time over fixed4's, one row, on this machine; null: not measured, as only BF16 on a processor has a choice, and only where the
   * device has room for the measurement.
   */
  fixed4Speedup: number | null;
}

/** Chooses the form of a model's weights, of which `shipped` is the one that they come in. */
export type ChooseResident = (device: Device, shipped: WeightFormat) => Promise<ResidentChoice>;

/** fixed4 must gain so much: a shorter measurement than an answer errs by a few percent. */
const LEAST_SPEEDUP = 1.05;

/** 75 MB of BF16: more than caches hold, and made in half a second. */
const SAMPLE = { hiddenSize: 1024, intermediateSize: 1024, experts: 12, tokens: Int32Array.of(1), milliseconds: 150 };

/** The form of BF16 weights that fixed4 multiplies so many times faster. */
export function fasterResident(fixed4Speedup: number): 'bf16' | 'fixed4' {
  return fixed4Speedup >= LEAST_SPEEDUP ? 'fixed4' : 'bf16';
}

/**
 * Measures random experts on the device, which must be one of this process and not emulated. Called before the model is loaded: the
 * experts' memory is free again when it is. Where the device has not so much memory, nothing is chosen.
 */
export async function chooseResident(device: Device, shipped: WeightFormat): Promise<ResidentChoice> {
  if (shipped !== 'bf16' || device.info().backend !== 'cpu') return { format: shipped, fixed4Speedup: null };
  try {
    const [speed] = await measureExperts(device, SAMPLE);
    const fixed4Speedup = speed?.fixed4Speedup ?? 0;
    return { format: fasterResident(fixed4Speedup), fixed4Speedup };
  } catch (thrown) {
    const error = toOdmoeError(thrown);
    if (error.code === 'DEVICE_OUT_OF_MEMORY') return { format: shipped, fixed4Speedup: null };
    throw error;
  }
}

/** Whether the form would round values of a model that is shipped so. */
export function wouldRound(shipped: WeightFormat, resident: Resident | null): boolean {
  return resident === 'bf16' && shipped !== 'bf16';
}

/**
 * The form that weights are loaded in, and what `auto` has chosen (null where a form was named). `choose` null: the device is emulated,
 * and nothing is to depend on the machine; `auto` then keeps them as shipped.
 */
export async function residentFormat(
  device: Device,
  shipped: WeightFormat,
  wanted: WeightFormat | 'auto' | null,
  choose: ChooseResident | null,
): Promise<{ format: WeightFormat; choice: ResidentChoice | null }> {
  if (wanted !== 'auto') return { format: wanted ?? shipped, choice: null };
  const choice = (await choose?.(device, shipped)) ?? null;
  return { format: choice?.format ?? shipped, choice };
}
