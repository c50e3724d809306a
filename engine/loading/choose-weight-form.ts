import { measureExperts, type Device } from '../../native/index.js';
import type { WeightForm } from '../../shared/settings/setting-choices.js';
import { toOdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { ShippedFormat, WeightFormat } from '../../shared/model/tensor-source.js';

/** The result of `resident: auto`. */
export interface WeightFormChoice {
  format: WeightFormat;
  /**
   * BF16's time divided by fixed4's time, for one row on this machine; null: not measured. It is measured only for BF16 on a processor, and
   * only if the device has room for the measurement.
   */
  fixed4Speedup: number | null;
}

/** Chooses the weight form of a model; `shipped`: the form in which the model is published. */
export type ChooseWeightForm = (device: Device, shipped: ShippedFormat) => Promise<WeightFormChoice>;

/** fixed4 must be this much faster: a measurement shorter than an answer has an error of a few percent. */
const LEAST_SPEEDUP = 1.05;

/** 75 MB of BF16: more than processor caches hold, and made in half a second. */
const SAMPLE = {
  hiddenSize: 1024,
  intermediateSize: 1024,
  experts: 12,
  forms: [
    { format: 'bf16' as const, upperAlone: false },
    { format: 'fixed4' as const, upperAlone: false },
  ],
  tokens: Int32Array.of(1),
  milliseconds: 150,
};

/** The form to use for BF16 weights when fixed4 multiplies this many times faster. */
export function fasterWeightForm(fixed4Speedup: number): 'bf16' | 'fixed4' {
  return fixed4Speedup >= LEAST_SPEEDUP ? 'fixed4' : 'bf16';
}

/**
 * Measures random experts on the device, which must be in this process and not emulated. Call it before the model is loaded, so that the
 * experts' memory is free again by then. If the device has too little memory for this, the shipped form is returned.
 */
export async function chooseWeightForm(device: Device, shipped: ShippedFormat): Promise<WeightFormChoice> {
  if (shipped !== 'bf16' || device.info().backend !== 'cpu') return { format: namedForm(shipped), fixed4Speedup: null };
  try {
    const [speed] = await measureExperts(device, SAMPLE);
    const fixed4Speedup = speed?.forms[1]?.speedup ?? 0;
    return { format: fasterWeightForm(fixed4Speedup), fixed4Speedup };
  } catch (thrown) {
    const error = toOdmoeError(thrown);
    if (error.code === 'DEVICE_OUT_OF_MEMORY') return { format: namedForm(shipped), fixed4Speedup: null };
    throw error;
  }
}

/** The name of a shipped form; `shipped` where matrices have several. */
function namedForm(shipped: ShippedFormat): WeightFormat {
  return shipped === 'mixed' ? 'shipped' : shipped;
}

/** True if the form would round values of a model with this shipped form. */
export function wouldRound(shipped: ShippedFormat, resident: WeightForm | null): boolean {
  return resident === 'bf16' && shipped !== 'bf16';
}

/**
 * The form in which weights are loaded, and the choice of `auto` (null if the settings named a form). `choose` null: the device is emulated and
 * results must not depend on the machine; then `auto` keeps the shipped form.
 */
export async function resolveWeightForm(
  device: Device,
  shipped: ShippedFormat,
  wanted: WeightFormat | 'auto' | null,
  choose: ChooseWeightForm | null,
): Promise<{ format: WeightFormat; choice: WeightFormChoice | null }> {
  // The experts' own form keeps every other matrix in its own form, too.
  const loaded = (format: WeightFormat | null): WeightFormat =>
    format === null || format === shipped ? 'shipped' : format;
  if (wanted !== 'auto') return { format: loaded(wanted), choice: null };
  const choice = (await choose?.(device, shipped)) ?? null;
  return { format: loaded(choice?.format ?? null), choice };
}
