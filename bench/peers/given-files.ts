/** Checks of the files in the flags of `odmoe bench peers`, before any process starts. */
import { constants } from 'node:fs';
import { access, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { openServedPack } from '../../packs/open-served-pack.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { openFile } from '../../shared/base/files/read-file.js';
import { rpcServer } from './systems.js';

export interface GivenFiles {
  /** Left out: the GGUF file is measured in one process. */
  model?: string;
  llamaBin?: string;
  gguf?: string;
  dllama?: string;
  dllamaModel?: string;
  dllamaTokenizer?: string;
}

/** The first bytes of every GGUF file. */
const GGUF_MAGIC = 'GGUF';

/** @throws USAGE if only a part of a system's files is given, or there is nothing to measure */
export function requireWhole({ model, llamaBin, gguf, dllama, dllamaModel, dllamaTokenizer }: GivenFiles): void {
  if (model === undefined) {
    if (gguf !== undefined && [dllama, dllamaModel, dllamaTokenizer].every((flag) => flag === undefined)) return;
    throw new OdmoeError(
      'USAGE',
      'give --model with the files of its peers; or --gguf alone, to measure that file in odmoe and in llama.cpp',
    );
  }
  for (const given of [
    [llamaBin, gguf],
    [dllama, dllamaModel, dllamaTokenizer],
  ]) {
    if (given.every((flag) => flag === undefined) || given.every((flag) => flag !== undefined)) continue;
    throw new OdmoeError(
      'USAGE',
      'a peer needs all of its files: --llama-bin with --gguf; --dllama with --dllama-model and --dllama-tokenizer',
    );
  }
}

/**
 * @param highestId the highest of the prompt's token ids; @param positions of the prompt and its answer
 * @throws USAGE, naming the flag; for the pack MODEL_NOT_FOUND, PACK_INCOMPLETE, PACK_CORRUPT, MODEL_UNSUPPORTED, STORAGE_FAILED
 */
export async function requireGivenFiles(
  given: GivenFiles & { model: string },
  highestId: number,
  positions: number,
): Promise<void> {
  const { vocabSize, maxPositions } = (await openServedPack(given.model)).shape;
  if (vocabSize <= highestId) {
    throw new OdmoeError(
      'USAGE',
      `--model ${given.model}: the prompt has token ids up to ${highestId}, and the vocabulary ends at ${vocabSize - 1}; take a model with a larger one`,
    );
  }
  if (maxPositions < positions) {
    throw new OdmoeError(
      'USAGE',
      `--model ${given.model}: prompt and answer take ${positions} positions, and the model has ${maxPositions}; lower --prompt-tokens or --tokens`,
    );
  }
  const { llamaBin, dllama, dllamaModel, dllamaTokenizer } = given;
  await requireLlamaFiles(given);
  if (llamaBin !== undefined) await requireProgram('--llama-bin', rpcServer(llamaBin));
  if (dllama !== undefined) await requireProgram('--dllama', dllama);
  if (dllamaModel !== undefined) await beginningOf('--dllama-model', dllamaModel, 1);
  if (dllamaTokenizer !== undefined) await beginningOf('--dllama-tokenizer', dllamaTokenizer, 1);
}

/** Checks what llama-bench needs on one machine. @throws USAGE, naming the flag */
export async function requireLlamaFiles({ llamaBin, gguf }: Pick<GivenFiles, 'llamaBin' | 'gguf'>): Promise<void> {
  if (llamaBin !== undefined) await requireProgram('--llama-bin', join(llamaBin, 'llama-bench'));
  if (gguf !== undefined && (await beginningOf('--gguf', gguf, GGUF_MAGIC.length)) !== GGUF_MAGIC) {
    throw new OdmoeError('USAGE', `--gguf ${gguf} is no GGUF file; give one of the same model`);
  }
}

async function requireProgram(flag: string, path: string): Promise<void> {
  try {
    await access(path, constants.X_OK);
    if ((await stat(path)).isFile()) return;
  } catch (thrown) {
    throw unusable(flag, path, thrown);
  }
  throw unusable(flag, path, 'not a file');
}

/** The first bytes of a file, as text. */
async function beginningOf(flag: string, path: string, bytes: number): Promise<string> {
  try {
    const file = await openFile(path);
    try {
      const { buffer, bytesRead } = await file.read(Buffer.alloc(bytes), 0, bytes, 0);
      return buffer.toString('latin1', 0, bytesRead);
    } finally {
      await file.close();
    }
  } catch (thrown) {
    throw unusable(flag, path, thrown);
  }
}

function unusable(flag: string, path: string, thrown: unknown): OdmoeError {
  const why = thrown instanceof Error ? thrown.message : String(thrown);
  return new OdmoeError(
    'USAGE',
    `${flag}: ${path} cannot be used (${why}); bench/peers/README.md says what goes there`,
    {
      cause: thrown,
    },
  );
}
