/** predictor.safetensors in the directory of a pack (docs/predictor.md): predictions alone depend on it, no answer does. */
import { createHash } from 'node:crypto';
import type { FileHandle } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';
import { allFinite } from '../../native/index.js';
import { assertInvariant } from '../../shared/base/errors/assert-invariant.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { odmoeVersion } from '../../shared/base/files/odmoe-version.js';
import { fileExists, type FileErrors, openFile, readFailure } from '../../shared/base/files/read-file.js';
import { replaceFile } from '../../shared/base/files/replace-file.js';
import type { ExpertMapsShape, LayerMaps } from '../../shared/model/expert-maps.js';
import type { ModelShape } from '../../shared/model/model-shape.js';
import { readInto } from '../checkpoint/safetensors-file.js';
import { HEADER_LENGTH_BYTES } from '../checkpoint/safetensors-header.js';
import { openAnyPack, type Pack } from '../format/open-pack.js';
import { PREDICTOR_FILE } from '../format/pack-layout.js';
import {
  headerWithoutDigest,
  metadataHeadSchema,
  metadataSchema,
  metadataShape,
  mostPredictorBytes,
  PREDICTOR_FORMAT,
  PREDICTOR_FORMAT_VERSION,
  predictorHeader,
  type PredictorMetadata,
  predictorTensors,
  shapeOfMetadata,
} from './predictor-layout.js';

/** Larger than the header of any model's maps. */
const HEADER_LIMIT_BYTES = 16 * 1024 * 1024;
/** Larger than the maps of any model; a file with more is refused before memory is taken. */
const DATA_LIMIT_BYTES = 2 * 1024 * 1024 * 1024 - 1;

/** Trained maps from states to the experts of layers ahead. */
export interface Predictor {
  readonly shape: ExpertMapsShape;
  /** By expert layer. */
  readonly layers: readonly LayerMaps[];
  /**
   * Share of the experts of layer `layer + distance` that are among as many experts as a router chooses, those with the highest scores. Measured
   * on sequences that were not trained on.
   */
  readonly recall: readonly LayerRecall[];
  /** Tokens that were recorded. */
  readonly tokens: number;
  readonly seed: number;
  /** The source of the tokens, in a few words. */
  readonly text: string;
}

export interface LayerRecall {
  /** The expert layer from whose state the prediction was made. */
  readonly layer: number;
  readonly distance: number;
  readonly recall: number;
}

/** The pack of a predictor: as it was opened, or its directory. */
export type PredictorPack = string | Pick<Pack, 'directory' | 'manifest'>;

function errorsOf(directory: string): FileErrors {
  return {
    missing: 'PACK_INCOMPLETE',
    invalid: 'PACK_CORRUPT',
    remedy: `"odmoe fit ${directory}" makes it anew`,
  };
}

/**
 * Returns null if the pack has no predictor.
 * @throws PACK_CORRUPT for a file that is damaged or of another model, MODEL_UNSUPPORTED (another version), STORAGE_FAILED
 */
export async function readPredictor(packPlace: PredictorPack): Promise<Predictor | null> {
  const pack = typeof packPlace === 'string' ? await openAnyPack(packPlace) : packPlace;
  const path = join(pack.directory, PREDICTOR_FILE);
  if (!(await fileExists(path))) return null;
  const errors = errorsOf(pack.directory);
  try {
    const handle = await openFile(path);
    try {
      return await readOpened(handle, path, pack.manifest, errors);
    } finally {
      await handle.close();
    }
  } catch (thrown) {
    throw readFailure(thrown, path, errors);
  }
}

/** Replaces the predictor of the pack. @throws STORAGE_FULL, STORAGE_FAILED */
export async function writePredictor(packPlace: PredictorPack, predictor: Predictor): Promise<void> {
  const { directory, manifest } = typeof packPlace === 'string' ? await openAnyPack(packPlace) : packPlace;
  await replaceFile(join(directory, PREDICTOR_FILE), predictorBytes(manifest.source.fingerprint, predictor));
}

/** The bytes of the file. Equal predictors of one model have equal bytes. */
export function predictorBytes(sourceFingerprint: string, predictor: Predictor): Buffer {
  const { shape, layers, recall, tokens, seed, text } = predictor;
  const metadata: PredictorMetadata = {
    format: PREDICTOR_FORMAT,
    format_version: String(PREDICTOR_FORMAT_VERSION),
    odmoe_version: odmoeVersion(),
    source_fingerprint: sourceFingerprint,
    shape: metadataShape(shape),
    tokens,
    seed,
    text,
    recall: recall.map(({ layer, distance, recall: share }) => ({ layer, distance, recall: share })),
    sha256: '',
  };
  const data = Buffer.concat(
    predictorTensors(shape).map(({ layer, part, sizeBytes }) => {
      const values = layers[layer]?.[part];
      assertInvariant(
        values?.byteLength === sizeBytes,
        () => `the ${part} of expert layer ${layer} of a predictor have ${values?.byteLength} of ${sizeBytes} bytes`,
      );
      return new Uint8Array(values.buffer, values.byteOffset, sizeBytes);
    }),
  );
  const sha256 = digestOf(metadata, data);
  return Buffer.concat([predictorHeader(metadata, sha256), data]);
}

function digestOf(metadata: PredictorMetadata, data: Uint8Array): string {
  return createHash('sha256').update(headerWithoutDigest(metadata)).update(data).digest('hex');
}

/** The model that a file must belong to. */
interface OwnModel {
  readonly source: { readonly fingerprint: string };
  readonly model: { readonly shape: ModelShape };
}

async function readOpened(handle: FileHandle, path: string, own: OwnModel, errors: FileErrors): Promise<Predictor> {
  const fail = (problem: string): OdmoeError => new OdmoeError(errors.invalid, `${path}: ${problem}; ${errors.remedy}`);
  const { size } = await handle.stat();
  const header = await readHeader(handle, path, size, fail);
  const metadata = parseMetadata(header, path, errors, fail);
  requireOwnModel(metadata, own, fail);
  const shape = shapeOfMetadata(metadata);
  if (mostPredictorBytes(shape) > DATA_LIMIT_BYTES) throw fail('it announces more maps than a predictor has');
  if (!header.equals(predictorHeader(metadata))) throw fail('it is damaged: its header contradicts itself');
  const dataBytes = predictorTensors(shape).reduce((sum, { sizeBytes }) => sum + sizeBytes, 0);
  if (size !== header.length + dataBytes) {
    throw fail(`it is damaged: ${size} bytes, expected ${header.length + dataBytes}`);
  }
  const data = new Uint8Array(dataBytes);
  await readInto(handle, path, header.length, data);
  if (digestOf(metadata, data) !== metadata.sha256) throw fail('it is damaged: its checksum is another');
  const layers = layersOf(shape, data, fail);
  const { recall, tokens, seed, text } = metadata;
  return { shape, layers, recall, tokens, seed, text };
}

/** Length field and header. */
async function readHeader(
  handle: FileHandle,
  path: string,
  fileBytes: number,
  fail: (problem: string) => OdmoeError,
): Promise<Buffer> {
  if (fileBytes < HEADER_LENGTH_BYTES) throw fail(`it is damaged: ${fileBytes} bytes are too few`);
  const length = Buffer.alloc(HEADER_LENGTH_BYTES);
  await readInto(handle, path, 0, length);
  const announced = length.readBigUInt64LE(0);
  const most = Math.min(HEADER_LIMIT_BYTES, fileBytes - HEADER_LENGTH_BYTES);
  if (announced > BigInt(most)) throw fail(`it is damaged: its header of ${announced} bytes is longer than ${most}`);
  const header = Buffer.alloc(HEADER_LENGTH_BYTES + Number(announced));
  await readInto(handle, path, 0, header);
  return header;
}

function parseMetadata(
  header: Buffer,
  path: string,
  errors: FileErrors,
  fail: (problem: string) => OdmoeError,
): PredictorMetadata {
  const value = metadataOf(header, fail);
  const head = metadataHeadSchema.safeParse(value);
  if (!head.success || head.data.format !== PREDICTOR_FORMAT) throw fail('it is no predictor, or a damaged one');
  if (head.data.format_version !== String(PREDICTOR_FORMAT_VERSION)) {
    throw new OdmoeError(
      'MODEL_UNSUPPORTED',
      `${path}: version ${JSON.stringify(head.data.format_version)} of a predictor, this odmoe reads version ` +
        `${PREDICTOR_FORMAT_VERSION}; ${errors.remedy}`,
    );
  }
  const parsed = metadataSchema.safeParse(value);
  if (!parsed.success) {
    const [first] = parsed.error.issues;
    throw fail(`it is damaged: ${z.core.toDotPath(first?.path ?? [])}: ${first?.message}`);
  }
  return parsed.data;
}

function metadataOf(header: Buffer, fail: (problem: string) => OdmoeError): unknown {
  try {
    const value = JSON.parse(header.toString('utf8', HEADER_LENGTH_BYTES)) as unknown;
    return z.looseObject({ __metadata__: z.unknown() }).parse(value).__metadata__;
  } catch {
    throw fail('it is damaged: its header is not that of a safetensors file');
  }
}

function requireOwnModel(
  { source_fingerprint: fingerprint, shape, recall }: PredictorMetadata,
  { source, model }: OwnModel,
  fail: (problem: string) => OdmoeError,
): void {
  if (fingerprint !== source.fingerprint) throw fail('it was made for another model');
  const { hiddenSize, experts, expertLayers } = model.shape;
  if (shape.hidden_size !== hiddenSize || shape.experts !== experts || shape.layers !== expertLayers) {
    throw fail('it is damaged: its sizes are not those of the model');
  }
  const { distances } = shape;
  if (distances.some((distance, index) => index > 0 && distance <= (distances[index - 1] ?? 0))) {
    throw fail('it is damaged: its distances do not rise');
  }
  const isKnown = recall.every(
    ({ layer, distance }) => layer + distance < expertLayers && distances.includes(distance),
  );
  if (!isKnown) throw fail('it is damaged: it gives the recall of layers that the model lacks');
}

function layersOf(shape: ExpertMapsShape, data: Uint8Array, fail: (problem: string) => OdmoeError): LayerMaps[] {
  const layers = Array.from({ length: shape.layers }, (): LayerMaps => ({
    units: new Int8Array(),
    unitScales: new Float32Array(),
    heads: new Int8Array(),
    headScales: new Float32Array(),
    biases: new Float32Array(),
  }));
  let at = 0;
  for (const { layer, part, dtype, sizeBytes } of predictorTensors(shape)) {
    const bytes = data.slice(at, at + sizeBytes);
    at += sizeBytes;
    if (dtype === 'F32' && !allFinite(bytes)) throw fail(`the ${part} of expert layer ${layer} are not finite`);
    const values = dtype === 'F32' ? new Float32Array(bytes.buffer) : new Int8Array(bytes.buffer);
    Object.assign(layers[layer] as LayerMaps, { [part]: values });
  }
  return layers;
}
