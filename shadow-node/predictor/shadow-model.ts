import { loadDenseWeights, loadResidentExperts, type Quantized } from '../../engine/loading/load-weights.js';
import { type Device, type Model } from '../../native/index.js';
import type { NodeSettings } from '../../shared/settings/node-settings.js';
import type { ModelSource } from '../../shared/model/tensor-source.js';

/** Rows of one pass of the shadow: of a piece of a prefill, and of positions caught up with at once. */
export const SHADOW_PASS_ROWS = 128;

export type ShadowPrecision = NodeSettings['shadow']['precision'];

/**
 * Loads the whole model, quantized as it is loaded: attention projections and experts in `precision`; routers, embedding and LM head as
 * shipped, because routers are what is emulated, or in `precision`, too (`quantized` all, as OD-MoE section 3.2 has it); norms as FP32.
 * @throws DEVICE_OUT_OF_MEMORY when the device's budget does not hold it, and what reading the model throws
 */
export async function loadShadowModel(
  device: Device,
  source: ModelSource,
  precision: ShadowPrecision,
  quantized: Quantized,
  onProgress?: (doneBytes: number, totalBytes: number) => void,
): Promise<Model> {
  const model = device.createModel(source.shape);
  try {
    await loadDenseWeights(model, source, precision, onProgress, quantized);
    await loadResidentExperts(model, source, precision, onProgress);
    return model;
  } catch (error) {
    model.dispose();
    throw error;
  }
}
