import type { Predict, Placement, PassRow, RowRange } from '../../shared/wire/messages.js';
import {
  type ExpertWork,
  type AssignedWork,
  splitLoadingRows,
  type LayerStep,
  bundleWork,
  takeOutput,
} from './expert-work.js';
import { activatedExperts, type ActivatedRow } from '../../shared/decisions/placement/activated-experts.js';
import {
  criticalField,
  expectedRule,
  planReadings,
  type PrecisionRule,
} from '../../shared/decisions/slices/plan-readings.js';
import { decideRows, type DecidedRows, type DecisionRules } from '../../shared/decisions/slices/sequence-decisions.js';
import { requirePresent } from '../../shared/base/errors/assert-invariant.js';
import { type AnnouncedLayer, planLayer, type LayerPlan } from './plan-layer.js';
import { cachingWorkersOf } from '../cluster/cached-layers.js';
import type { PlacedWorkers } from '../cluster/placed-workers.js';
import { type JointDealer, Announcements, announcedByPrediction, type AnnouncedPasses } from './announcements.js';
import {
  type MemberRows,
  decodePosition,
  type PassMember,
  membersOf,
  noteProvenance,
  type RowOwner,
} from './pass-member.js';
import type { ModelShape } from '../../shared/model/model-shape.js';
import type { StateRecorder } from '../../engine/recording/state-recorder.js';
import type { RouterChoice } from '../../native/index.js';
import type { NodeSettings } from '../../shared/settings/node-settings.js';
import type { Runtime } from '../../shared/base/runtime/runtime.js';
import type { ExpertDispatcher, ExpertOutcome, LayerRun } from './expert-dispatcher.js';
import type { ExpertUses } from '../cluster/expert-uses.js';
import type { LayerWaits, LayerRace } from './layer-waits.js';
import type { PassObserver, ObservedPass, RoutedOutcome, RoutedExpert } from './pass-observer.js';
import { FirstLayerAhead } from './own-predictions.js';
import type { TokenExperts } from './token-experts.js';
import type { TrainedPredictor } from './trained-ahead.js';

const FIRST_LAYER = 0;
/** Mini-batches that a worker has at a time: it computes on one while the next is on the wire. */
export const BATCHES_IN_FLIGHT_PER_WORKER = 2;

/** The parts of main that passes use. */
export interface PassEngine {
  readonly shape: ModelShape;
  readonly roster: PlacedWorkers;
  readonly dispatcher: ExpertDispatcher;
  readonly announcedPasses: AnnouncedPasses;
  readonly jointDealer: JointDealer;
  readonly miniBatchRows: number;
  /** Prompts' experts load while those of the layer before run. */
  readonly prefillOverlap: boolean;
  readonly prediction: NodeSettings['prediction'];
  /** Trained maps, which predict where shadow does not; null: main has none, or does not use them. */
  readonly trained: TrainedPredictor | null;
  /** Tables of experts by token; null: the model has none, or main does not use them. */
  readonly tokenExperts: TokenExperts | null;
  /** Records the states of answers; null: nothing is recorded. */
  readonly recorder: StateRecorder | null;
  /** The rule by which executions read sliced experts; null: experts are computed exactly. */
  readonly precision: PrecisionRule | null;
  /** The rules of the sequences' logical caches; null: they have none. */
  readonly decisions: DecisionRules | null;
  readonly spread: NodeSettings['placement']['spread'];
  /** Workers that have nothing left to do for a token load the next one's first layer. */
  readonly firstLayerAhead: boolean;
  /** Takes the durations of passes that have rows of answers alone, without their waits for loads. */
  readonly draftCosts: { passed(rows: number, layers: number, layersMs: number, passMs: number): void };
  readonly layerWaits: LayerWaits;
  /** Has a share of the executions run again by other workers; null: none. */
  readonly checks: { ran(step: LayerStep, outcome: ExpertOutcome): void } | null;
  /** Counts which experts rows of answers use; null: nobody asks. */
  readonly uses: ExpertUses | null;
  /** Null: passes are not observed. */
  readonly observer: PassObserver | null;
  readonly runtime: Pick<Runtime, 'nowMs'>;
}

/** True if something predicts the experts of the sequence's answer in this layer at present, or main knows them by its tokens. */
export function isPredicted(
  engine: Pick<PassEngine, 'prediction' | 'trained' | 'tokenExperts'>,
  { feed }: { feed: { readonly fed: boolean } },
  layer: number,
): boolean {
  return predictsItself(engine) || feed.fed || engine.tokenExperts?.knows(layer) === true;
}

/** True if main itself predicts experts. */
export function predictsItself({ prediction, trained }: Pick<PassEngine, 'prediction' | 'trained'>): boolean {
  const { source } = prediction;
  return source === 'random' || source === 'router-ahead' || trained !== null;
}

/** Waits for all promises, then throws the first failure: nothing is left running after the caller has got an error. */
export async function settleAll(promises: readonly Promise<void>[]): Promise<void> {
  const outcomes = await Promise.allSettled(promises);
  for (const outcome of outcomes) if (outcome.status === 'rejected') throw outcome.reason;
}

/** One running pass. */
export interface PassContext {
  readonly pass: PassRow;
  readonly rows: readonly RowRange[];
  readonly members: readonly MemberRows[];
  /** The owner of each row. */
  readonly owners: readonly RowOwner[];
  /** The pass has rows of one sequence's answer and nothing else, as is the case while there is no other request. */
  readonly isAlone: boolean;
  readonly announcements: Announcements;
  /** Returns null if nothing announces the sequence's first layers ahead. */
  readonly firstLayers: (member: PassMember) => FirstLayerAhead | null;
  readonly signal: AbortSignal;
  readonly observed: ObservedPass | null;
  /** Sum over the layers of the longest time that an expert of the layer waited for its load. */
  stallUs: number;
}

/** A layer whose router has chosen. */
export interface DecidedLayer extends LayerStep {
  activated: ReadonlyMap<number, readonly ActivatedRow[]>;
  /** Weights of the experts' outputs, rows x expertsPerToken by rank. */
  weights: Float32Array;
  /** The prediction of each member; null: none has come in time. */
  predictions: readonly (Predict | null)[];
}

/** Decides which workers run the experts of a pass's layers, and has them run. */
export class LayerRunner {
  constructor(
    private readonly engine: PassEngine,
    private readonly context: PassContext,
  ) {}

  /** Takes the router's choice, or decides on other experts by logical caches, and compares it with the predictions, sequence by sequence. */
  decide(step: LayerStep, choice: RouterChoice): DecidedLayer {
    const { expertsPerToken } = this.engine.shape;
    const { members, isAlone } = this.context;
    const { experts, weights, readings } = this.executions(step.layer, choice);
    this.engine.uses?.chosen(step.layer, experts, (row) => this.context.owners[row]?.isAnswer === true);
    const activated = activatedExperts(experts, expertsPerToken, readings);
    let row = 0;
    const predictions = members.map((rows) => {
      const [first, end] = [row + rows.decodeFrom, row + rows.tokenIds.length];
      row = end;
      const position = decodePosition(rows);
      if (position === null) return null;
      const own = isAlone
        ? activated.keys()
        : new Set(experts.subarray(first * expertsPerToken, end * expertsPerToken));
      return rows.member.predictions.decide(position, step.layer, [...own]);
    });
    return { ...step, activated, weights, predictions };
  }

  private executions(layer: number, choice: RouterChoice): DecidedRows {
    const { precision, decisions: rules, shape } = this.engine;
    if (precision === null) return { ...choice, readings: [] };
    if (rules === null) {
      return { ...choice, readings: planReadings(expectedRule(precision), choice.weights, shape.expertsPerToken) };
    }
    const owners = this.context.owners.map(({ member: { decisions }, position }) => ({
      decisions: requirePresent(decisions, 'each sequence has a logical cache where the quality asks for it.'),
      position,
    }));
    return decideRows(rules, layer, owners, choice);
  }

  /** Resolves when all outputs are there. If there is a placement, the first messages leave before this returns its promise. */
  async run(step: DecidedLayer): Promise<void> {
    const { engine, context } = this;
    const placement = engine.roster.placement ?? (await engine.dispatcher.placement(context.signal));
    const rows = context.owners.length;
    const batchRows = context.isAlone || rows <= engine.miniBatchRows ? Infinity : engine.miniBatchRows;
    const announced = this.settleAnnouncements(placement, step);
    const { spread } = engine;
    const isShared = spread === 'all' || !context.isAlone;
    const cachingWorkers = isShared ? cachingWorkersOf(engine.roster, placement, step.layer) : null;
    const plan = planLayer(placement, step.layer, announced, step.activated, {
      spread,
      isAlone: context.isAlone,
      batchRows,
      ...(cachingWorkers === null ? {} : { cachingWorkers }),
    });
    context.observed?.routed(step.layer, this.routed(step, plan, announced));
    const isPrompts = context.members.some(({ decodeFrom }) => decodeFrom > 0);
    const stepByStep = isPrompts && !engine.prefillOverlap;
    if (batchRows < Infinity && !stepByStep) this.announceWork(placement, step, plan, announced);
    const queues = new SendQueues(engine, context, step, { asAnnounced: plan.asAnnounced, batchRows });
    const { loading, rest } = stepByStep ? splitLoadingRows(plan.work) : { loading: plan.work, rest: [] };
    const running = queues.run(loading);
    for (const [worker, experts] of plan.releases)
      engine.roster.worker(worker)?.sendRelease({
        epoch: placement.epoch,
        pass: step.pass,
        rows: step.rows,
        layer: step.layer,
        experts,
      });
    this.announceFirstLayerAhead(step.layer);
    await running;
    if (rest.length > 0) await queues.run(rest);
    queues.end();
    context.observed?.answered(step.layer);
  }

  private settleAnnouncements(placement: Placement, { layer, predictions }: DecidedLayer): AnnouncedLayer {
    const { announcements, members, firstLayers } = this.context;
    const byOthers: (ReadonlyMap<number, string> | null)[] = predictions.map((prediction) =>
      announcedByPrediction(placement, prediction),
    );
    if (layer === FIRST_LAYER)
      for (const rows of members) {
        const position = decodePosition(rows);
        const ahead = position === null ? null : (firstLayers(rows.member)?.take(placement, position) ?? null);
        if (ahead !== null && ahead.size > 0) byOthers.push(ahead);
      }
    return announcements.settle(placement, layer, byOthers);
  }

  /** Used where rows go out in several messages: announces to each worker at once all experts that it will be asked for. */
  private announceWork(
    placement: Placement,
    step: DecidedLayer,
    { work }: LayerPlan,
    { holders }: AnnouncedLayer,
  ): void {
    const { pass, rows, layer } = step;
    const byWorker = new Map<string, Set<number>>();
    for (const { workerId, expert } of work) {
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
        ...criticalField(
          this.engine.precision,
          [...experts].filter((expert) => isReadWhole(step.activated.get(expert))),
        ),
      });
  }

  private announceFirstLayerAhead(layer: number): void {
    const { members, isAlone, firstLayers } = this.context;
    const [only] = members;
    // The place of the next pass is not known while drafts run.
    if (!isAlone || only?.tokenIds.length !== 1) return;
    const { member, position } = only;
    firstLayers(member)?.afterRouter(position, member.predictions.upcoming(position, layer));
  }

  private routed(step: DecidedLayer, { work, asAnnounced }: LayerPlan, announced: AnnouncedLayer): RoutedExpert[] {
    const byExpert = new Map<number, Set<string>>();
    for (const { expert, workerId } of work) byExpert.set(expert, (byExpert.get(expert) ?? new Set()).add(workerId));
    return [...byExpert].map(([expert, workers]) => {
      const rows = step.activated.get(expert) ?? [];
      const outcome = this.outcomeOf({ expert, rows, asAnnounced, isWholeLayer: announced.isWholeLayer }, step);
      return { expert, rows: rows.length, outcome, workerIds: [...workers] };
    });
  }

  private outcomeOf(
    routed: { expert: number; rows: readonly ActivatedRow[]; asAnnounced: ReadonlySet<number>; isWholeLayer: boolean },
    { predictions, layer }: DecidedLayer,
  ): RoutedOutcome {
    const { expert, rows, asAnnounced, isWholeLayer } = routed;
    if (predictions.some((prediction) => prediction?.experts.includes(expert) === true)) return 'predicted';
    if (asAnnounced.has(expert)) return isWholeLayer ? 'announced' : 'predicted';
    const answering = membersOf(this.context.owners, rows, ({ isAnswer }) => isAnswer);
    return [...answering].some((member) => isPredicted(this.engine, member, layer)) ? 'mispredicted' : 'unpredicted';
  }
}

function isReadWhole(rows: readonly ActivatedRow[] = []): boolean {
  return rows.some(({ reading }) => reading === 'both');
}

/** Has the workers run a layer's experts, takes their results, and counts the costs. */
export class SendQueues {
  /** Null for passes with rows of prompts: main waits for those in another way, and does not note for which worker. */
  private readonly race: LayerRace | null;
  private stallUs = 0;
  private readonly layerRun: LayerRun;

  constructor(
    private readonly engine: PassEngine,
    private readonly context: PassContext,
    private readonly step: LayerStep,
    private readonly plan: { asAnnounced: ReadonlySet<number>; batchRows: number },
  ) {
    const { layerWaits, runtime } = engine;
    const isAnswers = context.owners.every(({ isAnswer }) => isAnswer);
    this.race = isAnswers ? layerWaits.begin(step.layer, runtime.nowMs()) : null;
    this.layerRun = { step, signal: context.signal, take: this.take };
  }

  /** Sends the work: that of one worker in order, that of different workers side by side. The first messages leave in this call. */
  async run(assigned: readonly AssignedWork[]): Promise<void> {
    const byWorker = bundleWork(assigned, this.plan.batchRows);
    this.stallUs = 0;
    await settleAll(
      [...byWorker].flatMap(([workerId, messages]) => {
        const queue = messages.values();
        const inFlight = Math.min(BATCHES_IN_FLIGHT_PER_WORKER, messages.length);
        return Array.from({ length: inFlight }, () => this.sendOneByOne(workerId, queue));
      }),
    );
    this.context.stallUs += this.stallUs;
  }

  /** All results are there. */
  end(): void {
    if (this.race !== null) this.engine.layerWaits.end(this.race);
  }

  /** Sends a worker messages one after another, from a queue that several of these share. */
  private async sendOneByOne(workerId: string, queue: Iterator<readonly ExpertWork[]>): Promise<void> {
    const { dispatcher } = this.engine;
    const { observed } = this.context;
    for (let next = queue.next(); next.done !== true; next = queue.next()) {
      const work = next.value;
      observed?.sent(
        this.step.layer,
        workerId,
        work.map(({ expert }) => expert),
      );
      await dispatcher.run(this.layerRun, workerId, work);
    }
  }

  private readonly take = (outcome: ExpertOutcome): void => {
    const { race, engine, context, step } = this;
    const { work, workerId, result, resent } = outcome;
    this.stallUs = Math.max(this.stallUs, result.stallUs);
    if (race !== null) {
      race.take(workerId, result, engine.runtime.nowMs());
      race.disturbed ||= resent;
    }
    const wasReloaded = !this.plan.asAnnounced.has(work.expert) && !result.wasLoaded;
    if (resent || wasReloaded)
      for (const { counters } of membersOf(context.owners, work.rows, ({ isAnswer }) => resent || isAnswer))
        counters.reloads += 1;
    takeOutput(step, work, result.output, engine.shape);
    noteProvenance(context.owners, work.rows, workerId);
    engine.checks?.ran(step, outcome);
    context.observed?.received(step.layer, outcome);
  };
}
