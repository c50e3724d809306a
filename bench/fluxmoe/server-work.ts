/** The time that a decoding pass of a served model takes on the cards, and the memory of its weights and sequences. Pure. */
import {
  FLOAT_BYTES,
  attendedPositions,
  cacheRowBytes,
  type ContextWork,
  layersWork,
  vocabularyWeights,
  type LayerArithmetic,
} from '../../engine/emulation/layer-arithmetic.js';
import { expertMatrixValues, recurrentStateFloats } from '../../shared/model/model-shape.js';
import { WINDOW_LAYERS } from './streaming-window.js';
import type { ServerModel, ServerGpu, ServingCosts } from './server-profile.js';

const MS_PER_S = 1000;
/** A multiplication and an addition. */
const PRODUCT_FLOP = 2;
/** Share of an expert's three matrices that the fused gate and up matrices have. */
export const GATE_UP_SHARE = 2 / 3;

export class ServerWork {
  readonly layers: number;
  /** Number of experts of each layer. */
  readonly experts: number;
  /** Plain bytes of one expert, and of all experts of one layer. */
  readonly expertBytes: number;
  readonly layerExpertBytes: number;
  private readonly work: LayerArithmetic[];

  constructor(
    readonly model: ServerModel,
    readonly gpu: ServerGpu,
    readonly costs: ServingCosts,
  ) {
    this.layers = model.shape.layers.length;
    this.experts = model.shape.experts;
    this.expertBytes = expertMatrixValues(model.shape) * costs.weightBytes;
    this.layerExpertBytes = this.expertBytes * this.experts;
    this.work = layersWork(model.shape);
  }

  /** Bytes of all weights except the routed experts. */
  get denseBytes(): number {
    const ofLayers = this.work.reduce((sum, { weights }) => sum + weights, 0);
    const ofVocabulary = (this.model.tiedEmbeddings ? 1 : 2) * vocabularyWeights(this.model.shape);
    return (ofLayers + ofVocabulary) * this.costs.weightBytes;
  }

  /** Bytes of all weights in plain form. */
  get weightBytes(): number {
    return this.denseBytes + this.layers * this.layerExpertBytes;
  }

  /** Bytes of the window through which experts stream. */
  get windowBytes(): number {
    return WINDOW_LAYERS * this.layerExpertBytes;
  }

  /** Device bytes for experts, keys and values together. */
  get freeBytes(): number {
    const { memoryBytes, reservedBytes } = this.gpu;
    const { gpus, memoryShare } = this.model;
    return gpus * (memoryBytes * memoryShare - reservedBytes) - this.denseBytes;
  }

  /** Bytes that one sequence of so many positions needs. */
  sequenceBytes(positions: number): number {
    const { cacheValueBytes, stateValueBytes } = this.costs;
    const ofPosition = this.work.reduce((sum, layer) => sum + cacheRowBytes(layer), 0);
    const { layers, hiddenSize } = this.model.shape;
    const states = layers.reduce((sum, { mixer }) => sum + recurrentStateFloats(mixer, hiddenSize), 0);
    return (positions * ofPosition * cacheValueBytes) / FLOAT_BYTES + states * stateValueBytes;
  }

  /** Time of one layer, in ms, for one new position of each of `rows` sequences with `positions` positions each. */
  layerMs(layer: number, rows: number, positions: number): number {
    const { layerOverheadMs, rowOverheadMs } = this.costs;
    const work = this.work[layer];
    if (work === undefined) return 0;
    const perRowMs = (rows * rowOverheadMs) / this.layers;
    return layerOverheadMs + perRowMs + this.denseMs(work, rows, positions) + this.expertsMs(rows);
  }

  /** Time of the LM head after all layers, in ms. */
  headMs(rows: number): number {
    return this.matrixMs(vocabularyWeights(this.model.shape), rows);
  }

  /** tau_comp: time of all layers and the LM head, in ms. */
  computeMs(rows: number, positions: number): number {
    let sum = this.headMs(rows);
    for (let layer = 0; layer < this.layers; layer += 1) sum += this.layerMs(layer, rows, positions);
    return sum;
  }

  /** Rate of all cards together, from the rate of one card. */
  rate(
    of: 'weightBytesPerS' | 'flopPerS' | 'decompressBytesPerS' | 'expertLinkBytesPerS' | 'cacheLinkBytesPerS',
  ): number {
    return this.gpu[of] * this.model.gpus;
  }

  private denseMs({ weights, stateBytes, rowFlop, context }: LayerArithmetic, rows: number, positions: number): number {
    const { weightBytes, cacheValueBytes, stateValueBytes, attentionShare } = this.costs;
    const ofContext = (each: (part: ContextWork) => number): number =>
      context.reduce((sum, part) => sum + each(part) * attendedPositions(part, positions), 0);
    const cacheBytes = (rows * ofContext((part) => part.positionBytes) * cacheValueBytes) / FLOAT_BYTES;
    const readBytes = weights * weightBytes + (rows * stateBytes * stateValueBytes) / FLOAT_BYTES;
    const readMs = ((readBytes + cacheBytes / attentionShare) / this.rate('weightBytesPerS')) * MS_PER_S;
    const flop = rows * (rowFlop + ofContext((part) => part.rowPositionFlop));
    return Math.max(readMs, (flop / this.rate('flopPerS')) * MS_PER_S);
  }

  /** Only experts that some row needs are read: each row chooses k of the L experts of a layer, all equally likely. */
  private expertsMs(rows: number): number {
    const { expertsPerToken } = this.model.shape;
    let untouched = 1;
    for (let row = 0; row < rows; row += 1) untouched *= 1 - expertsPerToken / this.experts;
    const readBytes = (1 - untouched) * this.layerExpertBytes;
    const flop = rows * expertsPerToken * PRODUCT_FLOP * expertMatrixValues(this.model.shape);
    return Math.max(readBytes / this.rate('weightBytesPerS'), flop / this.rate('flopPerS')) * MS_PER_S;
  }

  private matrixMs(weights: number, rows: number): number {
    const readMs = ((weights * this.costs.weightBytes) / this.rate('weightBytesPerS')) * MS_PER_S;
    return Math.max(readMs, ((rows * PRODUCT_FLOP * weights) / this.rate('flopPerS')) * MS_PER_S);
  }
}
