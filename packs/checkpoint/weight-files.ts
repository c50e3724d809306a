import { readdir, stat } from 'node:fs/promises';
import { basename } from 'node:path';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { fileExists, readFailure } from '../../shared/base/files/read-file.js';
import { CHECKPOINT_FILE_ERRORS } from './safetensors-file.js';

export const SINGLE_FILE = 'model.safetensors';
export const INDEX_FILE = 'model.safetensors.index.json';
/** Files in which programs write the quantization, older releases here alone and not into config.json: ModelOpt, AutoGPTQ, AutoAWQ. */
export const QUANTIZATION_FILES = ['hf_quant_config.json', 'quantize_config.json', 'quant_config.json'] as const;

const SAFETENSORS = /\.safetensors$/;
const INDEX = /\.safetensors\.index(\.[^.]+)?\.json$/;
/** A second copy of the weights, for Mistral's own program. */
const CONSOLIDATED = /^consolidated([.-][^/]*)?\.safetensors(\.index\.json)?$/;
/** Files of weights that cannot be read. */
const OTHER_WEIGHTS: readonly { names: RegExp; form: string }[] = [
  { names: /\.gguf$/i, form: 'GGUF' },
  { names: /\.(bin|pt|pth|ckpt)$/i, form: "PyTorch's own files" },
  { names: /\.(npz|msgpack|h5|onnx)$/i, form: 'files of another program' },
];
const NAMED_FILES = 5;

/** True for a file of weights in any form, by its name. */
export function isWeightFile(name: string): boolean {
  return SAFETENSORS.test(name) || INDEX.test(name) || OTHER_WEIGHTS.some(({ names }) => names.test(name));
}

/**
 * Names of the files in a directory.
 * @throws MODEL_NOT_FOUND, STORAGE_FAILED
 */
export async function listFiles(directory: string): Promise<string[]> {
  const names = await readdir(directory).catch((thrown: unknown) => {
    throw readFailure(thrown, directory, CHECKPOINT_FILE_ERRORS);
  });
  return names.sort();
}

/**
 * Refuses safetensors files of weights that no index names, because it would be unclear which of two models in one directory is meant. Files of
 * other formats are ignored, as transformers does. `used`: the files that are read.
 * @throws MODEL_UNSUPPORTED
 */
export function refuseStrayFiles(directory: string, present: readonly string[], used: ReadonlySet<string>): void {
  const stray = present.filter(
    (name) =>
      (SAFETENSORS.test(name) || INDEX.test(name)) &&
      !CONSOLIDATED.test(name) &&
      !used.has(name) &&
      !name.startsWith('.'),
  );
  if (stray.length === 0) return;
  const more = stray.length > NAMED_FILES ? ` and ${stray.length - NAMED_FILES} more` : '';
  const named = [...used].some((name) => SAFETENSORS.test(name));
  const ofIndex = named ? `the files that ${INDEX_FILE} names` : `${INDEX_FILE}, which names no file`;
  const counts = used.has(INDEX_FILE) ? ofIndex : SINGLE_FILE;
  const stands = stray.length === 1 ? 'stands' : 'stand';
  throw new OdmoeError(
    'MODEL_UNSUPPORTED',
    `${directory}: ${stray.slice(0, NAMED_FILES).join(', ')}${more} ${stands} beside ${counts}, and it is not known which of them are the ` +
      'model; leave one set of weights there and move the other files away',
  );
}

/** The reason why a directory has no weights that can be read, as an error. */
export function withoutWeights(directory: string, present: readonly string[]): OdmoeError {
  const files = present.filter((name) => SAFETENSORS.test(name));
  if (files.length > 0) {
    return new OdmoeError(
      'MODEL_NOT_FOUND',
      `${directory}: ${files[0] ?? ''} is there, but neither ${SINGLE_FILE} nor ${INDEX_FILE}, which says what stands where; download it too`,
    );
  }
  const foreign = foreignWeights(directory, present);
  if (foreign !== null) return foreign;
  return new OdmoeError(
    'MODEL_NOT_FOUND',
    `${directory}: neither ${SINGLE_FILE} nor ${INDEX_FILE}; ${CHECKPOINT_FILE_ERRORS.remedy} (safetensors, not .bin)`,
  );
}

/**
 * Refuses a model, a file or a directory, that is not a Hugging Face checkpoint but has weights in another form.
 * @throws MODEL_UNSUPPORTED, STORAGE_FAILED
 */
export async function refuseForeignWeights(path: string): Promise<void> {
  if (!(await fileExists(path))) return;
  const found = await stat(path).catch((thrown: unknown) => {
    throw readFailure(thrown, path, CHECKPOINT_FILE_ERRORS);
  });
  const foreign = foreignWeights(path, found.isDirectory() ? await listFiles(path) : [basename(path)]);
  if (foreign !== null) throw foreign;
}

function foreignWeights(path: string, present: readonly string[]): OdmoeError | null {
  for (const { names, form } of OTHER_WEIGHTS) {
    const name = present.find((file) => names.test(file));
    if (name === undefined) continue;
    return new OdmoeError(
      'MODEL_UNSUPPORTED',
      `${path}: the weights are ${form} (${name}), which are not read; get the model as safetensors`,
    );
  }
  return null;
}
