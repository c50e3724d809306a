import { type Model, type Pass, type Sequence, wrapperOf } from '../../native/index.js';
import type { DenseRole } from '../../shared/model/dense-roles.js';
import type { ExpertSource, SliceReading, TensorSource, WeightFormat } from '../../shared/model/tensor-source.js';
import { HeldMemory, type PacedMemory } from './paced-memory.js';
import { PacedPass } from './paced-pass.js';
import { PacedSequence } from './paced-sequence.js';
import { PacedCache, PacedSequenceMemory } from './paced-sequence-memory.js';
import type { PacedParts } from './paced-slots.js';

const OUTER_ROLES: ReadonlySet<DenseRole> = new Set([
  ...(['embedding', 'finalNorm', 'finalNormBias', 'lmHead', 'lmHeadBias'] as const),
]);

/** A model on a paced device. Loading it takes no device time, and the memory of the profiled model. */
export class PacedModel extends wrapperOf<Model>() {
  private readonly held: HeldMemory;
  private readonly sequenceMemory: PacedSequenceMemory;
  /** Layers of which some weight has been loaded; 'outer': weights outside of all layers. */
  private readonly begun = new Set<number | 'outer'>();

  constructor(
    private readonly handle: Model,
    private readonly parts: PacedParts,
    memory: PacedMemory | null,
  ) {
    super(handle);
    this.sequenceMemory = new PacedSequenceMemory(memory);
    this.held = new HeldMemory(memory);
  }

  override async loadDense(role: DenseRole, layer: number, source: TensorSource, format: WeightFormat): Promise<void> {
    const place = OUTER_ROLES.has(role) ? 'outer' : layer;
    if (!this.begun.has(place)) {
      this.held.hold(place === 'outer' ? 'outerBytes' : 'denseLayerBytes', 1);
      this.begun.add(place);
    }
    await this.parts.runtime.outside(() => this.handle.loadDense(role, layer, source, format));
  }

  override async loadResidentExpert(
    layer: number,
    expert: number,
    source: ExpertSource,
    format: WeightFormat,
    reading?: SliceReading,
  ): Promise<void> {
    this.held.hold('expertBytes', 1);
    try {
      await this.parts.runtime.outside(() => this.handle.loadResidentExpert(layer, expert, source, format, reading));
    } catch (thrown) {
      this.held.letGo('expertBytes', 1);
      throw thrown;
    }
  }

  override createSequence(): Sequence {
    const cache = new PacedCache(this.sequenceMemory, this.shape.layers.length);
    return new PacedSequence(this.handle.createSequence(), this.shape, cache);
  }

  override get sequenceBytes(): number {
    return this.sequenceMemory.bytes ?? this.handle.sequenceBytes;
  }

  override createPass(maxRows: number, allScores = false): Pass {
    return new PacedPass(this.handle.createPass(maxRows, allScores), this.parts, this.shape.expertLayers);
  }

  override dispose(): void {
    this.handle.dispose();
    this.held.letGoAll();
    this.begun.clear();
  }
}
