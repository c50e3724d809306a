import { loadDenseWeights, loadResidentExperts, type Quantized } from '../../engine/loading/load-weights.js';
import { type Device, type Model } from '../../native/index.js';
import type { NodeSettings } from '../../shared/settings/node-settings.js';
import type { ModelSource } from '../../shared/model/tensor-source.js';

/** Most rows of one pass of the shadow: of a chunk of a prefill, or of positions that are run together to catch up. */
export const SHADOW_PASS_ROWS = 128;

export type ShadowPrecision = NodeSettings['shadow']['precision'];

/**
 * Loads the whole model, which is quantized during the load: attention projections and experts in `precision`. Routers, embedding and LM head stay as
 * shipped, because routers are what is emulated; or they are in `precision`, too (`quantized` all, as in OD-MoE section 3.2). Norms are FP32.
 * @throws DEVICE_OUT_OF_MEMORY when the device's budget does not hold it, and the errors of reading the model
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
