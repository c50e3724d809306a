/** The words among which settings and flags choose. */

export const ROLES = ['main', 'shadow', 'worker'] as const;
export type RoleSetting = (typeof ROLES)[number];

export const INSTRUCTION_SETS = ['auto', 'avx512', 'avx2', 'neon', 'scalar'] as const;
export const ARITHMETICS = ['exact', 'fast'] as const;
/** Experts of a shadow in slices: both, or the upper one alone. */
export const SLICED_PRECISIONS = [
  'sliced(8,4)',
  'sliced(8,4,low)',
  'sliced(6,3)',
  'sliced(6,3,low)',
  'sliced(4,2)',
  'sliced(4,2,low)',
] as const;
export const PRECISIONS = ['int8', 'fp16', 'nf4', ...SLICED_PRECISIONS] as const;
export type ShadowPrecision = (typeof PRECISIONS)[number];
/** The precisions of a shadow that is a daemon: auto chooses one of the others by its memory. */
export const SHADOW_PRECISIONS = ['auto', ...PRECISIONS] as const;
export const QUANTIZED = ['projections', 'all'] as const;
export const LOG_LEVELS = ['error', 'warn', 'info', 'debug'] as const;
export const LOG_FORMATS = ['text', 'json'] as const;
export const PROVIDERS = ['mdns', 'static', 'dns'] as const;
export const PREDICTION_SOURCES = ['sep', 'router-ahead', 'trained', 'random', 'off'] as const;
export const DRAFT_SOURCES = ['auto', 'shadow', 'lookup', 'mtp'] as const;
/** The place where the experts of the model's own head run. */
export const HEAD_EXPERTS = ['auto', 'main', 'workers'] as const;
export const SPREADS = ['group', 'all'] as const;
/** The place where main's experts run: workers of the LAN, main's own process, or both. */
export const EXPERTS = ['workers', 'local', 'both'] as const;
export const HOMES = ['group', 'strict'] as const;

/** Formats of BF16 weights in memory, for weights that need not stay as shipped. */
export const WEIGHT_FORMS = ['auto', 'bf16', 'fixed4'] as const;
export type WeightForm = (typeof WEIGHT_FORMS)[number];

/** Formats of experts in a profiled worker's storage: FP32, or a pack's BF16 with that codec. */
export const EXPERT_STORAGES = ['fp32', 'bf16', 'fixed4', 'huffman', 'mxfp4', 'fp8'] as const;
export type ExpertStorage = (typeof EXPERT_STORAGES)[number];
