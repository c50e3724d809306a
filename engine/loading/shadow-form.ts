/** The forms in which a shadow holds a model's weights, and the loading of them. */
import type { Model } from '../../native/index.js';
import { isSlicesOnly } from '../../packs/format/manifest.js';
import { openAnyPack, type Pack } from '../../packs/format/open-pack.js';
import { hasSlices, readSlices, type Slices, slicesOf } from '../../packs/slices/open-slices.js';
import { TemporarySlices } from '../../packs/slices/temporary-slices.js';
import { assertInvariant } from '../../shared/base/errors/assert-invariant.js';
import { OdmoeError, toOdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { Runtime } from '../../shared/base/runtime/runtime.js';
import { EXACT_QUALITY, PAIR_TEXTS, type Quality, readQuality } from '../../shared/settings/quality.js';
import type {
  ExpertSource,
  ModelSource,
  SlicedSplit,
  SliceReading,
  WeightFormat,
} from '../../shared/model/tensor-source.js';
import { storedBytes } from '../../shared/model/part-sizes.js';
import type { ShadowPrecision } from '../../shared/settings/setting-choices.js';
import { loadDenseWeights, loadResidentExperts, type LoadProgress, type Quantized } from './load-weights.js';

/** Sliced experts, and the reading by which every execution reads them. */
export interface ReadSlices {
  readonly split: SlicedSplit;
  readonly reading: SliceReading;
  /** The slices of the pack, if it has any, are left aside: they are made of its lossless experts. */
  readonly isMade?: boolean;
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
  const quality = slicedQuality(precision);
  const reading = quality.kind === 'high' ? 'both' : 'upperCentred';
  return { format: BESIDE_SLICES, sliced: { split: quality.split, reading } };
}

/** The quality for which a shadow's pack is opened: one that needs no lossless experts where the shadow may do without them. */
export function packQuality(precision: ShadowPrecision | 'auto'): Quality {
  // Any sliced quality opens any pack.
  if (precision === 'auto') return slicedQuality('sliced(8,4)');
  return shadowForm(precision).sliced === null ? EXACT_QUALITY : slicedQuality(precision);
}

function slicedQuality(precision: ShadowPrecision): Extract<Quality, { kind: 'high' | 'low' }> {
  const read = readQuality(precision);
  const quality = 'quality' in read ? read.quality : null;
  assertInvariant(quality?.kind === 'high' || quality?.kind === 'low', () => `no shadow is ${precision}`);
  return quality;
}

/** How the weights of a shadow are loaded. */
export interface ShadowLoading {
  readonly onProgress?: LoadProgress;
  /** Opens slices and waits for them, as Runtime.outside does; left out: without a runtime. */
  readonly outside?: Runtime['outside'];
  /** Called before the load rejects, if the pack's own slices are why. */
  readonly onSlicesFault?: (error: OdmoeError) => void;
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
  loading: ShadowLoading = {},
): Promise<void> {
  const { onProgress } = loading;
  await loadDenseWeights(model, source, format, onProgress, quantized);
  if (sliced === null) await loadResidentExperts(model, source, format, onProgress);
  else await loadSlicedExperts(model, source, sliced, loading);
}

/** Gives the slices of each expert, valid until the next one is asked for. */
export interface SlicedSource {
  expert(layer: number, expert: number): ExpertSource | Promise<ExpertSource>;
  close?(): Promise<void>;
}

async function loadSlicedExperts(
  model: Model,
  source: ModelSource,
  sliced: ReadSlices,
  { onProgress, outside = (work) => work(), onSlicesFault }: ShadowLoading,
): Promise<void> {
  const { split, reading } = sliced;
  const { expertLayers, experts } = source.shape;
  const failed = (thrown: unknown): never => {
    if (sliced.isMade !== true) onSlicesFault?.(toOdmoeError(thrown));
    throw thrown;
  };
  const slices = await outside(() => openSlicedSource(source, sliced)).catch(failed);
  try {
    for (let place = 0; place < expertLayers * experts; place += 1) {
      const [layer, expert] = [Math.floor(place / experts), place % experts];
      const loaded = await outside(async () => slices.expert(layer, expert));
      await model.loadResidentExpert(layer, expert, loaded, split, reading);
      // All experts of a model have one shape, and their slices are raw.
      onProgress?.((place + 1) * bytesOf(loaded), expertLayers * experts * bytesOf(loaded));
    }
  } catch (thrown) {
    if (slices instanceof TemporarySlices) throw thrown;
    failed(thrown);
  } finally {
    await outside(async () => slices.close?.());
  }
}

/**
 * The pack's own slices if they are of this split, else slices made of the lossless experts. To be closed.
 * @throws USAGE if the pack has neither; else as loadShadowWeights
 */
export async function openSlicedSource(source: ModelSource, wanted: ReadSlices): Promise<SlicedSource> {
  const pack = source.kind === 'pack' ? await openAnyPack(source.directory) : null;
  const own = pack === null ? null : await ownSlices(pack, wanted);
  if (own !== null) return own;
  if (pack !== null && isSlicesOnly(pack.manifest)) {
    throw new OdmoeError(
      'USAGE',
      `${pack.directory}: holds no lossless experts, and no slices (${PAIR_TEXTS[wanted.split]}): give the shadow a precision of the pair ` +
        'that "odmoe inspect" names',
    );
  }
  return await TemporarySlices.create(source, wanted.split);
}

/** Null: the pack has none of this split, or they are not to be used. */
async function ownSlices(pack: Pack, { split, reading, isMade }: ReadSlices): Promise<Slices | null> {
  if (isMade === true || !(await hasSlices(pack))) return null;
  const set = reading === 'both' ? 'both' : 'upper';
  return (await readSlices(pack, set)).split === split ? await slicesOf(pack, set) : null;
}

function bytesOf({ gate, up, down }: ExpertSource): number {
  return storedBytes(gate) + storedBytes(up) + storedBytes(down);
}
