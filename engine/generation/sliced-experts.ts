import {
  FROM_STORAGE,
  PLAIN_LOADER,
  type Device,
  type ExpertSlots,
  type LoadRequest,
  type Pass,
  type ResidentWeights,
  type RouterChoice,
} from '../../native/index.js';
import { activatedExperts } from '../../shared/decisions/placement/activated-experts.js';
import { planReadings, readsLowerSlices } from '../../shared/decisions/slices/plan-readings.js';
import {
  decideRows,
  SequenceDecisions,
  type DecidedRows,
  type DecisionRules,
} from '../../shared/decisions/slices/sequence-decisions.js';
import { assertInvariant, requirePresent } from '../../shared/base/errors/assert-invariant.js';
import type { BudgetReport } from '../../shared/decisions/slices/miss-budget.js';
import { perPart, sumOfParts } from '../../shared/model/expert-parts.js';
import { expertRowSize, type ModelShape } from '../../shared/model/model-shape.js';
import { partSizes, storedPartBytes } from '../../shared/model/part-sizes.js';
import type { ExpertSource } from '../../shared/model/tensor-source.js';
import type { LoadProgress } from '../loading/load-weights.js';
import { decisionRules, type RuledSlices } from '../loading/open-for-quality.js';
import type { PassRange, SequenceExperts } from './local-runner.js';
import { executeRows, runLayers, type LayerBuffers } from './run-layers.js';

/** A load of upper slices alone. */
const UPPER_ALONE: LoadRequest = {
  ...FROM_STORAGE,
  parts: { ...FROM_STORAGE.parts, signMantissa: { from: 'notWanted', entry: -1 } },
};

type OnRouter = (layer: number, choice: RouterChoice) => void;

/** Decides the executions of a layer. */
type Decide = (layer: number, choice: RouterChoice) => DecidedRows;

/**
 * All experts of a model as slices, in slots of one device: slot = expert layer * experts + expert. Lower slices are there only if the rule reads
 * them. Each execution reads what a worker of a cluster would read for it.
 */
export class SlicedExperts {
  private constructor(
    private readonly slots: ExpertSlots,
    private readonly shape: ModelShape,
    private readonly sliced: RuledSlices,
    /** Memory of the experts' matrices. */
    readonly weights: ResidentWeights['kinds'][number],
  ) {}

  /** `maxRows`: most rows of a pass. @throws DEVICE_OUT_OF_MEMORY, PACK_CORRUPT, STORAGE_FAILED */
  static async load(
    device: Device,
    shape: ModelShape,
    sliced: RuledSlices,
    maxRows: number,
    onProgress: LoadProgress | null,
  ): Promise<SlicedExperts> {
    const { slices, rule } = sliced;
    const sources = Array.from({ length: shape.expertLayers }, (_layer, layer) =>
      Array.from({ length: shape.experts }, (_expert, expert) => slices.expert(layer, expert)),
    ).flat();
    const form = { hiddenSize: expertRowSize(shape), glu: shape.expert, format: slices.split };
    const loader = { ...PLAIN_LOADER, ...partSizes(sources) };
    const slots = device.createExpertSlots(form, sources.length, maxRows, loader);
    try {
      const request = readsLowerSlices(rule) ? FROM_STORAGE : UPPER_ALONE;
      const totalBytes = sources.reduce((sum, source) => sum + bytesWanted(source, request), 0);
      let doneBytes = 0;
      for (const [slot, source] of sources.entries()) {
        if (readsLowerSlices(rule)) slots.takeLower(slot);
        await slots.load(slot, slots.register(source), request);
        doneBytes += bytesWanted(source, request);
        onProgress?.(doneBytes, totalBytes);
      }
      const weights = { format: slices.split, matrices: 3 * sources.length, bytes: totalBytes };
      return new SlicedExperts(slots, shape, sliced, weights);
    } catch (thrown) {
      slots.dispose();
      throw thrown;
    }
  }

  /** The experts as one sequence sees them. */
  forSequence(): SequenceExperts {
    const rules = decisionRules(this.sliced, this.shape);
    if (rules !== null) return new LogicallyCachedExperts(this, rules);
    return {
      needsAllScores: false,
      promptBegins: () => undefined,
      forward: async (pass, { count }, onRouter) => this.forward(pass, count, onRouter),
    };
  }

  /** Runs all layers of a pass that has begun, as Pass.forward does with resident experts. `decide`: left out where the router's choice stands. */
  async forward(
    pass: Pass,
    rows: number,
    onRouter: OnRouter | null,
    decide: Decide = this.decideByWeights,
  ): Promise<void> {
    await runLayers(pass, this.shape, rows, async (layer, choice, buffers) => {
      onRouter?.(layer, choice);
      const decided = decide(layer, choice);
      await this.runExperts(layer, decided, buffers);
      return decided.weights;
    });
  }

  dispose(): void {
    this.slots.dispose();
  }

  private readonly decideByWeights: Decide = (_layer, { experts, weights }) => {
    const { rule } = this.sliced;
    assertInvariant(rule.kind !== 'cached', 'a logical cache decides for the sequence that has it.');
    return { experts, weights, readings: planReadings(rule, weights, this.shape.expertsPerToken) };
  };

  private async runExperts(layer: number, { experts, readings }: DecidedRows, buffers: LayerBuffers): Promise<void> {
    const { expertsPerToken } = this.shape;
    for (const [expert, rows] of activatedExperts(experts, expertsPerToken, readings)) {
      // Rows of one reading that follow one another take the least time.
      const both = rows.filter(({ reading }) => reading === 'both');
      const ordered = [...both, ...rows.filter(({ reading }) => reading !== 'both')];
      await executeRows(this.slots, layer * this.shape.experts + expert, ordered, buffers, this.shape);
    }
  }
}

/** The experts of a sequence whose logical cache decides on them. */
class LogicallyCachedExperts implements SequenceExperts {
  readonly needsAllScores = true;
  private decisions: SequenceDecisions | null = null;

  constructor(
    private readonly experts: SlicedExperts,
    private readonly rules: DecisionRules,
  ) {}

  get report(): BudgetReport | null {
    return this.decisions?.report ?? null;
  }

  promptBegins(tokens: number): void {
    this.decisions = SequenceDecisions.begin(this.rules, tokens);
  }

  async forward(pass: Pass, { position, count }: PassRange, onRouter: OnRouter | null): Promise<void> {
    const decisions = requirePresent(this.decisions, 'a prompt begins before its first pass.');
    const owners = Array.from({ length: count }, (_, row) => ({ decisions, position: position + row }));
    await this.experts.forward(pass, count, onRouter, (layer, choice) => decideRows(this.rules, layer, owners, choice));
  }
}

function bytesWanted(source: ExpertSource, { parts }: LoadRequest): number {
  const bytes = storedPartBytes(source);
  return sumOfParts(perPart((part) => (parts[part].from === 'notWanted' ? 0 : bytes[part])));
}
