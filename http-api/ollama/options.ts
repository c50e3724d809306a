import { z } from 'zod';
import type { SamplingMessage } from '../../shared/wire/messages.js';
import { type FieldTable, fieldReader } from '../fields/field-table.js';
import {
  ALL_ROOM,
  SAMPLING_FIELDS,
  samplingOfFields,
  SHARED_SAMPLING_FIELDS,
  stopFrom,
} from '../fields/sampling-fields.js';

/** Ollama's -1 and -2 mean: as many tokens as fit. */
const ROOM_LEFT = [-1, -2];

export const OPTIONS_TABLE = {
  done: {
    ...SHARED_SAMPLING_FIELDS,
    repeat_penalty: SAMPLING_FIELDS.repetition_penalty,
    seed: z.int().min(-1).optional().describe('-1, which is the default: drawn'),
    stop: SAMPLING_FIELDS.stop,
    num_predict: z
      .int()
      .min(-2)
      .refine((value) => value !== 0, { error: 'it must be -1 (the room left) or at least 1' })
      .optional()
      .describe('-1 and -2, the default: the room left'),
    num_ctx: z
      .int()
      .min(1)
      .optional()
      .describe('where less than the context: what prompt and answer may have together'),
  },
  ignored: [
    // Penalties count all tokens, whatever the window.
    'repeat_last_n',
    'num_keep',
    'num_batch',
    'num_gpu',
    'main_gpu',
    'num_thread',
    'numa',
    'low_vram',
    'f16_kv',
    'use_mmap',
    'use_mlock',
    'logits_all',
    'mirostat_tau',
    'mirostat_eta',
  ],
  neutral: {
    mirostat: [0],
    tfs_z: [1],
    typical_p: [1],
    penalize_newline: [true, false],
    vocab_only: [false],
    embedding_only: [false],
  },
  refused: {},
} as const satisfies FieldTable<z.ZodRawShape>;

const readOptions = fieldReader(OPTIONS_TABLE, 'options');

/** The parts of a request that come from `options`. */
export interface AnswerOptions {
  sampling: SamplingMessage;
  stop: string[];
  maxTokens: number;
  /** Most positions of prompt and answer together; null: those of the context. */
  positions: number | null;
}

/** Throws REQUEST_INVALID with the field. */
export function answerOptions(options: unknown): AnswerOptions {
  const fields = readOptions(options ?? {});
  const { seed = -1, num_predict: predict = -1 } = fields;
  return {
    sampling: samplingOfFields(fields, seed < 0 ? undefined : seed),
    stop: stopFrom(fields),
    maxTokens: ROOM_LEFT.includes(predict) ? ALL_ROOM : predict,
    positions: fields.num_ctx ?? null,
  };
}
