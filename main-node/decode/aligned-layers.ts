import { cacheRowFloats, expertLayerNumbers, isRecurrent, type ModelShape } from '../../shared/model/model-shape.js';

/** The facts about one layer of the model, with or without experts, that alignment uses. */
export interface AlignedLayer {
  /** Bytes of one position in its cache. */
  rowBytes: number;
  /** Its cache holds rows of the latest positions only. */
  recurrent: boolean;
}

/** All layers of a model, and the point of a pass at which each layer's rows exist. */
export interface AlignedLayers {
  layers: readonly AlignedLayer[];
  /**
   * Entry e: layers whose rows exist when a pass has attended at expert layer e, and did not exist before. The last entry: layers after all expert
   * layers, whose rows exist after the last combine.
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
