import { cacheRowFloats, expertLayerNumbers, isRecurrent, type ModelShape } from '../../shared/model/model-shape.js';

/** What alignment has to know of a layer of the model, experts or not. */
export interface AlignedLayer {
  /** Bytes that its cache keeps of a position. */
  rowBytes: number;
  /** Its cache holds rows of the latest positions only. */
  recurrent: boolean;
}

/** All layers of a model, and which of them a pass has run when. */
export interface AlignedLayers {
  layers: readonly AlignedLayer[];
  /**
   * Entry e: layers whose rows are there when a pass has attended at expert layer e, and were not before it. The last entry: those behind
   * all expert layers, whose rows are there after the last combine.
   */
  writtenBy: readonly (readonly number[])[];
}

export function alignedLayers(shape: ModelShape): AlignedLayers {
  const layers = shape.layers.map(({ mixer }) => ({
    rowBytes: cacheRowFloats(mixer, shape.hiddenSize) * Float32Array.BYTES_PER_ELEMENT,
    recurrent: isRecurrent(mixer),
  }));
  const ends = [...expertLayerNumbers(shape).map((layer) => layer + 1), layers.length];
  const writtenBy = ends.map((end, index) => {
    const begin = ends[index - 1] ?? 0;
    return Array.from({ length: end - begin }, (_, place) => begin + place);
  });
  return { layers, writtenBy };
}
