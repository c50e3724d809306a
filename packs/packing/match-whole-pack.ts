import { createHash } from 'node:crypto';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { Checkpoint } from '../checkpoint/checkpoint.js';
import { modelShapeSchema } from '../../shared/model/model-shape.js';
import { EXPERT_MATRICES, type ModelSource, type TensorSource } from '../../shared/model/tensor-source.js';
import { isSlicesOnly, type Manifest } from '../format/manifest.js';
import { openAnyPack } from '../format/open-pack.js';
import { COPIED_FILES } from '../format/pack-layout.js';
import { describeCodec } from '../format/pack-codec.js';
import { biasBytes } from './expert-file.js';
import type { PackOutcome } from './pack-outcome.js';
import type { PackingContext } from './packing-context.js';
import type { PackingPlan } from './packing-journal.js';
import { leftOutTensors } from './left-out-tensors.js';
import { modelBytes, ownDensePlaces } from './model-bytes.js';
import {
  type FingerprintedTensor,
  fingerprintedBiases,
  fingerprintedDense,
  fingerprintedMatrix,
  ofDraftHead,
  packedTensors,
  smallFile,
  sourceFingerprint,
} from './source-identity.js';
import { ValuesChecksum } from './values-checksum.js';
import { requireUndamaged, verifyPack } from './verify-pack.js';

/** Reading the checkpoint is half of a comparison, and reading the pack the other half. */
const COMPARING_SHARE = 0.5;

/**
 * Handles packing into a directory that holds a whole pack. If that pack is of this checkpoint, packing is already done; this is checked by
 * reading the weights of both. Another pack is never overwritten. `consumed`: weight files of the checkpoint that were deleted while this pack
 * was made, by name; the remaining files are then not enough for a comparison.
 * A pack of a release that packed no heads is of this checkpoint, too, unless the checkpoint's files are to be deleted then (`consume`): the head is
 * nowhere else. `onWarning` is told.
 * @throws USAGE if it is another pack, PACK_CORRUPT if it is damaged
 */
export async function matchWholePack(
  whole: Checkpoint,
  plan: PackingPlan,
  consumed: ReadonlyMap<string, unknown>,
  context: PackingContext,
  { consume, onWarning }: { consume: boolean; onWarning?: ((warning: string) => void) | undefined },
): Promise<PackOutcome> {
  const pack = await openAnyPack(context.outputDirectory);
  const { manifest } = pack;
  const isWithoutHead = Boolean(whole.draftHead) && manifest.draft_head === undefined && !consume;
  const checkpoint = isWithoutHead ? { ...whole, draftHead: null } : whole;
  const difference =
    planDifference(manifest, plan, checkpoint) ??
    (await copiedFileDifference(manifest, checkpoint)) ??
    (consumed.size > 0 ? null : await weightDifference(manifest, checkpoint, context));
  if (difference !== null) {
    throw new OdmoeError(
      'USAGE',
      `${pack.directory}: holds a whole pack already, and ${difference}; remove it or choose another directory`,
    );
  }
  requireUndamaged(pack, await verifyPack(pack, context.tools, halfOfProgress(checkpoint, context)));
  if (isWithoutHead) {
    onWarning?.(
      `${pack.directory}: has no head that drafts tokens, though the checkpoint has one; remove the pack and pack again to have it`,
    );
  }
  return {
    directory: pack.directory,
    name: pack.name,
    family: manifest.model.family,
    leftOut: leftOutTensors(checkpoint),
    digest: pack.packDigest,
    codec: context.codec,
    sourceBytes: modelBytes(checkpoint),
    packBytes: manifest.files.reduce((sum, file) => sum + file.size_bytes, 0),
    files: manifest.files.length,
    resumedFiles: manifest.files.length,
    consumedShards: 0,
    alreadyWhole: true,
  };
}

/**
 * Reports the reading of the pack as one half of the work, in bytes of the checkpoint; reading the checkpoint is the other half. @throws
 * CANCELLED
 */
function halfOfProgress(checkpoint: Checkpoint, context: PackingContext): (done: number, total: number) => void {
  const halfBytes = modelBytes(checkpoint) * COMPARING_SHARE;
  let reportedBytes = 0;
  return (done, total) => {
    context.reader.assertWanted();
    const bytes = (done / total) * halfBytes;
    context.onBytes(bytes - reportedBytes);
    reportedBytes = bytes;
  };
}

function planDifference(manifest: Manifest, plan: PackingPlan, checkpoint: Checkpoint): string | null {
  if (isSlicesOnly(manifest) !== (plan.slices_only === true)) {
    return isSlicesOnly(manifest) ? 'it holds slices only' : "it holds the experts' lossless parts";
  }
  if (manifest.model.name !== plan.name) return `its name is "${manifest.model.name}", not "${plan.name}"`;
  const packed = describeCodec({ codec: manifest.codec, level: manifest.codec_level });
  const wanted = describeCodec({ codec: plan.codec, level: plan.codec_level });
  if (packed !== wanted) return `its codec is ${packed}, not ${wanted}`;
  if (manifest.shards !== plan.shards) return `it has ${manifest.shards} shards, not ${plan.shards}`;
  if (JSON.stringify(manifest.model.shape) !== JSON.stringify(modelShapeSchema.parse(checkpoint.shape))) {
    return 'its model has another shape';
  }
  const [head, wantedHead] = [manifest.draft_head?.shape, checkpoint.draftHead?.shape];
  if (head === undefined && wantedHead !== undefined) return 'it was packed without the head that drafts tokens';
  if (JSON.stringify(head) !== JSON.stringify(wantedHead && modelShapeSchema.parse(wantedHead))) {
    return 'its head that drafts tokens has another shape';
  }
  return null;
}

async function copiedFileDifference(manifest: Manifest, checkpoint: Checkpoint): Promise<string | null> {
  const packed = new Map(manifest.files.map((file) => [file.name, file.sha256]));
  for (const name of COPIED_FILES) {
    const content = await smallFile(checkpoint, name);
    const found = content === null ? undefined : createHash('sha256').update(content).digest('hex');
    if (found !== packed.get(name)) return `its ${name} is not the checkpoint's`;
  }
  return null;
}

async function weightDifference(
  manifest: Manifest,
  checkpoint: Checkpoint,
  context: PackingContext,
): Promise<string | null> {
  const tensors = await modelTensors(checkpoint, context);
  if (checkpoint.draftHead) tensors.push(...(await modelTensors(checkpoint.draftHead, context)).map(ofDraftHead));
  if (!isSlicesOnly(manifest) && sourceFingerprint(packedTensors(manifest)) !== manifest.source.fingerprint) {
    throw new OdmoeError(
      'PACK_CORRUPT',
      `${context.outputDirectory}: the manifest contradicts itself; remove the pack and pack again`,
    );
  }
  return sourceFingerprint(tensors) === manifest.source.fingerprint
    ? null
    : 'its weights are not those of the checkpoint';
}

async function modelTensors(model: ModelSource, context: PackingContext): Promise<FingerprintedTensor[]> {
  const tensors: FingerprintedTensor[] = [];
  for (const place of ownDensePlaces(model)) {
    const source = model.dense(place.role, place.layer);
    tensors.push(fingerprintedDense(place, source.split, (await checksumOf(source, context, COMPARING_SHARE)).planes));
  }
  return [...tensors, ...(await expertTensors(model, context, COMPARING_SHARE))];
}

/** Reads the weights of all experts. `share`: the part of the work for progress. */
export async function expertTensors(
  checkpoint: ModelSource,
  context: PackingContext,
  share: number,
): Promise<FingerprintedTensor[]> {
  const tensors: FingerprintedTensor[] = [];
  const { shape } = checkpoint;
  for (let layer = 0; layer < shape.expertLayers; layer += 1) {
    for (let expert = 0; expert < shape.experts; expert += 1) {
      const sources = checkpoint.expert(layer, expert);
      for (const part of EXPERT_MATRICES) {
        const { all } = await checksumOf(sources[part], context, share);
        tensors.push(fingerprintedMatrix({ layer, expert }, part, sources[part].split, all));
      }
      const { biases } = sources;
      if (biases !== null)
        tensors.push(fingerprintedBiases({ layer, expert }, context.tools.crc32c(biasBytes(biases), 0)));
    }
  }
  return tensors;
}

async function checksumOf(source: TensorSource, context: PackingContext, share: number): Promise<ValuesChecksum> {
  const checksum = new ValuesChecksum(context.tools);
  for await (const { planes } of context.reader.rows(source)) {
    checksum.add(planes);
    context.onBytes(planes.reduce((sum, bytes) => sum + bytes.length, 0) * share);
  }
  return checksum;
}
