import { open, type FileHandle } from 'node:fs/promises';
import { living } from '../runtime/living.js';

/** Opens a file as `open` of node:fs does. The file is registered as open, under its path, until it is closed. */
export async function openCounted(path: string, flags?: string | number, mode?: number): Promise<FileHandle> {
  const registry = living();
  const file = await open(path, flags, mode);
  const end = registry.begin('file', path);
  const close = file.close.bind(file);
  file.close = () => close().finally(end);
  return file;
}
