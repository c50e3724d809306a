import { closeSync, openSync, readSync } from 'node:fs';
import { crc32c } from '../../native/index.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { type FileErrors, readFailure } from '../../shared/base/files/read-file.js';
import type { ModelShape } from '../../shared/model/model-shape.js';
import type { ManifestStretch } from './manifest.js';
import { expertBiasBytes } from './pack-layout.js';

const BIAS_FILE_ERRORS: FileErrors = {
  missing: 'PACK_CORRUPT',
  invalid: 'PACK_CORRUPT',
  remedy: 'copy the pack again',
};

/**
 * The biases of one expert, some ten KB: intermediateSize for gate, as many for up, hiddenSize for down. At once, because whoever tells
 * slots where an expert lies does so in one step.
 * @throws PACK_CORRUPT (cut file, wrong checksum), STORAGE_FAILED
 */
export function readExpertBiases(path: string, stretch: ManifestStretch, shape: ModelShape): Float32Array {
  const bytes = new Uint8Array(expertBiasBytes(shape));
  try {
    const file = openSync(path, 'r');
    try {
      for (let done = 0; done < bytes.length;) {
        const read = readSync(file, bytes, done, bytes.length - done, stretch.offset_bytes + done);
        if (read === 0) throw damaged(path, stretch, 'the file ends before them');
        done += read;
      }
    } finally {
      closeSync(file);
    }
  } catch (thrown) {
    throw readFailure(thrown, path, BIAS_FILE_ERRORS);
  }
  if (crc32c(bytes, 0) !== stretch.crc32c) throw damaged(path, stretch, 'their checksum is another');
  return new Float32Array(bytes.buffer);
}

function damaged(path: string, { offset_bytes: offset }: ManifestStretch, problem: string): OdmoeError {
  return new OdmoeError(
    'PACK_CORRUPT',
    `${path}: biases of an expert at byte ${offset}: ${problem}; ${BIAS_FILE_ERRORS.remedy}`,
  );
}
