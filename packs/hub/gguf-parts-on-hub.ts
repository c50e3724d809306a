import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { formatBytes } from '../../shared/base/text/units.js';
import type { HubFile } from './hub-files.js';
import { ggufStem } from './hub-repository.js';

const GGUF = /\.gguf$/i;
/** Encoders of images and sounds, which llama.cpp keeps in a file of their own beside the model. */
const ENCODER = /(^|\/)mmproj[^/]*$/i;
const PART = /-(\d{5})-of-(\d{5})\.gguf$/i;
/** Most models that a message lists. Repositories have up to 40. */
const LISTED = 60;

/** The parts of each GGUF model of a repository, in order, by ggufStem. */
function ggufModelsOf(files: readonly HubFile[]): ReadonlyMap<string, HubFile[]> {
  const models = new Map<string, HubFile[]>();
  for (const file of [...files].sort((a, b) => (a.path < b.path ? -1 : 1))) {
    if (!GGUF.test(file.path) || ENCODER.test(file.path)) continue;
    const stem = ggufStem(file.path);
    models.set(stem, [...(models.get(stem) ?? []), file]);
  }
  return models;
}

/**
 * The files of the GGUF model that a user names by the path of any of them, the first part first. Pure.
 * @throws MODEL_NOT_FOUND for a path that the repository does not have, MODEL_CORRUPT if it lacks a part
 */
export function ggufPartsOnHub(id: string, files: readonly HubFile[], wanted: string): [HubFile, ...HubFile[]] {
  const models = ggufModelsOf(files);
  const [first, ...others] = GGUF.test(wanted) ? (models.get(ggufStem(wanted)) ?? []) : [];
  if (first === undefined || ![first, ...others].some(({ path }) => path === wanted)) {
    const list = models.size === 0 ? 'it has no GGUF files' : `it has ${listed(models)}`;
    throw new OdmoeError('MODEL_NOT_FOUND', `${id}: has no GGUF file ${wanted}; ${list}`);
  }
  const said = Number(PART.exec(first.path)?.[2] ?? 1);
  const parts = [first, ...others];
  const isWhole = parts.every(({ path }, index) => Number(PART.exec(path)?.[1] ?? 1) === index + 1);
  if (parts.length !== said || !isWhole) {
    throw new OdmoeError(
      'MODEL_CORRUPT',
      `${id}: has ${parts.map(({ path }) => path).join(', ')} of ${said} parts; choose another file or revision`,
    );
  }
  return [first, ...others];
}

/** Refuses a repository whose weights are GGUF files, of which the user names none. @throws USAGE */
export function refuseUnnamedGguf(id: string, files: readonly HubFile[]): void {
  const models = ggufModelsOf(files);
  const [example] = models.values();
  if (example?.[0] === undefined) return;
  throw new OdmoeError(
    'USAGE',
    `${id}: its weights are GGUF files, ${listed(models)}; name one of them: odmoe pull ${id}:${example[0].path}`,
  );
}

/** "A.gguf (18.6 GB), B-00001-of-00002.gguf (60 GB, 2 parts)" */
function listed(models: ReadonlyMap<string, readonly HubFile[]>): string {
  const words = [...models.values()].map((parts) => {
    const bytes = formatBytes(parts.reduce((sum, { sizeBytes }) => sum + sizeBytes, 0));
    return `${parts[0]?.path ?? ''} (${bytes}${parts.length > 1 ? `, ${parts.length} parts` : ''})`;
  });
  const more = words.length > LISTED ? ` and ${words.length - LISTED} more` : '';
  return `${words.slice(0, LISTED).join(', ')}${more}`;
}
