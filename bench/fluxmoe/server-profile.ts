/** The contents of bench/profiles/l40-fluxmoe.yaml: a server with several cards, and the models that it serves. */
import { readFileSync } from 'node:fs';
import { parse } from 'yaml';
import { z } from 'zod';
import { parseByteSize } from '../../shared/base/text/byte-size.js';
import { loadModelProfile } from '../../engine/emulation/load-model-profile.js';
import { OdmoeError, toOdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { ModelShape } from '../../shared/model/model-shape.js';

const positive = z.number().positive();
const share = z.number().positive().max(1);
const count = z.number().int().positive();
const bytes = z.string().transform((text, context) => {
  const parsed = parseByteSize(text);
  if (parsed !== null) return parsed;
  context.addIssue({ code: 'custom', message: 'expected a size such as "48 GB"', input: text });
  return z.NEVER;
});

const servingSchema = z.strictObject({
  model: z.string(),
  gpus: count,
  memory_share: share,
  offloaded_share: share,
});

const schema = z.strictObject({
  name: z.string(),
  gpu: z.strictObject({
    memory_bytes: bytes,
    weight_bytes_per_s: positive,
    flop_per_s: positive,
    decompress_bytes_per_s: positive,
    expert_link_bytes_per_s: positive,
    cache_link_bytes_per_s: positive,
    reserved_bytes: bytes,
  }),
  serving: z.strictObject({
    layer_overhead_ms: z.number().min(0),
    row_overhead_ms: z.number().min(0),
    attention_share: share,
    context_share: share,
    cache_value_bytes: positive,
    state_value_bytes: positive,
    compressed_share: share,
    weight_bytes: positive,
  }),
  performance: servingSchema,
  capacity: servingSchema,
  cache: servingSchema,
  dense_models: z.array(
    z.strictObject({
      name: z.string(),
      layers: count,
      hidden_size: count,
      intermediate_size: count,
      heads: count,
      kv_heads: count,
      head_dim: count,
      vocab_size: count,
    }),
  ),
});

/** One card; rates are bytes or operations per second. */
export interface ServerGpu {
  memoryBytes: number;
  weightBytesPerS: number;
  flopPerS: number;
  /** Rate in plain bytes. */
  decompressBytesPerS: number;
  /** Rates of host memory: for experts in many small copies, and for keys and values in long copies, both ways. */
  expertLinkBytesPerS: number;
  cacheLinkBytesPerS: number;
  reservedBytes: number;
}

export interface ServingCosts {
  layerOverheadMs: number;
  rowOverheadMs: number;
  /** Rate at which attention reads keys and values, as a share of the memory's rate. */
  attentionShare: number;
  /** Mean length of a sequence, as a share of the context length. */
  contextShare: number;
  cacheValueBytes: number;
  stateValueBytes: number;
  /** Size of compressed experts, as a share of plain ones. */
  compressedShare: number;
  weightBytes: number;
}

/** A model on some of the server's cards. */
export interface ServerModel {
  name: string;
  shape: ModelShape;
  tiedEmbeddings: boolean;
  gpus: number;
  /** Share of the cards' memory that the server uses. */
  memoryShare: number;
  /** Share of the experts that offloading systems hold in host memory. */
  offloadedShare: number;
}

export interface DenseModel {
  name: string;
  parameters: number;
}

export interface ServerProfile {
  name: string;
  gpu: ServerGpu;
  costs: ServingCosts;
  performance: ServerModel;
  capacity: ServerModel;
  cache: ServerModel;
  denseModels: DenseModel[];
}

/** Reads and checks a server's profile. Throws CONFIG_INVALID naming file and key. */
export function loadServerProfile(path: string): ServerProfile {
  try {
    return profileOf(schema.parse(parse(readFileSync(path, 'utf8'))));
  } catch (thrown) {
    const reason = thrown instanceof z.ZodError ? z.prettifyError(thrown) : toOdmoeError(thrown).message;
    throw new OdmoeError('CONFIG_INVALID', `cannot read the server's profile ${path}: ${reason}`, { cause: thrown });
  }
}

function profileOf({
  name,
  gpu,
  serving,
  performance,
  capacity,
  cache,
  dense_models,
}: z.infer<typeof schema>): ServerProfile {
  return {
    name,
    gpu: {
      memoryBytes: gpu.memory_bytes,
      weightBytesPerS: gpu.weight_bytes_per_s,
      flopPerS: gpu.flop_per_s,
      decompressBytesPerS: gpu.decompress_bytes_per_s,
      expertLinkBytesPerS: gpu.expert_link_bytes_per_s,
      cacheLinkBytesPerS: gpu.cache_link_bytes_per_s,
      reservedBytes: gpu.reserved_bytes,
    },
    costs: {
      layerOverheadMs: serving.layer_overhead_ms,
      rowOverheadMs: serving.row_overhead_ms,
      attentionShare: serving.attention_share,
      contextShare: serving.context_share,
      cacheValueBytes: serving.cache_value_bytes,
      stateValueBytes: serving.state_value_bytes,
      compressedShare: serving.compressed_share,
      weightBytes: serving.weight_bytes,
    },
    performance: servedModel(performance),
    capacity: servedModel(capacity),
    cache: servedModel(cache),
    denseModels: dense_models.map((model) => ({ name: model.name, parameters: denseParameters(model) })),
  };
}

function servedModel({ model, gpus, memory_share, offloaded_share }: z.infer<typeof servingSchema>): ServerModel {
  const { shape, tiedEmbeddings } = loadModelProfile(model);
  return { name: model, shape, tiedEmbeddings, gpus, memoryShare: memory_share, offloadedShare: offloaded_share };
}

/** Weights of a dense transformer with SwiGLU and grouped keys and values, including its two vocabulary matrices. */
function denseParameters(model: z.infer<typeof schema>['dense_models'][number]): number {
  const { layers, hidden_size: hidden, intermediate_size, heads, kv_heads, head_dim, vocab_size } = model;
  const attention = 2 * hidden * (heads + kv_heads) * head_dim;
  return layers * (attention + 3 * hidden * intermediate_size) + 2 * vocab_size * hidden;
}
