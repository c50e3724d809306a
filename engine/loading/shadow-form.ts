/** The forms in which a shadow holds a model's weights, and the loading of them. */
import type { Model } from '../../native/index.js';
import { SLICES_FILE } from '../../packs/format/pack-layout.js';
import { openSlices } from '../../packs/slices/open-slices.js';
import { TemporarySlices } from '../../packs/slices/temporary-slices.js';
import { assertInvariant } from '../../shared/base/errors/assert-invariant.js';
import { fileExists } from '../../shared/base/files/read-file.js';
import { readQuality } from '../../shared/settings/quality.js';
import type {
  ExpertSource,
  ModelSource,
  SlicedSplit,
  SliceReading,
  WeightFormat,
} from '../../shared/model/tensor-source.js';
import { allExperts, storedBytes } from '../../shared/model/part-sizes.js';
import type { ShadowPrecision } from '../../shared/settings/setting-choices.js';
import { join } from 'node:path';
import { loadDenseWeights, loadResidentExperts, type LoadProgress, type Quantized } from './load-weights.js';

/** Sliced experts, and the reading by which every execution reads them. */
export interface ReadSlices {
  readonly split: SlicedSplit;
  readonly reading: SliceReading;
}

export interface ShadowForm {
  /** Format of projections, and of experts unless they are sliced. */
  readonly format: WeightFormat;
  readonly sliced: ReadSlices | null;
}

/** Format of all but the experts, where experts are sliced. */
const BESIDE_SLICES = 'int8';

export function shadowForm(precision: ShadowPrecision): ShadowForm {
  if (precision === 'int8' || precision === 'fp16' || precision === 'nf4') return { format: precision, sliced: null };
  const read = readQuality(precision);
  const quality = 'quality' in read ? read.quality : null;
  assertInvariant(quality?.kind === 'high' || quality?.kind === 'low', () => `no shadow is ${precision}`);
  const reading = quality.kind === 'high' ? 'both' : 'upperCentred';
  return { format: BESIDE_SLICES, sliced: { split: quality.split, reading } };
}

/**
 * Loads all weights of a shadow, which are quantized during the load. A pack's own slices are taken where it has those of the form; else they are made of
 * its lossless experts. A lower slice that is not read takes no memory.
 * @throws MODEL_UNSUPPORTED for experts that cannot be sliced, STORAGE_FULL, and the errors of loadDenseWeights
 */
export async function loadShadowWeights(
  model: Model,
  source: ModelSource,
  { format, sliced }: ShadowForm,
  quantized: Quantized,
  onProgress?: LoadProgress,
): Promise<void> {
  await loadDenseWeights(model, source, format, onProgress, quantized);
  if (sliced === null) await loadResidentExperts(model, source, format, onProgress);
  else await loadSlicedExperts(model, source, sliced, onProgress);
}

/** Gives the slices of each expert, valid until the next one is asked for. */
export interface SlicedSource {
  expert(layer: number, expert: number): ExpertSource | Promise<ExpertSource>;
  close?(): Promise<void>;
}

async function loadSlicedExperts(
  model: Model,
  source: ModelSource,
  { split, reading }: ReadSlices,
  onProgress?: LoadProgress,
): Promise<void> {
  const { expertLayers, experts } = source.shape;
  const bytes = [...allExperts(source)].map(bytesOf);
  const totalBytes = bytes.reduce((sum, each) => sum + each, 0);
  const slices = await openSlicedSource(source, split);
  let doneBytes = 0;
  try {
    for (let place = 0; place < expertLayers * experts; place += 1) {
      const [layer, expert] = [Math.floor(place / experts), place % experts];
      await model.loadResidentExpert(layer, expert, await slices.expert(layer, expert), split, reading);
      doneBytes += bytes[place] ?? 0;
      onProgress?.(doneBytes, totalBytes);
    }
  } finally {
    await slices.close?.();
  }
}

/** The pack's own slices if they are of this split, else slices made of the lossless experts. To be closed. @throws as loadShadowWeights */
export async function openSlicedSource(source: ModelSource, split: SlicedSplit): Promise<SlicedSource> {
  if (source.kind === 'pack' && (await fileExists(join(source.directory, SLICES_FILE)))) {
    const slices = await openSlices(source.directory);
    if (slices.split === split) return slices;
  }
  return await TemporarySlices.create(source, split);
}

function bytesOf({ gate, up, down }: ExpertSource): number {
  return storedBytes(gate) + storedBytes(up) + storedBytes(down);
}
