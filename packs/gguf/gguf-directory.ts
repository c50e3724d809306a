import { listFiles } from '../checkpoint/weight-files.js';
import { readPartName } from './gguf-parts.js';

const GGUF = /\.gguf$/i;
const SAFETENSORS = /\.safetensors(\.index\.json)?$/;
/** Encoders of images and sounds, which llama.cpp keeps in a file of their own beside the model. */
const ENCODER = /^mmproj/i;

/**
 * Names of the GGUF models in a directory whose only weights they are: single files, and the first part of each split one.
 * @throws MODEL_NOT_FOUND, STORAGE_FAILED
 */
export async function ggufFilesIn(directory: string): Promise<string[]> {
  const names = await listFiles(directory);
  return names.some((name) => SAFETENSORS.test(name)) ? [] : ggufModels(names);
}

/** Pure part of ggufFilesIn. */
export function ggufModels(names: readonly string[]): string[] {
  return names.filter((name) => {
    if (!GGUF.test(name) || ENCODER.test(name) || name.startsWith('.')) return false;
    return (readPartName(name)?.number ?? 1) === 1;
  });
}
