import type { LayerShape, ModelShape } from '../../shared/model/model-shape.js';
import type { NamedTensor, TensorNames } from './checkpoint-layout.js';

/**
 * Heads that draft tokens (multi-token prediction, DeepSeek-V3's report, section 2.2). Of several heads in a checkpoint the first is read. Names and
 * arithmetic: vLLM's deepseek_mtp.py, glm4_moe_mtp.py, qwen3_next_mtp.py and mimo_v2_mtp.py. The order of the two halves is the same in all of them.
 */
export interface DraftHeadNames {
  layer: LayerShape;
  /** The state that the next draft of a chain takes from the head. */
  chained: 'plain' | 'normed';
  /** One for each form in which its experts may be stored. */
  names: readonly TensorNames[];
}

/** The shape of a head as a model of one layer. */
export function draftHeadShape(shape: ModelShape, { layer, chained }: DraftHeadNames): ModelShape {
  const expertLayers = layer.routed === null ? 0 : 1;
  return { ...shape, layers: [layer], expertLayers, lmHeadBias: false, draftHead: { chained } };
}

/**
 * The head of DeepSeek's and GLM's checkpoints: it stands as a layer behind the last one, with an embedding and an LM head of its own. Null where
 * config.json counts no such layer.
 */
export function draftHeadBehindLast(shape: ModelShape, forms: readonly TensorNames[]): DraftHeadNames | null {
  const layer = shape.layers.findLast(({ routed }) => routed !== null);
  const firstLayer = shape.layers.length;
  if (layer === undefined || (forms[0]?.guessingLayers ?? 0) === 0) return null;
  const names = forms.map((form) => {
    const own = (name: string): string => `layers.${firstLayer}.${name}`;
    return {
      ...form,
      firstLayer,
      model: {
        embedding: own('embed_tokens.weight'),
        finalNorm: own('shared_head.norm.weight'),
        lmHead: form.prefix + own('shared_head.head.weight'),
        tokenNorm: own('enorm.weight'),
        stateNorm: own('hnorm.weight'),
        draftInput: own('eh_proj.weight'),
      },
    };
  });
  return { layer, chained: 'plain', names };
}

/** The head of Qwen3-Next's and Qwen3.5's checkpoints, `mtp.*`, which has the model's embedding and LM head. */
export function draftHeadBeside(
  layer: LayerShape,
  forms: readonly TensorNames[],
  norm: (name: string) => NamedTensor,
): DraftHeadNames {
  const names = forms.map((form) => ({
    ...form,
    prefix: 'mtp.',
    model: {
      embedding: 'embed_tokens.weight',
      finalNorm: norm('norm.weight'),
      lmHead: 'mtp.lm_head.weight',
      tokenNorm: norm('pre_fc_norm_embedding.weight'),
      stateNorm: norm('pre_fc_norm_hidden.weight'),
      draftInput: 'fc.weight',
    },
  }));
  return { layer, chained: 'normed', names };
}

/**
 * The first of the heads of MiMo-V2-Flash's checkpoints, `model.mtp.layers.N`, which have the model's embedding and LM head, and a dense network in place of
 * experts.
 */
export function draftHeadApart(layer: LayerShape, names: TensorNames): DraftHeadNames {
  const own = (name: string): string => `layers.0.${name}`;
  const apart = {
    ...names,
    prefix: 'model.mtp.',
    model: {
      embedding: 'embed_tokens.weight',
      finalNorm: own('final_layernorm.weight'),
      lmHead: 'model.mtp.lm_head.weight',
      tokenNorm: own('enorm.weight'),
      stateNorm: own('hnorm.weight'),
      draftInput: own('eh_proj.weight'),
    },
    layer: { ...names.layer, feedForwardNorm: 'pre_mlp_layernorm.weight' },
  };
  return { layer, chained: 'normed', names: [apart] };
}
