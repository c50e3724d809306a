import type { Quantized } from '../../engine/loading/load-weights.js';
import { loadShadowWeights, type ShadowForm, type ShadowLoading } from '../../engine/loading/shadow-form.js';
import { type Device, type Model } from '../../native/index.js';
import type { ModelShape } from '../../shared/model/model-shape.js';
import type { ModelSource } from '../../shared/model/tensor-source.js';

/** Most rows of one pass of the shadow: of a chunk of a prefill, or of positions that are run together to catch up. */
export const SHADOW_PASS_ROWS = 128;

/**
 * Loads the whole model, which is quantized during the load: attention projections and experts in the format of `form`, or experts in its slices.
 * Routers, embedding and LM head stay as shipped, because routers are what is emulated; or they are in its format, too (`quantized` all, as in
 * OD-MoE section 3.2). Norms are FP32. `shape`: the source's own, or that with a longer context.
 * @throws DEVICE_OUT_OF_MEMORY when the device's budget does not hold it, and the errors of loadShadowWeights
 */
export async function loadShadowModel(
  device: Device,
  source: ModelSource,
  form: ShadowForm,
  quantized: Quantized,
  loading: ShadowLoading = {},
  shape: ModelShape = source.shape,
): Promise<Model> {
  const model = device.createModel(shape);
  try {
    await loadShadowWeights(model, source, form, quantized, loading);
    return model;
  } catch (error) {
    model.dispose();
    throw error;
  }
}
