import { assertInvariant } from '../../shared/base/errors/assert-invariant.js';
import type { ExpertMatrix, ModelSource, SlicedSplit } from '../../shared/model/tensor-source.js';
import { planeRowBytes } from '../../shared/model/weight-dtype.js';
import { tensorName } from '../format/manifest.js';
import { SLICES, type Slice, sliceFileName } from '../format/pack-layout.js';
import { biasBytes } from '../packing/expert-file.js';
import { PackFile } from '../packing/pack-file.js';
import type { SourceReader } from '../packing/source-reader.js';
import { sliceMatrix, type SlicingTools } from './slice-matrix.js';
import { type ExpertPlaces, type MatrixPlaces, sliceLayout } from './slice-layout.js';
import type { SlicedExpert, SlicedLayer, SlicedMatrix } from './slices-manifest.js';

/** Everything that slicing any one layer needs. */
export interface SlicingContext {
  directory: string;
  split: SlicedSplit;
  /** The weights to slice. */
  source: ModelSource;
  tools: SlicingTools;
  reader: SourceReader;
  /** Reports source bytes that were processed since the last call. */
  onBytes(bytes: number): void;
  /** Called before files get their final names. @throws STORAGE_FAILED if another process has taken the lock */
  assertLocked(): Promise<void>;
}

type SliceFiles = Readonly<Record<Slice, PackFile>>;

/** Writes the two files of an expert layer; each gets its name when both are on the disk. */
export async function writeLayerSlices(layer: number, context: SlicingContext): Promise<SlicedLayer> {
  const { directory, tools } = context;
  const upper = await PackFile.create(directory, sliceFileName(layer, 'upper'), tools.openFile);
  try {
    const lower = await PackFile.create(directory, sliceFileName(layer, 'lower'), tools.openFile);
    try {
      const experts = await writeExperts(layer, { upper, lower }, context);
      await context.assertLocked();
      return { layer, files: [await upper.finish(), await lower.finish()], experts };
    } catch (thrown) {
      await lower.abandon();
      throw thrown;
    }
  } catch (thrown) {
    await upper.abandon();
    throw thrown;
  }
}

async function writeExperts(layer: number, files: SliceFiles, context: SlicingContext): Promise<SlicedExpert[]> {
  const layout = sliceLayout(context.source.shape, context.split);
  const experts: SlicedExpert[] = [];
  for (const [expert, places] of layout.experts.entries()) {
    experts.push(await writeExpert(layer, expert, places, files, context));
    const next = layout.experts[expert + 1]?.matrices.gate;
    for (const slice of SLICES) {
      await files[slice].completeThrough(next?.[slice].offsetBytes ?? layout.fileBytes[slice]);
    }
  }
  return experts;
}

async function writeExpert(
  layer: number,
  expert: number,
  { matrices, biases: place }: ExpertPlaces,
  files: SliceFiles,
  context: SlicingContext,
): Promise<SlicedExpert> {
  const source = context.source.expert(layer, expert);
  const write = async (part: ExpertMatrix): Promise<SlicedMatrix> => {
    const label = tensorName({ layer, expert, part });
    const { rows, columns, upper, lower } = matrices[part];
    const crcs = { upper: 0, lower: 0 };
    const values = await sliceMatrix(
      source[part],
      context.split,
      label,
      context,
      async (firstRow, slices, sourceBytes) => {
        await writeRows(firstRow, slices, matrices[part], crcs, files, context);
        context.onBytes(sourceBytes);
      },
    );
    const extent = (slice: Slice): SlicedMatrix['upper'] => {
      const { offsetBytes, storedBytes } = slice === 'upper' ? upper : lower;
      return { offset_bytes: offsetBytes, stored_bytes: storedBytes, crc32c: crcs[slice] };
    };
    return { rows, columns, ...values, upper: extent('upper'), lower: extent('lower') };
  };
  const [gate, up, down] = [await write('gate'), await write('up'), await write('down')];
  const { biases } = source;
  assertInvariant((biases === null) === (place === null), () => 'the biases of an expert are not those of its model');
  if (biases === null || place === null) return { layer, expert, gate, up, down, biases: null };
  const bytes = biasBytes(biases);
  await files.upper.writeAt(place.offsetBytes, bytes);
  const extent = {
    offset_bytes: place.offsetBytes,
    stored_bytes: bytes.length,
    crc32c: context.tools.crc32c(bytes, 0),
  };
  return { layer, expert, gate, up, down, biases: extent };
}

async function writeRows(
  firstRow: number,
  slices: readonly [Uint8Array, Uint8Array],
  places: MatrixPlaces,
  crcs: Record<Slice, number>,
  files: SliceFiles,
  { split, tools }: SlicingContext,
): Promise<void> {
  const widths = planeRowBytes(split, places.columns);
  for (const [plane, bytes] of slices.entries()) {
    const slice = SLICES[plane] ?? 'upper';
    await files[slice].writeAt(places[slice].offsetBytes + firstRow * (widths[plane] ?? 0), bytes);
    crcs[slice] = tools.crc32c(bytes, crcs[slice]);
  }
}
