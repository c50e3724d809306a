import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { ExactFormat, SlicedSplit, Split, TensorSource } from '../../shared/model/tensor-source.js';
import { exactFormatOf, isQuantizedSplit } from '../../shared/model/weight-dtype.js';
import { planeOf } from '../packing/dense-file.js';
import type { PackingTools } from '../packing/packing-context.js';
import type { SourceReader } from '../packing/source-reader.js';
import { ValuesChecksum } from '../packing/values-checksum.js';

/** Functions of the native addon and of the disk for making and checking slices. */
export interface SlicingTools extends Pick<PackingTools, 'crc32c' | 'joinPlanes' | 'openFile' | 'openTensor'> {
  sliceRows(
    planes: Uint8Array[],
    split: Split,
    rows: number,
    columns: number,
    sliced: SlicedSplit,
  ): Promise<[upper: Uint8Array, lower: Uint8Array]>;
}

/** Format and checksum of the values that were sliced, as the manifest of a lossless pack has them. */
export interface SlicedValues {
  source_format: ExactFormat;
  source_crc32c: number;
}

/**
 * Slices a matrix a few rows at a time. `label` names it in errors. `onRows` gets the rows' bytes in both slices.
 * @throws MODEL_UNSUPPORTED, naming the row, if it cannot be sliced; CANCELLED, MODEL_CORRUPT, PACK_CORRUPT, STORAGE_FAILED
 */
export async function sliceMatrix(
  source: TensorSource,
  split: SlicedSplit,
  label: string,
  { tools, reader }: { tools: SlicingTools; reader: SourceReader },
  onRows: (
    firstRow: number,
    slices: readonly [upper: Uint8Array, lower: Uint8Array],
    sourceBytes: number,
  ) => Promise<void> | void,
): Promise<SlicedValues> {
  const checksum = new ValuesChecksum(tools);
  for await (const { firstRow, rows, planes } of reader.rows(source)) {
    const values = plainValues(planes, source.split, tools);
    checksum.add(values.planes);
    const slices = await tools
      .sliceRows(values.planes, values.split, rows, source.columns, split)
      .catch((thrown: unknown) => {
        throw unsliceable(thrown, label, firstRow);
      });
    await onRows(
      firstRow,
      slices,
      planes.reduce((sum, bytes) => sum + bytes.length, 0),
    );
  }
  return { source_format: exactFormatOf(source.split), source_crc32c: checksum.all };
}

/** Values as a checkpoint has them: a pack has them in planes. */
function plainValues(
  planes: Uint8Array[],
  split: Split,
  tools: Pick<SlicingTools, 'joinPlanes'>,
): { planes: Uint8Array[]; split: Split } {
  const format = exactFormatOf(split);
  if (isQuantizedSplit(format)) return { planes, split };
  return {
    planes: [planes.length === 1 ? planeOf(planes, 0) : tools.joinPlanes(planes, split)],
    split: `none-${format}`,
  };
}

/** The addon counts rows from the first of those that it was given. */
function unsliceable(thrown: unknown, label: string, firstRow: number): unknown {
  if (!(thrown instanceof OdmoeError) || thrown.code !== 'MODEL_UNSUPPORTED') return thrown;
  const problem = thrown.message.replace(/^row (\d+)/, (_, row: string) => `row ${firstRow + Number(row)}`);
  return new OdmoeError('MODEL_UNSUPPORTED', `${label}: ${problem}`, { cause: thrown });
}
