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
import { planReadings, readsLowerSlices, type PrecisionRule } from '../../shared/decisions/slices/plan-readings.js';
import { partOfPlane } from '../../shared/model/expert-parts.js';
import type { ModelShape } from '../../shared/model/model-shape.js';
import { partSizes } from '../../shared/model/part-sizes.js';
import type { ExpertSource } from '../../shared/model/tensor-source.js';
import type { LoadProgress } from '../loading/load-weights.js';
import type { RuledSlices } from '../loading/open-for-quality.js';
import { executeRows, runLayers, type LayerBuffers } from './run-layers.js';

/** A load of upper slices alone. */
const UPPER_ALONE: LoadRequest = {
  ...FROM_STORAGE,
  parts: { ...FROM_STORAGE.parts, signMantissa: { from: 'notWanted', entry: -1 } },
};

type OnRouter = (layer: number, choice: RouterChoice) => void;

/**
 * All experts of a model as slices, in slots of one device: slot = expert layer * experts + expert. Lower slices are there only if the rule reads
 * them. Each execution reads what a worker of a cluster would read for it.
 */
export class SlicedExperts {
  private constructor(
    private readonly slots: ExpertSlots,
    private readonly shape: ModelShape,
    private readonly rule: PrecisionRule,
    /** Memory of the experts' matrices. */
    readonly weights: ResidentWeights['kinds'][number],
  ) {}

  /** `maxRows`: most rows of a pass. @throws DEVICE_OUT_OF_MEMORY, PACK_CORRUPT, STORAGE_FAILED */
  static async load(
    device: Device,
    shape: ModelShape,
    { slices, rule }: RuledSlices,
    maxRows: number,
    onProgress: LoadProgress | null,
  ): Promise<SlicedExperts> {
    const sources = Array.from({ length: shape.expertLayers }, (_layer, layer) =>
      Array.from({ length: shape.experts }, (_expert, expert) => slices.expert(layer, expert)),
    ).flat();
    const { hiddenSize, expert: glu } = shape;
    const loader = { ...PLAIN_LOADER, ...partSizes(sources) };
    const slots = device.createExpertSlots({ hiddenSize, glu, format: slices.split }, sources.length, maxRows, loader);
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
      return new SlicedExperts(slots, shape, rule, weights);
    } catch (thrown) {
      slots.dispose();
      throw thrown;
    }
  }

  /** Runs all layers of a pass that has begun, as Pass.forward does with resident experts. */
  async forward(pass: Pass, rows: number, onRouter: OnRouter | null): Promise<void> {
    await runLayers(pass, this.shape, rows, async (layer, choice, buffers) => {
      onRouter?.(layer, choice);
      await this.runExperts(layer, choice, buffers);
    });
  }

  dispose(): void {
    this.slots.dispose();
  }

  private async runExperts(layer: number, { experts, weights }: RouterChoice, buffers: LayerBuffers): Promise<void> {
    const { expertsPerToken } = this.shape;
    const readings = planReadings(this.rule, weights, expertsPerToken);
    for (const [expert, rows] of activatedExperts(experts, expertsPerToken, readings)) {
      // Rows of one reading that follow one another take the least time.
      const both = rows.filter(({ reading }) => reading === 'both');
      const ordered = [...both, ...rows.filter(({ reading }) => reading !== 'both')];
      await executeRows(this.slots, layer * this.shape.experts + expert, ordered, buffers, this.shape);
    }
  }
}

function bytesWanted({ gate, up, down }: ExpertSource, { parts }: LoadRequest): number {
  return [gate, up, down]
    .flatMap(({ chunks }) => chunks)
    .filter(({ plane }) => parts[partOfPlane(plane)].from !== 'notWanted')
    .reduce((sum, { storedBytes }) => sum + storedBytes, 0);
}
