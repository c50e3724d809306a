import type { FileHandle } from 'node:fs/promises';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { ModelTensor } from './checkpoint-tensors.js';
import { readVector } from './expert-biases.js';
import { CHECKPOINT_FILE_ERRORS } from './safetensors-file.js';

/** The exponential of anything above is no number of FP32, whose greatest is 3.4028235e38. */
const HIGHEST_DECAY_LOG = 88.72283;

/**
 * Refuses the logarithm of a decay (A_log) whose exponential FP32 does not hold: each state that it touches would be no finite number. The vectors
 * have one value for each head or channel. `gone`: true for deleted files, which were read when they still existed.
 * @throws MODEL_CORRUPT, MODEL_NOT_FOUND, STORAGE_FAILED
 */
export async function refuseInfiniteDecays(
  tensors: readonly ModelTensor[],
  gone: (path: string) => boolean,
): Promise<void> {
  const files = new Map<string, FileHandle>();
  try {
    for (const { name, place, source } of tensors) {
      const path = source.chunks[0]?.path ?? '';
      if (place.kind !== 'dense' || place.role !== 'decayLog' || gone(path)) continue;
      const values = await readVector(source, files);
      const wrong = values.findIndex((value) => !(value <= HIGHEST_DECAY_LOG));
      if (wrong === -1) continue;
      throw new OdmoeError(
        'MODEL_CORRUPT',
        `${path}: tensor ${name} has ${values[wrong]} at ${wrong}, the logarithm of a decay whose exponential is no finite number; ${CHECKPOINT_FILE_ERRORS.remedy}`,
      );
    }
  } finally {
    for (const file of files.values()) await file.close();
  }
}
