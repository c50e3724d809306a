import { basename, join } from 'node:path';
import { z } from 'zod';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { fileExists, readJsonFile } from '../../shared/base/files/read-file.js';
import { CHECKPOINT_FILE_ERRORS, readSafetensorsFile, type SafetensorsFile } from './safetensors-file.js';
import type { CheckpointTensor } from '../model-config/checkpoint-tensor.js';
import { INDEX_FILE, listFiles, refuseStrayFiles, SINGLE_FILE, withoutWeights } from './weight-files.js';

const INDEX_LIMIT_BYTES = 256 * 1024 * 1024;

const indexSchema = z.looseObject({ weight_map: z.record(z.string(), z.string()) });

export interface CheckpointFiles {
  files: SafetensorsFile[];
  tensors: Map<string, CheckpointTensor>;
}

/**
 * Reads the headers of a checkpoint's safetensors files: model.safetensors, or the files of model.safetensors.index.json; other such files are
 * refused. `gone`: recorded headers of deleted files, by name.
 * @throws MODEL_NOT_FOUND, MODEL_CORRUPT, MODEL_UNSUPPORTED, STORAGE_FAILED
 */
export async function readCheckpointFiles(
  directory: string,
  gone: ReadonlyMap<string, SafetensorsFile> = new Map(),
): Promise<CheckpointFiles> {
  const indexPath = join(directory, INDEX_FILE);
  const present = await listFiles(directory);
  if (await fileExists(indexPath)) {
    const read = await readIndexedFiles(directory, indexPath, gone);
    refuseStrayFiles(directory, present, new Set([INDEX_FILE, ...read.files.map(({ path }) => basename(path))]));
    return read;
  }
  const path = join(directory, SINGLE_FILE);
  if (!gone.has(SINGLE_FILE) && !(await fileExists(path))) throw withoutWeights(directory, present);
  refuseStrayFiles(directory, present, new Set([SINGLE_FILE]));
  const file = gone.get(SINGLE_FILE) ?? (await readSafetensorsFile(path));
  return { files: [file], tensors: new Map([...file.tensors].map(([name, tensor]) => [name, { ...tensor, path }])) };
}

async function readIndexedFiles(
  directory: string,
  indexPath: string,
  gone: ReadonlyMap<string, SafetensorsFile>,
): Promise<CheckpointFiles> {
  const parsed = indexSchema.safeParse(await readJsonFile(indexPath, INDEX_LIMIT_BYTES, CHECKPOINT_FILE_ERRORS));
  const fail = (problem: string): OdmoeError =>
    new OdmoeError('MODEL_CORRUPT', `${indexPath}: ${problem}; ${CHECKPOINT_FILE_ERRORS.remedy}`);
  if (!parsed.success) throw fail(z.prettifyError(parsed.error));
  const weightMap = Object.entries(parsed.data.weight_map);
  const names = [...new Set(weightMap.map(([, name]) => name))].sort();
  const outside = names.find((name) => name !== basename(name) || name === '' || name === '.' || name === '..');
  if (outside !== undefined)
    throw fail(`the weight file ${JSON.stringify(outside)} is not the name of a file beside the index`);

  const files = new Map<string, SafetensorsFile>();
  for (const name of names) files.set(name, gone.get(name) ?? (await readSafetensorsFile(join(directory, name))));
  const tensors = new Map<string, CheckpointTensor>();
  for (const [tensorName, fileName] of weightMap) {
    const file = files.get(fileName);
    const tensor = file?.tensors.get(tensorName);
    if (file === undefined || tensor === undefined) {
      throw fail(`tensor ${JSON.stringify(tensorName)} expected in ${fileName}, which does not hold it`);
    }
    tensors.set(tensorName, { ...tensor, path: file.path });
  }
  for (const [fileName, file] of files) {
    for (const tensorName of file.tensors.keys()) {
      if (tensors.get(tensorName)?.path === file.path) continue;
      const elsewhere = parsed.data.weight_map[tensorName] ?? 'no file';
      throw fail(`tensor ${JSON.stringify(tensorName)} stands in ${fileName}, but the index gives ${elsewhere} for it`);
    }
  }
  return { files: [...files.values()], tensors };
}
