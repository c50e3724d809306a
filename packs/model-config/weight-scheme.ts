/**
 * A way in which the weights of some modules are quantized, as config.json says. `group`: columns with one scale, 0 for the whole row.
 * `reordered`: columns may belong to any group.
 */
export type WeightScheme =
  | { kind: 'packed'; bits: 4 | 8; group: number; symmetric: boolean; reordered: boolean }
  | { kind: 'int8'; scales: 'channel' | 'tensor' }
  | { kind: 'fp8'; scales: 'block' | 'channel' | 'tensor' }
  | { kind: 'mxfp4' }
  | { kind: 'mxfp8' }
  | { kind: 'nvfp4'; matrixScale: 'multiplied' | 'divided' }
  | { kind: 'gptq'; bits: 4 | 8; group: number; symmetric: boolean; reordered: boolean; zeros: 'v1' | 'v2' }
  | { kind: 'awq'; group: number };

export type SchemeKind = WeightScheme['kind'];
