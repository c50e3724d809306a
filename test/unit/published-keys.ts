/** Keys that published config.json files of a family have beside those of its fixture, with their values. */
export const PUBLISHED_KEYS: readonly { fixture: string; keys: Record<string, unknown> }[] = [
  {
    fixture: 'mixtral',
    keys: { _name_or_path: 'a/b', output_router_logits: false, pretraining_tp: 1, auto_map: { AutoConfig: 'x.X' } },
  },
  {
    fixture: 'qwen2moe',
    keys: { sliding_window: 32768, max_window_layers: 21, use_sliding_window: false, rope_scaling: null },
  },
  {
    fixture: 'qwen3moe',
    keys: { max_window_layers: 48, sliding_window: 4096, use_sliding_window: false, num_experts: 16, head_dim: 24 },
  },
  {
    fixture: 'phimoe',
    keys: { hidden_dropout: 0, input_jitter_noise: 0.01, auto_map: {}, attention_dropout: 0.1 },
  },
  // Qwen3.8.
  { fixture: 'qwen35moe', keys: { output_gate_type: 'swish' } },
  { fixture: 'granitemoe', keys: { rope_scaling: null, torch_dtype: 'bfloat16', sep_token_id: 3 } },
  {
    fixture: 'glm45',
    keys: { num_nextn_predict_layers: 1, pad_token_id: 151329, eos_token_id: [151329, 151336], ep_size: 1 },
  },
  {
    fixture: 'minimaxm2',
    keys: {
      attn_type_list: [1, 1, 1, 1],
      layernorm_full_attention_beta: 1,
      layernorm_linear_attention_beta: 1,
      layernorm_mlp_beta: 1,
      mlp_intermediate_size: 8192,
      mtp_transformer_layers: 1,
      num_mtp_modules: 3,
      shared_moe_mode: 'sigmoid',
      use_mtp: true,
      auto_map: {},
      output_router_logits: false,
    },
  },
  { fixture: 'gptoss-mxfp4', keys: { initial_context_length: 4096, swiglu_limit: 7, experts_per_token: 4 } },
  {
    fixture: 'deepseekv2-yarn',
    keys: { aux_loss_alpha: 0.001, seq_aux: true, ep_size: 1, moe_layer_freq: 1, auto_map: {}, pretraining_tp: 1 },
  },
  { fixture: 'deepseekv2', keys: { n_group: 1, topk_group: 1, scoring_func: 'softmax' } },
  {
    fixture: 'deepseekv3-fp8',
    keys: {
      quantization_config: {
        quant_method: 'fp8',
        fmt: 'e4m3',
        activation_scheme: 'dynamic',
        weight_block_size: [128, 128],
        scale_fmt: 'ue8m0',
        modules_to_not_convert: ['lm_head'],
        ignored_layers: [],
      },
    },
  },
  { fixture: 'qwen3next', keys: { use_sliding_window: false, max_window_layers: 48, mlp_only_layers: [] } },
  {
    fixture: 'qwen35moe',
    keys: {
      mtp_use_dedicated_embeddings: false,
      mlp_only_layers: [],
      decoder_sparse_step: 1,
      norm_topk_prob: true,
      dtype: 'bfloat16',
      use_sliding_window: false,
      initializer_range: 0.02,
    },
  },
  { fixture: 'gemma4moe', keys: { use_cache: true, attn_logit_softcapping: null, top_p: 0.95, max_length: 20 } },
  {
    fixture: 'ernie45moe',
    keys: {
      moe_capacity: [64, 64, 64],
      moe_gate: 'topk',
      moe_use_aux_free: true,
      use_rmsnorm: true,
      hidden_dropout_prob: 0,
      attention_probs_dropout_prob: 0,
      compression_ratio: 1,
      num_nextn_predict_layers: 1,
    },
  },
  { fixture: 'lfm2moe', keys: { sliding_window: null, theta: null, use_cache: true } },
];
