import { createHash } from 'node:crypto';
import { rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Checkpoint } from '../checkpoint/checkpoint.js';
import { type ProcessLock } from '../../shared/base/files/process-lock.js';
import { writeFailure } from '../../shared/base/files/storage-error.js';
import { syncDirectory } from '../../shared/base/files/sync-directory.js';
import { type FinishedFile, type Manifest, serializeManifest } from '../format/manifest.js';
import {
  DRAFT_DENSE_FILE,
  DRAFT_EXPERTS_FILE,
  MANIFEST_FILE,
  PACK_FORMAT,
  PACK_FORMAT_VERSION,
  PARTIAL_SUFFIX,
} from '../format/pack-layout.js';
import { leftOutTensors } from './left-out-tensors.js';
import { PackFile } from './pack-file.js';
import type { PackingContext } from './packing-context.js';
import type { PackingPlan } from './packing-journal.js';
import type { PlannedFile } from './planned-files.js';
import { type FingerprintedTensor, packedTensors, sourceFingerprint } from './source-identity.js';

/** Writes a file of the pack whole, syncs it and gives it its name. */
export async function writePlannedFile(
  planned: PlannedFile,
  lock: ProcessLock,
  context: PackingContext,
): Promise<FinishedFile> {
  const file = await PackFile.create(context.outputDirectory, planned.name, context.tools.openFile);
  try {
    const entries = await planned.write(file);
    await lock.assertHeld();
    return { file: await file.finish(), ...entries };
  } catch (thrown) {
    await file.abandon();
    throw thrown;
  }
}

/** The manifest of a pack. `sliced`: experts' tensors whose lossless parts are left out. Pure. */
export function manifestOf(
  checkpoint: Checkpoint,
  plan: PackingPlan,
  finished: readonly FinishedFile[],
  sliced: readonly FingerprintedTensor[],
): Manifest {
  const isOfHead = ({ file }: FinishedFile): boolean => [DRAFT_DENSE_FILE, DRAFT_EXPERTS_FILE].includes(file.name);
  const { dense, experts } = contentsOf(finished.filter((file) => !isOfHead(file)));
  const head = draftHeadOf(checkpoint, finished.filter(isOfHead));
  return {
    format: PACK_FORMAT,
    format_version: PACK_FORMAT_VERSION,
    odmoe_version: plan.odmoe_version,
    model: {
      name: plan.name,
      family: checkpoint.family,
      shape: checkpoint.shape,
      tied_embeddings: checkpoint.tiedEmbeddings,
      eos_token_ids: [...checkpoint.eosTokenIds],
      shipped_format: checkpoint.shippedFormat,
    },
    source: {
      fingerprint: sourceFingerprint([...packedTensors({ dense, experts, ...head }), ...sliced]),
      left_out: leftOutTensors(checkpoint).map(({ sizeBytes, ...left }) => ({ ...left, size_bytes: sizeBytes })),
    },
    codec: plan.codec,
    codec_level: plan.codec_level,
    shards: plan.shards,
    files: finished.map(({ file }) => file),
    dense,
    experts,
    ...head,
  };
}

function contentsOf(finished: readonly FinishedFile[]): Pick<Manifest, 'dense' | 'experts'> {
  return { dense: finished.flatMap((file) => file.dense), experts: finished.flatMap((file) => file.experts) };
}

function draftHeadOf({ draftHead }: Checkpoint, finished: readonly FinishedFile[]): Pick<Manifest, 'draft_head'> {
  if (!draftHead) return {};
  const { shape, shippedFormat, sharedRoles } = draftHead;
  const shared = (['embedding', 'lmHead'] as const).filter((role) => sharedRoles.has(role));
  return { draft_head: { shape, shipped_format: shippedFormat, shared, ...contentsOf(finished) } };
}

/** Writes manifest.json, which makes the directory a pack, and returns its SHA-256. */
export async function writeManifest(directory: string, manifest: Manifest): Promise<string> {
  const path = join(directory, MANIFEST_FILE);
  const text = serializeManifest(manifest);
  try {
    await writeFile(path + PARTIAL_SUFFIX, text, { flush: true });
    await rename(path + PARTIAL_SUFFIX, path);
    await syncDirectory(directory);
  } catch (thrown) {
    await rm(path + PARTIAL_SUFFIX, { force: true });
    throw writeFailure(thrown, path, Buffer.byteLength(text));
  }
  return createHash('sha256').update(text).digest('hex');
}
