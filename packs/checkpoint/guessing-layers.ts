import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { ModelConfig } from '../model-config/model-family.js';
import type { CheckpointTensors } from './stored-forms.js';

/**
 * Which tensors belong to layers that only guess tokens ahead, and are left out. Config.json must say how many there are, and each must have
 * what such a layer has: a layer behind the last one that is like any other is a sign of a wrong num_hidden_layers.
 * @throws MODEL_UNSUPPORTED
 */
export function guessingTensors(config: ModelConfig, found: CheckpointTensors): ReadonlySet<string> {
  const { layout, otherLayouts, shape } = config;
  const { guessing } = layout;
  // Their experts may be stored in a form of their own.
  const forms = [layout, ...otherLayouts].map((form) => form.guessing);
  const layers = shape.layers.length;
  const checked = new Set<number>();
  const leftOut = new Set<string>();
  for (const [name, { path }] of found) {
    const layer = guessing.layerBehindLast(name);
    if (layer === null) continue;
    const refuse = (problem: string): OdmoeError =>
      new OdmoeError(
        'MODEL_UNSUPPORTED',
        `${path}: tensor ${name} is of layer ${layer}, and config.json says num_hidden_layers ${layers}, whose last layer is ` +
          `${layers - 1}: ${problem}; check that config.json belongs to these weights`,
      );
    if (layer >= layers + guessing.count) {
      throw refuse(`num_nextn_predict_layers says ${guessing.count} layers behind it that guess ahead`);
    }
    if (!checked.has(layer)) {
      const missing = guessing.marks(layer).filter((mark) => !found.has(mark));
      if (missing.length > 0) throw refuse(`a layer that guesses ahead would have ${missing.join(' and ')}`);
      checked.add(layer);
    }
    if (!forms.some((form) => form.isPart(name)))
      throw refuse('by what config.json says of layers, one that guesses ahead has no such tensor');
    leftOut.add(name);
  }
  return leftOut;
}
