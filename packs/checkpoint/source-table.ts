import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { DenseRole } from '../../shared/model/dense-roles.js';
import { expertLimits, type ModelShape } from '../../shared/model/model-shape.js';
import type { ExpertMatrix, ExpertSource, TensorSource } from '../../shared/model/tensor-source.js';
import type { TensorPlace } from '../model-config/model-family.js';

/** The tensors of an opened model by their tensor roles and places. */
export class SourceTable {
  private readonly denseTensors = new Map<string, TensorSource>();
  private readonly expertTensors = new Map<string, Partial<Record<ExpertMatrix, TensorSource>>>();
  private readonly expertBiases = new Map<string, Float32Array>();
  private readonly gluLimits: readonly (number | undefined)[];

  constructor(
    private readonly shape: ModelShape,
    private readonly tiedEmbeddings: boolean,
    private readonly directory: string,
  ) {
    this.gluLimits = expertLimits(shape);
  }

  add(place: TensorPlace, source: TensorSource): void {
    if (place.kind === 'dense') {
      this.denseTensors.set(`${place.role} ${place.layer}`, source);
      return;
    }
    const key = `${place.layer} ${place.expert}`;
    this.expertTensors.set(key, { ...this.expertTensors.get(key), [place.part]: source });
  }

  /** `biases`: the expert's bias vectors, one behind another. */
  addBiases(layer: number, expert: number, biases: Float32Array): void {
    this.expertBiases.set(`${layer} ${expert}`, biases);
  }

  dense(role: DenseRole, layer: number): TensorSource {
    const source = this.denseTensors.get(`${role} ${layer}`);
    if (source !== undefined) return source;
    const hint = role === 'lmHead' && this.tiedEmbeddings ? ' (its embeddings are tied)' : '';
    throw new OdmoeError(
      'INTERNAL',
      `${this.directory}: asked for ${role} of layer ${layer}, which the model lacks${hint}`,
    );
  }

  expert(layer: number, expert: number): ExpertSource {
    const { gate, up, down } = this.expertTensors.get(`${layer} ${expert}`) ?? {};
    if (gate === undefined || up === undefined || down === undefined) {
      throw new OdmoeError(
        'INTERNAL',
        `${this.directory}: asked for expert ${expert} of layer ${layer}; the model has ` +
          `${this.shape.expertLayers} layers of ${this.shape.experts} experts`,
      );
    }
    const biases = this.expertBiases.get(`${layer} ${expert}`) ?? null;
    return { gate, up, down, biases, gluLimit: this.gluLimits[layer] };
  }
}
