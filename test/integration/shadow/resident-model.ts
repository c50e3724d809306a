import { LocalSequence } from '../../../engine/generation/local-runner.js';
import { openDevice, type Device, type Model } from '../../../native/index.js';
import { loadDenseWeights, loadResidentExperts } from '../../../engine/loading/load-weights.js';
import { openModelSource } from '../../../packs/open-model-source.js';
import type { ModelShape } from '../../../shared/model/model-shape.js';
import type { WeightFormat } from '../../../shared/model/tensor-source.js';

/** A model in this process with all its experts, in one weight format. */
export class ResidentModel {
  private constructor(
    readonly device: Device,
    readonly model: Model,
  ) {}

  static async load(packDirectory: string, format: WeightFormat): Promise<ResidentModel> {
    const source = await openModelSource(packDirectory);
    const device = openDevice({ backend: 'cpu', instructionSet: 'auto', threads: 1, budgetBytes: 0 });
    const model = device.createModel(source.shape);
    await loadDenseWeights(model, source, format);
    await loadResidentExperts(model, source, format);
    return new ResidentModel(device, model);
  }

  get shape(): ModelShape {
    return this.model.shape;
  }

  /** Runs the prompt and then one token at a time. This is the simplest way to run the model, for comparison. */
  async start(promptIds: readonly number[]): Promise<SteppedSequence> {
    return SteppedSequence.start(this.model, promptIds);
  }

  dispose(): void {
    this.model.dispose();
    this.device.dispose();
  }
}

export class SteppedSequence {
  private readonly chosen = new Map<string, number[]>();
  readonly sequence: LocalSequence;
  /** The most likely next token. */
  next = 0;

  private constructor(model: Model) {
    this.sequence = new LocalSequence(model, model.shape, 64, (position, layer, experts) => {
      this.chosen.set(`${position}/${layer}`, [...experts]);
    });
  }

  static async start(model: Model, promptIds: readonly number[]): Promise<SteppedSequence> {
    const started = new SteppedSequence(model);
    started.next = likeliest(await started.sequence.prefill(promptIds));
    return started;
  }

  get position(): number {
    return this.sequence.cache.length;
  }

  async step(tokenId: number): Promise<void> {
    this.next = likeliest(await this.sequence.decode(tokenId));
  }

  expertsAt(position: number, layer: number): number[] {
    return this.chosen.get(`${position}/${layer}`) ?? [];
  }

  async end(): Promise<void> {
    await this.sequence.end();
  }
}

function likeliest(logits: Float32Array): number {
  return logits.reduce((best, logit, id) => (logit > (logits[best] ?? 0) ? id : best), 0);
}
