/** The reason why a key of config.json that no code reads changes no answer. */
export interface ExplainedKey {
  why: string;
  /** The reason holds for these values only. */
  only?: readonly unknown[];
  /** The reason holds only for a list in which every item has this value. */
  all?: unknown;
  /** The reason holds for any value if another key of the same object has this value. */
  when?: readonly [key: string, value: unknown];
  /** The reason does not hold if this key of the same object is true. */
  unless?: string;
}

export type ExplainedKeys = Readonly<Record<string, ExplainedKey>>;

function each(keys: string, explained: ExplainedKey): ExplainedKeys {
  return Object.fromEntries(keys.split(' ').map((key) => [key, explained]));
}

const DESCRIBES = 'it describes the files or the program that wrote them';
const TRAINING = 'it counts while a model is trained';
const GENERATION = 'it is a setting of how answers are drawn, which requests give';
const OUTPUTS = 'it says what else a program returns beside the logits';
const SCHEDULE = 'it says how a program spreads or orders the same arithmetic';
const OTHER_TASK = 'it belongs to other tasks than text';
const GUESSING = 'it is of layers that only guess tokens ahead, whose tensors are looked at by name';
const OFF = 'this value switches off what is not computed here';
const NEUTRAL = 'this value changes nothing';
const USUAL = 'this value says what is computed anyway';

/** Keys of any family. If a family reads one of them, the explanation is not used. */
export const EXPLAINED_KEYS: ExplainedKeys = {
  ...each('architectures model_type transformers_version _name_or_path name_or_path _commit_hash auto_map', {
    why: DESCRIBES,
  }),
  ...each('tokenizer_class processor_class model_name unsloth_version unsloth_fixed language license prefix', {
    why: DESCRIBES,
  }),
  ...each('model_max_length seq_length max_sequence_length', { why: DESCRIBES }),
  ...each('torch_dtype dtype mamba_ssm_dtype use_bfloat16 org_vocab_size finetuning_task task_specific_params', {
    why: 'it describes the weights, whose files say it themselves',
  }),
  ...each('initializer_range initializer_factor init_std init_method rescale_prenorm_residual', { why: TRAINING }),
  ...each('router_jitter_noise input_jitter_noise seq_aux aux_loss_alpha gradient_checkpointing ignore_index', {
    why: TRAINING,
  }),
  ...each('moe_capacity moe_aux_loss_lambda moe_orthogonal_loss_lambda moe_z_loss_lambda', { why: TRAINING }),
  ...each('moe_drop_tokens moe_random_routing_dropped_token moe_use_hard_gate sinkhorn_2gate', {
    why: OFF,
    only: [false],
  }),
  ...each('output_router_logits output_hidden_states output_attentions return_dict use_return_dict', { why: OUTPUTS }),
  ...each('use_cache return_dict_in_generate output_scores torchscript tie_last_hidden_states', { why: OUTPUTS }),
  ...each('keys_to_ignore_at_inference remove_invalid_values tf_legacy_loss', { why: OUTPUTS }),
  ...each('pretraining_tp ep_size tensor_parallel_degree sequence_parallel chunk_size_feed_forward moe_group', {
    why: SCHEDULE,
  }),
  ...each('attn_implementation _attn_implementation _attn_implementation_internal _attn_implementation_autoset', {
    why: SCHEDULE,
  }),
  ...each('experts_implementation _experts_implementation _experts_implementation_internal', { why: SCHEDULE }),
  ...each('_flash_attn_2_enabled use_flash_attn use_flash_attention use_flash_attention_2 use_kernels', {
    why: SCHEDULE,
  }),
  ...each('use_sparse_flash_attn use_recompute_moe use_recompute_loss_fn use_fused_head_and_loss_fn', {
    why: SCHEDULE,
  }),
  ...each('fuse_rope fuse_swiglu fuse_rms_norm fuse_attn_qkv fuse_attn_ffn recompute use_recompute', { why: SCHEDULE }),
  ...each('do_sample temperature top_k top_p min_p typical_p epsilon_cutoff eta_cutoff num_beams num_beam_groups', {
    why: GENERATION,
  }),
  ...each('diversity_penalty repetition_penalty length_penalty no_repeat_ngram_size max_length min_length', {
    why: GENERATION,
  }),
  ...each('encoder_no_repeat_ngram_size bad_words_ids num_return_sequences early_stopping max_new_tokens', {
    why: GENERATION,
  }),
  ...each('exponential_decay_length_penalty suppress_tokens begin_suppress_tokens', {
    why: GENERATION,
  }),
  ...each('id2label label2id num_labels problem_type class_num pool_type dense_list skip_cls_token', {
    why: OTHER_TASK,
  }),
  ...each('vision_config audio_config num_media_embeds', { why: OTHER_TASK }),
  ...each('num_nextn_predict_layers num_mtp_layers num_mtp_modules mtp_transformer_layers mtp_num_hidden_layers', {
    why: GUESSING,
  }),
  ...each('use_mtp mtp_use_dedicated_embeddings mtp_loss_scaling_factor', { why: GUESSING }),
  ...each('intermediate_size mlp_intermediate_size', {
    why: 'it is the size of dense networks, of which the model has none where nobody reads it',
  }),
  sliding_window: { why: 'no layer has a window', only: [0], when: ['use_sliding_window', false] },
  max_window_layers: { why: 'no layer has a window', unless: 'use_sliding_window' },
  layer_types: { why: USUAL, all: 'full_attention' },
  mlp_layer_types: { why: USUAL, all: 'sparse' },
  ...each('use_sliding_window attention_bias qkv_bias use_qkv_bias mlp_bias use_bias lm_head_bias bias', {
    why: OFF,
    only: [false],
  }),
  ...each(
    'add_bias_linear add_qkv_bias conv_bias use_qk_norm qk_layernorm use_cla use_mla postnorm use_double_wide_mlp',
    {
      why: OFF,
      only: [false],
    },
  ),
  ...each('position_embedding_xdrope group_limited_greedy add_classification_head enable_lora', {
    why: OFF,
    only: [false],
  }),
  ...each('is_encoder_decoder add_cross_attention tie_encoder_decoder attn_output_gate', { why: OFF, only: [false] }),
  is_decoder: { why: 'every model here is a decoder' },
  pruned_heads: { why: OFF, only: [{}] },
  mlp_only_layers: { why: OFF, only: [[]] },
  ...each('n_shared_experts num_shared_experts shared_expert_intermediate_size shared_intermediate_size', {
    why: OFF,
    only: [0],
  }),
  ...each('first_k_dense_replace num_dense_layers moe_layer_num_skipped num_kv_shared_layers', {
    why: OFF,
    only: [0],
  }),
  ...each('logits_scaling logit_scale embedding_multiplier residual_multiplier scale_emb routed_scaling_factor', {
    why: NEUTRAL,
    only: [1],
  }),
  ...each('n_group topk_group decoder_sparse_step moe_layer_freq compression_ratio', { why: NEUTRAL, only: [1] }),
  ...each('use_rmsnorm use_rotary_pos_emb is_causal moe_use_aux_free', { why: USUAL, only: [true] }),
  hidden_activation: { why: USUAL, only: ['silu', 'swish'] },
  scoring_func: { why: USUAL, only: ['softmax'] },
  topk_method: { why: USUAL, only: ['greedy'] },
  norm_type: { why: USUAL, only: ['rms', 'rmsnorm', 'rms_norm'] },
  moe_gate: { why: USUAL, only: ['topk'] },
  position_embedding_type: { why: USUAL, only: ['rope'] },
};

/** Explanations by patterns of key names. */
export const EXPLAINED_PATTERNS: readonly { pattern: RegExp; why: string }[] = [
  { pattern: /^(unsloth_|transformers\.js_)/, why: DESCRIBES },
  { pattern: /dropout|_pdrop$|dropout_prob$/, why: TRAINING },
  { pattern: /aux_loss|z_loss|balance_loss/, why: TRAINING },
  {
    pattern: /_token(_ids?|_index)?$|_id$/,
    why: 'it is the number of a token, which tokenizers and templates name',
  },
  { pattern: /^(vision|audio|image|video|vit|anyres)_/, why: OTHER_TASK },
];

const ROPE_SECTIONS = 'all positions of a text are the same in all sections';

/** Keys of a rope that its type does not read. */
export const ROPE_KEYS: ExplainedKeys = {
  ...each('mrope_section mrope_interleaved', { why: ROPE_SECTIONS }),
  finetuned: { why: DESCRIBES },
  original_max_position_embeddings: { why: 'it counts where a rope is made for longer texts than the model was' },
  ...each('factor attention_factor', { why: NEUTRAL, only: [1] }),
  ...each('mscale mscale_all_dim alpha', { why: NEUTRAL, only: [0] }),
  beta_fast: { why: 'it is what a rope of type yarn has anyway', only: [32] },
  beta_slow: { why: 'it is what a rope of type yarn has anyway', only: [1] },
};
