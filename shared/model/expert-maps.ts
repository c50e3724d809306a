/** The maps by which main foretells experts from the residual stream as a layer meets it (docs/predictor.md). */

export interface ExpertMapsShape {
  hiddenSize: number;
  /** Experts of a layer. */
  experts: number;
  /** Rows of the hidden layer. */
  units: number;
  /** Expert layers. */
  layers: number;
  /** Layers ahead, rising: 0 is the layer itself. */
  distances: readonly number[];
}

/** The maps of one expert layer, as they are stored: rows of INT8 with one FP32 scale each, and FP32 biases. */
export interface LayerMaps {
  /** units x hiddenSize. */
  units: Int8Array;
  unitScales: Float32Array;
  /** Existing distances x experts x units. */
  heads: Int8Array;
  /** Existing distances x experts. */
  headScales: Float32Array;
  biases: Float32Array;
}

/** The distances of the shape at which this expert layer has a layer ahead of it. */
export function existingDistances({ layers, distances }: ExpertMapsShape, layer: number): number[] {
  return distances.filter((distance) => layer + distance < layers);
}
