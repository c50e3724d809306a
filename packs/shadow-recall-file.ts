/** shadow-recall.json in the directory of a pack (docs/pack-format.md, "Recall of shadows"): predictions alone depend on it, no answer does. */
import { join } from 'node:path';
import { z } from 'zod';
import { OdmoeError } from '../shared/base/errors/odmoe-error.js';
import { odmoeVersion } from '../shared/base/files/odmoe-version.js';
import { fileExists, type FileErrors, readJsonFile } from '../shared/base/files/read-file.js';
import { replaceFile } from '../shared/base/files/replace-file.js';
import { AUTO_PRECISIONS, type FormRecall } from '../shared/decisions/slices/choose-shadow-form.js';
import { sha256Schema } from './format/manifest.js';
import type { Pack } from './format/open-pack.js';
import { SHADOW_RECALL_FILE } from './format/pack-layout.js';

const FORMAT = 'odmoe-shadow-recall';
const FORMAT_VERSION = 1;
const LIMIT_BYTES = 65_536;
const ERRORS: FileErrors = {
  missing: 'PACK_INCOMPLETE',
  invalid: 'PACK_CORRUPT',
  remedy: 'remove it and measure again with "odmoe pack --recall"',
};

const formRecallSchema = z.strictObject({
  precision: z.enum(AUTO_PRECISIONS),
  recall: z.number().min(0).max(1),
}) satisfies z.ZodType<FormRecall>;

const fileSchema = z.strictObject({
  format: z.literal(FORMAT),
  format_version: z.literal(FORMAT_VERSION),
  odmoe_version: z.string(),
  /** As in the manifest of the pack: recall of another model is refused. */
  source_fingerprint: sha256Schema,
  recall: z.array(formRecallSchema).max(AUTO_PRECISIONS.length),
});

/** Returns null if nothing was measured. @throws PACK_CORRUPT for a file that is not of this pack, STORAGE_FAILED */
export async function readShadowRecall({ directory, manifest }: Pack): Promise<readonly FormRecall[] | null> {
  const path = join(directory, SHADOW_RECALL_FILE);
  if (!(await fileExists(path))) return null;
  const parsed = fileSchema.safeParse(await readJsonFile(path, LIMIT_BYTES, ERRORS));
  if (!parsed.success) {
    throw new OdmoeError('PACK_CORRUPT', `${path}: ${z.prettifyError(parsed.error)}; ${ERRORS.remedy}`);
  }
  if (parsed.data.source_fingerprint === manifest.source.fingerprint) return parsed.data.recall;
  throw new OdmoeError('PACK_CORRUPT', `${path}: was measured with another model; ${ERRORS.remedy}`);
}

/** @throws STORAGE_FULL, STORAGE_FAILED */
export async function writeShadowRecall({ directory, manifest }: Pack, recall: readonly FormRecall[]): Promise<void> {
  const contents: z.infer<typeof fileSchema> = {
    format: FORMAT,
    format_version: FORMAT_VERSION,
    odmoe_version: odmoeVersion(),
    source_fingerprint: manifest.source.fingerprint,
    recall: [...recall],
  };
  await replaceFile(join(directory, SHADOW_RECALL_FILE), `${JSON.stringify(contents)}\n`);
}
