import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { INDEX_FILE, QUANTIZATION_FILES, SINGLE_FILE, withoutWeights } from '../checkpoint/weight-files.js';
import { COPIED_FILES } from '../format/pack-layout.js';
import { refuseUnnamedGguf } from './gguf-parts-on-hub.js';
import type { HubFile } from './hub-files.js';

const CONFIG_FILE = 'config.json';

/** The files of a repository that a pack is made from. */
export interface NeededFiles {
  /** Everything but weights: to be downloaded first. */
  readonly small: readonly HubFile[];
  /** Files at the top of the repository whose names end in .safetensors, by name. The index says which of them are the model. */
  readonly weights: ReadonlyMap<string, HubFile>;
}

/** Largest of the files that are no weights, the same as their readers' bounds: an index, or a tokenizer. */
const SMALL_LIMIT_BYTES = 256 * 1024 * 1024;

/**
 * Chooses what to download. Refuses, before anything is, a repository in which there is no model that could be packed. Pure.
 * @throws USAGE for GGUF files of which none was named, MODEL_UNSUPPORTED for weights in another form, MODEL_NOT_FOUND
 */
export function neededFiles(id: string, files: readonly HubFile[]): NeededFiles {
  const top = new Map(files.filter(({ path }) => !path.includes('/')).map((file) => [file.path, file]));
  const names = [...top.keys()];
  if (!top.has(INDEX_FILE) && !top.has(SINGLE_FILE)) {
    if (!names.some((name) => name.endsWith('.safetensors'))) refuseUnnamedGguf(id, files);
    throw withoutWeights(id, names);
  }
  if (!top.has(CONFIG_FILE)) {
    throw new OdmoeError(
      'MODEL_NOT_FOUND',
      `${id}: has no ${CONFIG_FILE}; choose a repository with a whole checkpoint`,
    );
  }
  const small = [...COPIED_FILES, INDEX_FILE, ...QUANTIZATION_FILES].flatMap((name) => top.get(name) ?? []);
  const large = small.find(({ sizeBytes }) => sizeBytes > SMALL_LIMIT_BYTES);
  if (large !== undefined) {
    throw new OdmoeError(
      'MODEL_CORRUPT',
      `${id}: ${large.path} has ${large.sizeBytes} bytes, expected at most ${SMALL_LIMIT_BYTES}; choose another repository`,
    );
  }
  const weights = new Map([...top].filter(([name]) => name.endsWith('.safetensors')));
  return { small, weights };
}
