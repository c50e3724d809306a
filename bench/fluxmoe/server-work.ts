/** What a decoding pass of a served model takes of the cards' time, and what weights and sequences take of their memory. Pure. */
import {
  expertWeights,
  FLOAT_BYTES,
  layersWork,
  recurrentStateFloats,
  vocabularyWeights,
  type LayerArithmetic,
} from '../../engine/emulation/layer-arithmetic.js';
import { WINDOW_LAYERS } from './streaming-window.js';
import type { ServedModel, ServerGpu, ServingCosts } from './server-profile.js';

const MS_PER_S = 1000;
/** A multiplication and an addition. */
const PRODUCT_FLOP = 2;
/** Of an expert's three matrices, gate and up are fused. */
export const GATE_UP_SHARE = 2 / 3;

export class ServerWork {
  readonly layers: number;
  /** Of each layer. */
  readonly experts: number;
  /** Plain bytes of one expert, and of all experts of one layer. */
  readonly expertBytes: number;
  readonly layerExpertBytes: number;
  private readonly work: LayerArithmetic[];

  constructor(
    readonly model: ServedModel,
    readonly gpu: ServerGpu,
    readonly costs: ServingCosts,
  ) {
    this.layers = model.shape.layers.length;
    this.experts = model.shape.experts;
    this.expertBytes = expertWeights(model.shape) * costs.weightBytes;
    this.layerExpertBytes = this.expertBytes * this.experts;
    this.work = layersWork(model.shape);
  }

  /** All weights but the routed experts', bytes. */
  get denseBytes(): number {
    const ofLayers = this.work.reduce((sum, { weights }) => sum + weights, 0);
    const ofVocabulary = (this.model.tiedEmbeddings ? 1 : 2) * vocabularyWeights(this.model.shape);
    return (ofLayers + ofVocabulary) * this.costs.weightBytes;
  }

  /** All weights, plain, bytes. */
  get weightBytes(): number {
    return this.denseBytes + this.layers * this.layerExpertBytes;
  }

  /** The window through which experts stream, bytes. */
  get windowBytes(): number {
    return WINDOW_LAYERS * this.layerExpertBytes;
  }

  /** Device bytes for experts and for keys and values together. */
  get freeBytes(): number {
    const { memoryBytes, reservedBytes } = this.gpu;
    const { gpus, memoryShare } = this.model;
    return gpus * (memoryBytes * memoryShare - reservedBytes) - this.denseBytes;
  }

  /** What is kept of one sequence of so many positions, bytes. */
  sequenceBytes(positions: number): number {
    const { cacheValueBytes, stateValueBytes } = this.costs;
    const ofPosition = this.work.reduce((sum, { context }) => sum + (context?.positionBytes ?? 0), 0);
    const { layers, hiddenSize } = this.model.shape;
    const states = layers.reduce((sum, { mixer }) => sum + recurrentStateFloats(mixer, hiddenSize), 0);
    return (positions * ofPosition * cacheValueBytes) / FLOAT_BYTES + states * stateValueBytes;
  }

  /** One layer for one new position of each of `rows` sequences, which keep `positions` each, ms. */
  layerMs(layer: number, rows: number, positions: number): number {
    const { layerOverheadMs, rowOverheadMs } = this.costs;
    const work = this.work[layer];
    if (work === undefined) return 0;
    const perRowMs = (rows * rowOverheadMs) / this.layers;
    return layerOverheadMs + perRowMs + this.denseMs(work, rows, positions) + this.expertsMs(rows);
  }

  /** The LM head behind all layers, ms. */
  headMs(rows: number): number {
    return this.matrixMs(vocabularyWeights(this.model.shape), rows);
  }

  /** tau_comp: all layers and the LM head, ms. */
  computeMs(rows: number, positions: number): number {
    let sum = this.headMs(rows);
    for (let layer = 0; layer < this.layers; layer += 1) sum += this.layerMs(layer, rows, positions);
    return sum;
  }

  /** Rate of all cards together, of one card's rate. */
  rate(
    of: 'weightBytesPerS' | 'flopPerS' | 'decompressBytesPerS' | 'expertLinkBytesPerS' | 'cacheLinkBytesPerS',
  ): number {
    return this.gpu[of] * this.model.gpus;
  }

  private denseMs({ weights, stateBytes, rowFlop, context }: LayerArithmetic, rows: number, positions: number): number {
    const { weightBytes, cacheValueBytes, stateValueBytes, attentionShare } = this.costs;
    const cacheBytes = (rows * positions * (context?.positionBytes ?? 0) * cacheValueBytes) / FLOAT_BYTES;
    const readBytes = weights * weightBytes + (rows * stateBytes * stateValueBytes) / FLOAT_BYTES;
    const readMs = ((readBytes + cacheBytes / attentionShare) / this.rate('weightBytesPerS')) * MS_PER_S;
    const flop = rows * (rowFlop + positions * (context?.rowPositionFlop ?? 0));
    return Math.max(readMs, (flop / this.rate('flopPerS')) * MS_PER_S);
  }

  /** Those experts are read that some row needs: rows choose k of the L experts of a layer, each as likely. */
  private expertsMs(rows: number): number {
    const { expertsPerToken } = this.model.shape;
    let untouched = 1;
    for (let row = 0; row < rows; row += 1) untouched *= 1 - expertsPerToken / this.experts;
    const readBytes = (1 - untouched) * this.layerExpertBytes;
    const flop = rows * expertsPerToken * PRODUCT_FLOP * expertWeights(this.model.shape);
    return Math.max(readBytes / this.rate('weightBytesPerS'), flop / this.rate('flopPerS')) * MS_PER_S;
  }

  private matrixMs(weights: number, rows: number): number {
    const readMs = ((weights * this.costs.weightBytes) / this.rate('weightBytesPerS')) * MS_PER_S;
    return Math.max(readMs, ((rows * PRODUCT_FLOP * weights) / this.rate('flopPerS')) * MS_PER_S);
  }
}
