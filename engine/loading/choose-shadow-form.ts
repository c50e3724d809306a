/** The form of a shadow under `shadow.precision: auto`, by the memory of its device and the recall that was measured with the model. */
import { assertInvariant } from '../../shared/base/errors/assert-invariant.js';
import type { Slices } from '../../packs/slices/open-slices.js';
import {
  AUTO_PRECISIONS,
  type AutoPrecision,
  chooseShadowPrecision,
  type FormRecall,
  type ShadowChoice,
} from '../../shared/decisions/slices/choose-shadow-form.js';
import { densePlaces } from '../../shared/model/dense-roles.js';
import type { ModelSource, WeightFormat } from '../../shared/model/tensor-source.js';
import { isSlicedSplit, planeRowBytes } from '../../shared/model/weight-dtype.js';
import { denseFormat, type Quantized } from './load-weights.js';
import { shadowForm, type ShadowForm } from './shadow-form.js';
import { expertRowSize, gateRows } from '../../shared/model/model-shape.js';

/** Bytes of a row on a device, for formats that are no split of a file. */
const ROW_BYTES: Readonly<Record<'bf16' | 'fp16' | 'fp32' | 'int8' | 'nf4' | 'fixed4', (columns: number) => number>> = {
  bf16: (columns) => 2 * columns,
  fp16: (columns) => 2 * columns,
  fp32: (columns) => 4 * columns,
  int8: (columns) => columns + 4,
  nf4: (columns) => Math.ceil(columns / 64) * 36,
  fixed4: (columns) => 1.53 * columns,
};

/** The memory of a shadow's weights, except for what a device adds to align them. */
export function shadowBytes(source: ModelSource, { format, sliced }: ShadowForm, quantized: Quantized): number {
  let bytes = 0;
  for (const { role, layer } of densePlaces(source.shape, source.tiedEmbeddings)) {
    const tensor = source.dense(role, layer);
    const stored = denseFormat(role, tensor, source, format, quantized);
    bytes += tensor.rows * rowBytes(stored, tensor.columns, true);
  }
  const ofExperts = sliced?.split ?? format;
  const withLower = sliced?.reading === 'both';
  const { experts, expertLayers, expert } = source.shape;
  const hiddenSize = expertRowSize(source.shape);
  const gateAndUpBytes = 2 * gateRows(expert) * rowBytes(ofExperts, hiddenSize, withLower);
  const downBytes = hiddenSize * rowBytes(ofExperts, expert.intermediateSize, withLower);
  return bytes + expertLayers * experts * (gateAndUpBytes + downBytes);
}

/** Bytes of a weight of a shadow in rows of so many columns: of projections, and of routed experts. */
export function shadowWeightBytes({ format, sliced }: ShadowForm, columns: number): { dense: number; expert: number } {
  const ofExperts = rowBytes(sliced?.split ?? format, columns, sliced?.reading === 'both');
  return { dense: rowBytes(format, columns, true) / columns, expert: ofExperts / columns };
}

function rowBytes(format: WeightFormat, columns: number, withLower: boolean): number {
  if (isPlain(format)) return ROW_BYTES[format](columns);
  assertInvariant(format !== 'shipped', () => "a shadow's form is a format of its own");
  const planes = planeRowBytes(format, columns);
  return sum(isSlicedSplit(format) && !withLower ? planes.slice(0, 1) : planes);
}

function isPlain(format: WeightFormat): format is keyof typeof ROW_BYTES {
  return format in ROW_BYTES;
}

function sum(values: readonly number[]): number {
  return values.reduce((total, value) => total + value, 0);
}

/** The forms that a shadow's pack offers. */
export interface OfferedForms {
  /** The slices of a pack without lossless experts: a shadow takes no other form; null: a shadow makes any form of the lossless experts. */
  readonly onlySlices: Pick<Slices, 'split' | 'opened'> | null;
  /** As it was measured with the model; null: it was not. */
  readonly recall: readonly FormRecall[] | null;
}

/** `memoryBytes`: as deviceMemoryLeft gives it. */
export function chooseShadowForm(
  source: ModelSource,
  quantized: Quantized,
  { onlySlices, recall }: OfferedForms,
  memoryBytes: number,
): ShadowChoice {
  const offered = AUTO_PRECISIONS.filter((precision) => onlySlices === null || holdsForm(onlySlices, precision));
  const candidates = offered.map((precision) => ({
    precision,
    bytes: shadowBytes(source, shadowForm(precision), quantized),
    recall: recall?.find((measured) => measured.precision === precision)?.recall ?? null,
  }));
  return chooseShadowPrecision(candidates, memoryBytes);
}

function holdsForm({ split, opened }: Pick<Slices, 'split' | 'opened'>, precision: AutoPrecision): boolean {
  const { sliced } = shadowForm(precision);
  return sliced?.split === split && (opened === 'both' || sliced.reading !== 'both');
}
