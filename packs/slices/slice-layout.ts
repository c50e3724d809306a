/** Places of slices in their files. Every layer of a model has the same. Pure. */
import { expertDimensions } from '../model-config/checkpoint-layout.js';
import type { ModelShape } from '../../shared/model/model-shape.js';
import type { ExpertMatrix, SlicedSplit } from '../../shared/model/tensor-source.js';
import { planeRowBytes } from '../../shared/model/weight-dtype.js';
import { alignUp, expertBiasBytes, type Slice } from '../format/pack-layout.js';

interface Place {
  offsetBytes: number;
  storedBytes: number;
}

export type MatrixPlaces = Readonly<Record<Slice, Place>> & { rows: number; columns: number };

export interface ExpertPlaces {
  matrices: Readonly<Record<ExpertMatrix, MatrixPlaces>>;
  /** In the file of upper slices; null: no biases. */
  biases: Place | null;
}

export interface SliceLayout {
  experts: readonly ExpertPlaces[];
  fileBytes: Readonly<Record<Slice, number>>;
}

/** In each file of a layer: expert by expert gate, up and down; behind the upper slices of each expert its biases. */
export function sliceLayout(shape: ModelShape, split: SlicedSplit): SliceLayout {
  const ends = { upper: 0, lower: 0 };
  const place = (slice: Slice, storedBytes: number): Place => {
    const offsetBytes = ends[slice];
    ends[slice] = alignUp(offsetBytes + storedBytes);
    return { offsetBytes, storedBytes };
  };
  const placeMatrix = (part: ExpertMatrix): MatrixPlaces => {
    const [rows, columns] = expertDimensions(part, shape);
    const [upper = 0, lower = 0] = planeRowBytes(split, columns);
    return { rows, columns, upper: place('upper', rows * upper), lower: place('lower', rows * lower) };
  };
  const biasBytes = expertBiasBytes(shape);
  const experts = Array.from({ length: shape.experts }, (): ExpertPlaces => {
    const matrices = { gate: placeMatrix('gate'), up: placeMatrix('up'), down: placeMatrix('down') };
    return { matrices, biases: biasBytes === 0 ? null : place('upper', biasBytes) };
  });
  return { experts, fileBytes: ends };
}
