import { setMaxListeners } from 'node:events';
import type { RunExperts } from '../../engine/generation/run-layers.js';
import { headLayerOf } from '../../engine/loading/head-layer.js';
import { allFinite } from '../../native/index.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { Logger } from '../../shared/base/log/logger.js';
import { activatedExperts } from '../../shared/decisions/placement/activated-experts.js';
import { expertRowSize, type ModelShape } from '../../shared/model/model-shape.js';
import type { NodeSettings } from '../../shared/settings/node-settings.js';
import type { NodeStatus, Placement } from '../../shared/wire/messages.js';
import { passOfSequence } from '../../shared/wire/pass-rows.js';
import { cachingWorkersOf } from '../cluster/cached-layers.js';
import type { PlacedWorkers, WorkerOrders } from '../cluster/placed-workers.js';
import { ExpertDispatcher } from '../pass/expert-dispatcher.js';
import { bundleWork, type ExpertWork, type LayerStep, takeOutput } from '../pass/expert-work.js';
import { type AnnouncedLayer, planLayer } from '../pass/plan-layer.js';
import { settleAll } from '../pass/run-layer.js';
import { layerGivesNoNumbers } from '../pass/second-opinion.js';

/** An answer can go on without drafts, so the head waits for no worker that is not there. */
const NO_GRACE_MS = 0;

/** The router of the head has just chosen: nobody could have announced its experts. */
const NOTHING_ANNOUNCED: AnnouncedLayer = { holders: null, superseded: [], isWholeLayer: false };

/** A worker that may have the experts of the head. */
interface HeadWorker extends WorkerOrders {
  readonly status: Pick<NodeStatus, 'servesDraftHead'> | null;
}

/** The roster as the head sees it. */
export interface HeadRoster extends PlacedWorkers {
  worker(id: string): HeadWorker | null;
}

export interface HeadExpertsOptions {
  readonly roster: HeadRoster;
  /** The shape of the model, of which the head has the same sizes. */
  readonly shape: ModelShape;
  readonly spread: NodeSettings['placement']['spread'];
  /** Most rows of one expert in one message. */
  readonly miniBatchRows: number;
  /** A new number for the rows of one drafter: workers tell them from those of answers. */
  readonly nextSequence: () => number;
  readonly log: Logger;
}

/** The experts that the head of one answer runs; `end` when it runs no more. */
export interface HeadRuns {
  readonly run: RunExperts;
  end(): void;
}

/**
 * Has the workers run the experts of the model's own head. They are those of one more expert layer (headLayerOf), under the same placement, by the same messages and
 * with the same care for workers that fail. They decide about drafts alone, so nothing is verified, observed or counted as a layer of a pass.
 */
export class HeadExperts {
  private readonly dispatcher: ExpertDispatcher;
  private readonly workers: PlacedWorkers;
  /** The log knows that nobody has the experts. */
  private hasTold = false;

  constructor(private readonly options: HeadExpertsOptions) {
    this.workers = servingWorkers(options.roster);
    this.dispatcher = new ExpertDispatcher(this.workers, NO_GRACE_MS, options.log);
  }

  /** A worker of the placement has the experts of the head. */
  get isServed(): boolean {
    const { placement } = this.options.roster;
    if (placement === null) return false;
    const isServed = placement.workers.some(({ id }) => this.workers.worker(id) !== null);
    if (isServed) this.hasTold = false;
    else this.tellUnserved(placement);
    return isServed;
  }

  /** Workers that have not told their status may have the experts. */
  private tellUnserved({ workers }: Placement): void {
    const { roster, log } = this.options;
    if (this.hasTold || workers.some(({ id }) => (roster.worker(id)?.status ?? null) === null)) return;
    this.hasTold = true;
    log.warn(
      "no drafts of the model's own head: no worker runs its experts (each needs the whole pack, and a release that does so)",
    );
  }

  /** Runs of one drafter, until the signal aborts: then they reject with CANCELLED. */
  begin(signal: AbortSignal): HeadRuns {
    // Each message listens while it is under way.
    setMaxListeners(0, signal);
    const { shape, nextSequence, roster } = this.options;
    const sequence = nextSequence();
    // Drafts are written over, and run at the same positions again. Workers want positions that rise, so all rows are counted.
    let position = 0;
    return {
      run: async (_layer, choice, { hidden, outputs }) => {
        const rows = hidden.byteLength / (expertRowSize(shape) * Float32Array.BYTES_PER_ELEMENT);
        const layer = headLayerOf(shape);
        if (!allFinite(hidden)) throw layerGivesNoNumbers(layer);
        const step = { ...passOfSequence(sequence, position, rows), layer, hidden, outputs };
        position += rows;
        await this.runStep(step, choice.experts, rows, signal);
        return choice.weights;
      },
      end: () => roster.endSequence(sequence),
    };
  }

  private async runStep(step: LayerStep, experts: Int32Array, rows: number, signal: AbortSignal): Promise<void> {
    const { shape, roster, miniBatchRows } = this.options;
    const { placement } = roster;
    if (placement === null) throw new OdmoeError('NO_WORKERS', 'no worker runs the experts of the draft head');
    const batchRows = rows <= miniBatchRows ? Infinity : miniBatchRows;
    const activated = activatedExperts(experts, shape.expertsPerToken, []);
    const { work } = planLayer(
      placement,
      step.layer,
      NOTHING_ANNOUNCED,
      activated,
      this.planOptions(placement, step, rows, batchRows),
    );
    const run = {
      step,
      signal,
      take: ({ work: done, result }: Parameters<Parameters<ExpertDispatcher['run']>[0]['take']>[0]) =>
        takeOutput(step, done, result.output, shape),
    };
    const inTurn = async (workerId: string, messages: readonly ExpertWork[][]): Promise<void> => {
      for (const message of messages) await this.dispatcher.run(run, workerId, message);
    };
    await settleAll([...bundleWork(work, batchRows)].map(([workerId, messages]) => inTurn(workerId, messages)));
  }

  private planOptions(
    placement: Placement,
    { layer }: LayerStep,
    rows: number,
    batchRows: number,
  ): Parameters<typeof planLayer>[4] {
    const { spread } = this.options;
    const isAlone = rows === 1;
    const cachingWorkers = spread === 'all' || !isAlone ? cachingWorkersOf(this.workers, placement, layer) : null;
    return { spread, isAlone, batchRows, ...(cachingWorkers === null ? {} : { cachingWorkers }) };
  }
}

/** The roster without the workers that cannot run the head's experts: work that is assigned to them goes to the others. */
function servingWorkers(roster: HeadRoster): PlacedWorkers {
  return {
    get placement() {
      return roster.placement;
    },
    worker: (id) => {
      const worker = roster.worker(id);
      return worker?.status?.servesDraftHead === true ? worker : null;
    },
    endSequence: (sequence) => roster.endSequence(sequence),
    distrust: (worker, why) => roster.distrust(worker, why),
    outstanding: () => roster.outstanding(),
    waitForPlacement: (graceMs, signal) => roster.waitForPlacement(graceMs, signal),
    waitForChange: (graceMs, signal) => roster.waitForChange(graceMs, signal),
  };
}
