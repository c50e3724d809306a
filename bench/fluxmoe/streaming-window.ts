/**
 * The two-layer window through which experts stream (FluxMoE sections 3.1 and 4.1, Algorithm 1). Pure: it says which loads and computations
 * are allowed; its caller runs them and reports. Layers are numbered from 0; the paper's are numbered from 1.
 *
 * - Each tensor type has 2L window blocks of device memory. An expert's tensor is in one of them at most, and a window block holds one tensor at
 * most.
 * - WAR: the loads of a layer wait until the layer with the same window blocks has been computed: the second before it, also across passes.
 * - RAW: a layer is computed when all its tensors of both types are loaded.
 * - Extension: if the experts of a layer are predicted, only those are loaded. Other experts that the router chooses are loaded later.
 */
import { assertInvariant, requirePresent } from '../../shared/base/errors/assert-invariant.js';

/** The fused gate and up matrix of an expert, and its down matrix. */
export const WINDOW_TENSORS = ['gateUp', 'down'] as const;
export type WindowTensor = (typeof WINDOW_TENSORS)[number];

/** Layers that the window holds. */
export const WINDOW_LAYERS = 2;

/** Loads that may begin now. */
export interface WindowLoad {
  /** Number of the layer across passes: pass * layers + layer. */
  step: number;
  layer: number;
  experts: readonly number[];
  /** Window block of each expert, the same for both tensor types. */
  blocks: readonly number[];
}

interface OpenStep {
  readonly loads: WindowLoad[];
  /** Number of loads of this step that have not ended, by tensor type. */
  readonly pending: Record<WindowTensor, number>;
}

/** Layer (from 1) that must be computed before layer `layer` (from 1) of `layers` may be loaded: Algorithm 1, line 4. */
export function warTarget(layer: number, layers: number): number {
  return ((layer - 3 + layers) % layers) + 1;
}

/**
 * The experts of a layer to load: the union of the predictions for a pass's rows, if it is smaller than the layer. Without predictions (null), or
 * if the union has all experts: the whole layer.
 */
export function windowExperts(experts: number, predicted: readonly (readonly number[])[] | null): number[] {
  const union = new Set(predicted?.flat() ?? []);
  if (predicted === null || union.size >= experts) return Array.from({ length: experts }, (_, expert) => expert);
  return [...union].sort((left, right) => left - right);
}

export class StreamingWindow {
  private readonly free: number[];
  private readonly open = new Map<number, OpenStep>();
  private nextLoad = 0;
  private nextCompute = 0;

  /** `layers`: at least two. `experts`: L, the number in each layer. */
  constructor(
    private readonly layers: number,
    private readonly experts: number,
  ) {
    assertInvariant(layers >= WINDOW_LAYERS, () => `a window of two layers has ${layers} layers.`);
    this.free = Array.from({ length: WINDOW_LAYERS * experts }, (_, index) => WINDOW_LAYERS * experts - 1 - index);
  }

  /** Free window blocks of each tensor type. */
  get freeBlocks(): number {
    return this.free.length;
  }

  /** The layer that is loaded next. */
  get nextLayer(): number {
    return this.nextLoad % this.layers;
  }

  /** True: the next layer may be loaded, because its WAR target has been computed. The first two layers need not wait (Algorithm 1, line 3). */
  get mayLoad(): boolean {
    return this.nextLoad < this.nextCompute + WINDOW_LAYERS;
  }

  /** Begins the loads of these experts of the next layer, in both tensor types. */
  load(experts: readonly number[]): WindowLoad {
    assertInvariant(this.mayLoad, 'experts are loaded when the window blocks that they take are not read any more.');
    const step = this.nextLoad++;
    const load = this.bind(step, experts);
    this.open.set(step, { loads: [load], pending: { gateUp: 1, down: 1 } });
    return load;
  }

  /** Loads experts of a step that are also needed, before the step is computed. Null: none is missing. */
  complete(step: number, experts: readonly number[]): WindowLoad | null {
    const open = this.stepAt(step);
    const held = new Set(open.loads.flatMap((load) => load.experts));
    const missing = experts.filter((expert) => !held.has(expert));
    if (missing.length === 0) return null;
    const load = this.bind(step, missing);
    open.loads.push(load);
    for (const type of WINDOW_TENSORS) open.pending[type] += 1;
    return load;
  }

  /** Records that all tensors of this type of one load have arrived. */
  loaded(step: number, type: WindowTensor): void {
    const { pending } = this.stepAt(step);
    assertInvariant(pending[type] > 0, () => `loads of step ${step} end once.`);
    pending[type] -= 1;
  }

  /** RAW: true if all loads of the step, of both types, have arrived. */
  isLoaded(step: number): boolean {
    const open = this.open.get(step);
    return open !== undefined && WINDOW_TENSORS.every((type) => open.pending[type] === 0);
  }

  /** Records that the step has been computed: its window blocks are free for the layer after the next. Steps end in order. */
  computed(step: number): void {
    assertInvariant(step === this.nextCompute && this.isLoaded(step), () => `step ${step} is computed in its turn.`);
    const { loads } = this.stepAt(step);
    for (const { blocks } of loads) this.free.push(...blocks);
    this.open.delete(step);
    this.nextCompute += 1;
  }

  private bind(step: number, experts: readonly number[]): WindowLoad {
    assertInvariant(new Set(experts).size === experts.length, () => `step ${step} loads each expert once.`);
    const blocks = experts.map((expert) => {
      assertInvariant(expert >= 0 && expert < this.experts, () => `expert ${expert} is one of ${this.experts}.`);
      return requirePresent(
        this.free.pop(),
        () => `the window of ${WINDOW_LAYERS} layers has a window block for each expert.`,
      );
    });
    return { step, layer: step % this.layers, experts, blocks };
  }

  private stepAt(step: number): OpenStep {
    return requirePresent(this.open.get(step), () => `step ${step} is in the window.`);
  }
}
