import type { RouterChoice } from '../../native/index.js';
import type { Placement, Predict } from '../../shared/wire/messages.js';
import { keepersOf } from '../cluster/cached-layers.js';
import { activatedExperts, type ActivatedRow } from './activated-experts.js';
import { splitLoadingRows } from './expert-batches.js';
import { SendQueues } from './send-queues.js';
import { planLayer, type LayerPlan } from './layer-plan.js';
import type { LayerStep } from './layer-step.js';
import { membersOf, type PassContext } from './pass-context.js';
import { isPredicted, type PassEngine } from './pass-engine.js';
import type { PredictionOutcome, RoutedExpert } from './pass-observer.js';
import { announcedByPrediction } from './announced-by-prediction.js';
import type { AnnouncedLayer } from './announcements.js';
import { decodePosition } from './announced-passes.js';

const FIRST_LAYER = 0;

/** A layer whose router has chosen. */
export interface DecidedLayer extends LayerStep {
  activated: ReadonlyMap<number, readonly ActivatedRow[]>;
  /** The prediction of each member; null: none has come in time. */
  predictions: readonly (Predict | null)[];
}

/** Decides which workers run the experts of a pass's layers, and has them run. */
export class LayerRunner {
  constructor(
    private readonly engine: PassEngine,
    private readonly context: PassContext,
  ) {}

  /** Takes the router's choice and compares it with the predictions, sequence by sequence. */
  decide(step: LayerStep, choice: RouterChoice): DecidedLayer {
    const { expertsPerToken } = this.engine.shape;
    const { members, isAlone } = this.context;
    const activated = activatedExperts(choice.experts, expertsPerToken);
    let row = 0;
    const predictions = members.map((rows) => {
      const [first, end] = [row + rows.decodeFrom, row + rows.tokenIds.length];
      row = end;
      const position = decodePosition(rows);
      if (position === null) return null;
      const own = isAlone
        ? activated.keys()
        : new Set(choice.experts.subarray(first * expertsPerToken, end * expertsPerToken));
      return rows.member.predictions.decide(position, step.layer, [...own]);
    });
    return { ...step, activated, predictions };
  }

  /** Resolves when all outputs are there. If there is a placement, the first messages leave before this returns its promise. */
  async run(step: DecidedLayer): Promise<void> {
    const { engine, context } = this;
    const placement = engine.roster.placement ?? (await engine.dispatcher.placement(context.signal));
    const rows = context.owners.length;
    const batchRows = context.isAlone || rows <= engine.miniBatchRows ? Infinity : engine.miniBatchRows;
    const told = this.settleTold(placement, step);
    const { spread } = engine;
    const isShared = spread === 'all' || !context.isAlone;
    const keepers = isShared ? keepersOf(engine.roster, placement, step.layer) : null;
    const plan = planLayer(placement, step.layer, told, step.activated, {
      spread,
      isAlone: context.isAlone,
      batchRows,
      ...(keepers === null ? {} : { keepers }),
    });
    context.observed?.routed(step.layer, this.routed(step, plan, told));
    const isPrompts = context.members.some(({ decodeFrom }) => decodeFrom > 0);
    const stepByStep = isPrompts && !engine.prefillOverlap;
    if (batchRows < Infinity && !stepByStep) this.tellBatches(placement, step, plan, told);
    const lanes = new SendQueues(engine, context, step, { foreseen: plan.foreseen, batchRows });
    const { loading, rest } = stepByStep ? splitLoadingRows(plan.batches) : { loading: plan.batches, rest: [] };
    const running = lanes.run(loading);
    for (const [worker, experts] of plan.releases)
      engine.roster.worker(worker)?.sendRelease({
        epoch: placement.epoch,
        pass: step.pass,
        rows: step.rows,
        layer: step.layer,
        experts,
      });
    this.tellFirstLayerAhead(step.layer);
    await running;
    if (rest.length > 0) await lanes.run(rest);
    lanes.end();
    context.observed?.answered(step.layer);
  }

  private settleTold(placement: Placement, { layer, predictions }: DecidedLayer): AnnouncedLayer {
    const { told, members, firstLayers } = this.context;
    const byOthers: (ReadonlyMap<number, string> | null)[] = predictions.map((prediction) =>
      announcedByPrediction(placement, prediction),
    );
    if (layer === FIRST_LAYER)
      for (const rows of members) {
        const position = decodePosition(rows);
        const ahead = position === null ? null : (firstLayers(rows.member)?.take(placement, position) ?? null);
        if (ahead !== null && ahead.size > 0) byOthers.push(ahead);
      }
    return told.settle(placement, layer, byOthers);
  }

  /** Used where rows go out in several messages: announces to each worker at once all experts that it will be asked for. */
  private tellBatches(
    placement: Placement,
    step: DecidedLayer,
    { batches }: LayerPlan,
    { holders }: AnnouncedLayer,
  ): void {
    const { pass, rows, layer } = step;
    const byWorker = new Map<string, Set<number>>();
    for (const { workerId, expert } of batches) {
      if (holders?.get(expert)?.includes(workerId) === true) continue;
      byWorker.set(workerId, (byWorker.get(workerId) ?? new Set()).add(expert));
    }
    for (const [worker, experts] of byWorker)
      this.engine.roster.worker(worker)?.sendAnnounce({
        epoch: placement.epoch,
        pass,
        rows,
        layer,
        experts: [...experts],
      });
  }

  private tellFirstLayerAhead(layer: number): void {
    const { members, isAlone, firstLayers } = this.context;
    const [only] = members;
    if (!isAlone || only === undefined) return;
    const { member, position } = only;
    firstLayers(member)?.afterRouter(position, member.predictions.upcoming(position, layer));
  }

  private routed(step: DecidedLayer, { batches, foreseen }: LayerPlan, told: AnnouncedLayer): RoutedExpert[] {
    const byExpert = new Map<number, Set<string>>();
    for (const { expert, workerId } of batches) byExpert.set(expert, (byExpert.get(expert) ?? new Set()).add(workerId));
    return [...byExpert].map(([expert, workers]) => {
      const rows = step.activated.get(expert) ?? [];
      const foretold = this.foretold(expert, rows, step, { foreseen, announced: told.isWholeLayer });
      return { expert, rows: rows.length, foretold, workerIds: [...workers] };
    });
  }

  private foretold(
    expert: number,
    rows: readonly ActivatedRow[],
    { predictions }: DecidedLayer,
    { foreseen, announced }: { foreseen: ReadonlySet<number>; announced: boolean },
  ): PredictionOutcome {
    if (predictions.some((prediction) => prediction?.experts.includes(expert) === true)) return 'predicted';
    if (foreseen.has(expert)) return announced ? 'announced' : 'predicted';
    const answering = membersOf(this.context.owners, rows, ({ isAnswer }) => isAnswer);
    return [...answering].some((member) => isPredicted(this.engine, member)) ? 'missed' : 'unpredicted';
  }
}
