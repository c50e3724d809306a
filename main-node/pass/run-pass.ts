import { type ReusablePass, ShortOperators } from './reusable-passes.js';
import { passOfRanges } from '../../shared/wire/pass-rows.js';
import type { Placement } from '../../shared/wire/messages.js';
import {
  type MemberRows,
  decodePosition,
  rangeOf,
  expectedBy,
  type PassMember,
  ownersOf,
  type RunPass,
} from './pass-member.js';
import { Announcements, announcedByPrediction } from './announcements.js';
import { OwnPredictions, FirstLayerAhead, RandomPrefetch, RouterAhead, takeBackOwnName } from './own-predictions.js';
import { RecordedAnswers } from './recorded-answers.js';
import { TrainedAhead } from './trained-ahead.js';
import { type Pass, allFinite } from '../../native/index.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { expertRowSize } from '../../shared/model/model-shape.js';
import { onAbort } from '../../shared/base/runtime/living.js';
import { type PassContext, isPredicted, type PassEngine, settleAll, LayerRunner } from './run-layer.js';
import { usesNearlyAllExperts } from '../../shared/decisions/placement/prefill-workers.js';
import { layerGivesNoNumbers } from './second-opinion.js';
import { setMaxListeners } from 'node:events';
import { OBSERVED_LOGITS_ROWS } from '../../engine/generation/prompt-logprobs.js';

const FLOAT_BYTES = 4;

const FIRST_LAYER = 0;
const NOTHING_TO_DO = Promise.resolve();

/**
 * Runs passes of main. Attention and router of all rows run here, layer by layer; their experts run on the workers (OD-MoE sections 3.1 and 3.3).
 * Rows of prompts, answers and drafts are treated alike. Each expert that the rows of a layer activate is loaded once for all of them.
 */
export class PassRunner {
  private readonly firstLayers = new WeakMap<PassMember, FirstLayerAhead>();
  /** Announcements that were made for a later pass, by the first member of that pass. */
  private readonly ahead = new WeakMap<PassMember, Announcements>();
  private readonly operators: ShortOperators;

  constructor(private readonly engine: PassEngine) {
    this.operators = new ShortOperators(engine.shape.expertLayers, () => engine.runtime.nowMs());
  }

  readonly run: RunPass = async (slot, rows, following) => {
    const joint = new JointSignal(rows.map(({ member }) => member.signal));
    const observed = this.engine.observer?.begin(rows) ?? null;
    const context = this.contextOf(rows, joint.signal, observed);
    let failed = true;
    try {
      const logits = await this.runLayers(slot, context, following ?? (() => null));
      failed = false;
      return logits;
    } finally {
      this.engine.announcedPasses.end(rows);
      // If nobody waits any more, the ends of the sequences free all announced experts.
      if (failed && !joint.signal.aborted) context.announcements.release();
      context.announcements.close();
      joint.dispose();
      observed?.ended(failed);
    }
  };

  private contextOf(
    members: readonly MemberRows[],
    signal: AbortSignal,
    observed: PassContext['observed'],
  ): PassContext {
    const isAlone = isAnswerAlone(members);
    return {
      ...passOfRanges(members.map(rangeOf)),
      members,
      owners: ownersOf(members),
      isAlone,
      signal,
      observed,
      announcements: this.announcementsOf(members),
      firstLayers: (member) => this.firstLayers.get(member) ?? null,
      stallUs: 0,
    };
  }

  private announcementsOf(members: readonly MemberRows[]): Announcements {
    const { miniBatchRows, spread, roster, precision } = this.engine;
    const rowCount = members.reduce((sum, { tokenIds }) => sum + tokenIds.length, 0);
    return new Announcements(
      {
        ...passOfRanges(members.map(rangeOf)),
        differentRows: differentRows(members),
        copies: Math.ceil(rowCount / miniBatchRows),
        announcedByOthers: (placement, layer) =>
          members.flatMap((rows) => [
            announcedByPrediction(placement, expectedBy(rows, layer)),
            layer === FIRST_LAYER ? this.announcedAhead(placement, rows) : null,
          ]),
        spread,
        precision,
      },
      roster,
      this.engine.jointDealer,
    );
  }

  private announcedAhead(placement: Placement, rows: MemberRows): ReadonlyMap<number, string> | null {
    const position = decodePosition(rows);
    return position === null ? null : (this.firstLayers.get(rows.member)?.announcedFor(placement, position) ?? null);
  }

  private async runLayers(
    slot: ReusablePass,
    context: PassContext,
    following: () => readonly MemberRows[] | null,
  ): Promise<Float32Array[][]> {
    const { engine } = this;
    const { expertLayers, expertsPerToken, vocabSize } = engine.shape;
    const rowBytes = expertRowSize(engine.shape) * FLOAT_BYTES;
    const { members, observed } = context;
    const rows = context.owners.length;
    await this.beginAnnouncing(context);
    await beginPass(slot, members);
    const hidden = slot.hidden.subarray(0, rows * rowBytes);
    const outputs = slot.outputs.subarray(0, rows * expertsPerToken * rowBytes);
    const layers = new LayerRunner(engine, context);
    const { prefetch, router, trained } = this.ownPredictions(context);
    prefetch?.begin();
    const recorded = engine.recorder && RecordedAnswers.of(engine.recorder, members);
    const begunMs = engine.runtime.nowMs();
    for (let layer = 0; layer < expertLayers; layer++) {
      if (context.signal.aborted) throw new OdmoeError('CANCELLED', 'the request was cancelled');
      observed?.layerBegun(layer);
      // Predictions that shadow sends while main attends are still compared with the router's choice.
      const awaitsMessages = members.some(({ member }) => member.feed.fed);
      if (trained !== null || recorded !== null) {
        const states = await slot.states.take(slot.pass, rows);
        trained?.takeStates(states);
        recorded?.takeStates(states, layer);
      }
      trained?.foretell(layer);
      const choice = await this.operators.attend(slot.pass, layer, hidden, { rows, awaitsMessages });
      if (!allFinite(hidden)) throw layerGivesNoNumbers(layer);
      recorded?.chosen(layer, choice);
      const step = layers.decide({ pass: context.pass, rows: context.rows, layer, hidden, outputs }, choice);
      // The experts' messages leave first. Then the next layer is announced to the workers, later routers are asked, and shadow gets this layer's
      // rows.
      await settleAll([
        layers.run(step),
        this.whileExpertsRun(context, layer, following),
        router?.routerHasChosen(slot.pass, layer) ?? NOTHING_TO_DO,
      ]);
      prefetch?.layerDone(layer);
      await this.operators.combine(slot.pass, layer, outputs, { rows, weights: step.weights });
      observed?.layerEnded(layer);
    }
    for (const { member, position, tokenIds } of members) member.feed.allWritten(position + tokenIds.length);
    this.count(context, engine.runtime.nowMs() - begunMs);
    const logits = await readLogits(slot.pass, members, vocabSize);
    await giveStates(slot.pass, members);
    recorded?.end();
    for (const { member, decodeFrom, tokenIds } of members) if (decodeFrom < tokenIds.length) member.feed.passEnded();
    return logits;
  }

  /** Announces to the workers all that is known before the first layer. */
  private async beginAnnouncing({ members, announcements, isAlone, signal }: PassContext): Promise<void> {
    const { engine } = this;
    for (const { member, position, tokenIds } of members) {
      // These announcements were made for a pass of one row; a pass with drafts has more rows, so they do not fit it.
      this.firstLayers.get(member)?.passBegins(isAlone && tokenIds.length === 1 ? position : null);
      const ahead = this.ahead.get(member);
      this.ahead.delete(member);
      if (ahead?.of.pass.position === announcements.of.pass.position && member === members[0]?.member)
        announcements.adopt(ahead);
      else ahead?.release();
    }
    if (isAlone) {
      const member = members[0]?.member;
      if (engine.firstLayerAhead && member !== undefined && !this.firstLayers.has(member))
        this.firstLayers.set(
          member,
          new FirstLayerAhead(member.id, member.lastPosition, engine.roster, engine.precision),
        );
    } else await engine.dispatcher.placement(signal);
    if (engine.prediction.source === 'random') takeBackOwnName(engine.roster, announcements.of.pass, members);
    engine.announcedPasses.begin(announcements, members, engine.shape.expertLayers);
    engine.tokenExperts?.announce(members, engine.roster, announcements, engine.precision);
    this.announceWholeLayer(announcements, members, FIRST_LAYER);
  }

  private ownPredictions({ members, announcements, isAlone }: PassContext): {
    prefetch: RandomPrefetch | null;
    router: RouterAhead | null;
    trained: TrainedAhead | null;
  } {
    const { prediction, roster, shape, precision, trained, tokenExperts: known } = this.engine;
    const { source, layersAhead } = prediction;
    const own = new OwnPredictions(roster, announcements, { isAlone, precision });
    const { expertLayers } = shape;
    const predicts = members.some((rows) => decodePosition(rows) !== null);
    return {
      prefetch: predicts && source === 'random' ? new RandomPrefetch(roster, members, own) : null,
      router:
        predicts && source === 'router-ahead'
          ? new RouterAhead({ expertLayers, layersAhead, precision, known }, roster, members, announcements, own)
          : null,
      trained:
        predicts && trained !== null
          ? new TrainedAhead(trained, { shape, workers: roster, announcements, precision }, members)
          : null,
    };
  }

  private async whileExpertsRun(
    { members, announcements }: PassContext,
    layer: number,
    following: () => readonly MemberRows[] | null,
  ): Promise<void> {
    if (layer + 1 < this.engine.shape.expertLayers) this.announceWholeLayer(announcements, members, layer + 1);
    else this.announceFollowing(following());
    for (const { member, position, tokenIds } of members) member.feed.layerWritten(layer, position + tokenIds.length);
  }

  private announceFollowing(members: readonly MemberRows[] | null): void {
    const first = members?.[0]?.member;
    if (members === null || first === undefined) return;
    const announcements = this.announcementsOf(members);
    this.announceWholeLayer(announcements, members, FIRST_LAYER);
    if (announcements.isWholeLayer(FIRST_LAYER)) this.ahead.set(first, announcements);
  }

  /** Announces the whole layer if nearly all its experts are going to be used, and not all of them are predicted otherwise. */
  private announceWholeLayer(announcements: Announcements, members: readonly MemberRows[], layer: number): void {
    const { roster, prefillOverlap } = this.engine;
    if (!prefillOverlap || roster.placement === null || isAnswerAlone(members)) return;
    if (!usesNearlyAllExperts(roster.placement, announcements.of.differentRows)) return;
    if (members.some((rows) => rows.decodeFrom > 0 || !isPredicted(this.engine, rows.member, layer)))
      announcements.announceWholeLayer(layer);
  }

  private count({ members, owners, stallUs }: PassContext, durationMs: number): void {
    const { draftCosts, shape } = this.engine;
    if (owners.every(({ isAnswer }) => isAnswer))
      draftCosts.passed(owners.length, shape.expertLayers, Math.max(0, durationMs - stallUs / 1000), durationMs);
    for (const { member } of members) member.counters.ioStallUs += stallUs;
  }
}

/** True for rows of one sequence's answer and nothing else, as is the case while there is no other request. */
function isAnswerAlone(members: readonly MemberRows[]): boolean {
  return members.length === 1 && members[0]?.decodeFrom === 0;
}

/** Number of rows that differ. Rows with the same token and position mostly come from equal requests, and choose the same experts. */
function differentRows(members: readonly MemberRows[]): number {
  const [only] = members;
  if (members.length === 1 && only !== undefined) return only.tokenIds.length;
  const rows = members.flatMap(({ position, tokenIds }) => tokenIds.map((id, index) => `${position + index} ${id}`));
  return new Set(rows).size;
}

async function beginPass({ pass }: ReusablePass, members: readonly MemberRows[]): Promise<void> {
  await pass.begin(
    members.map(({ member }) => member.sequence),
    Int32Array.from(members.flatMap(({ tokenIds }, index) => tokenIds.map(() => index))),
    Int32Array.from(members.flatMap(({ position, tokenIds }) => tokenIds.map((_, index) => position + index))),
    Int32Array.from(members.flatMap(({ tokenIds }) => tokenIds)),
  );
}

/** A signal that aborts once all of several signals have aborted: nobody waits any more. */
class JointSignal {
  readonly signal: AbortSignal;
  private readonly controller = new AbortController();
  private readonly leave: readonly (() => void)[] = [];

  constructor(private readonly signals: readonly AbortSignal[]) {
    const [only] = signals;
    this.signal = signals.length === 1 && only !== undefined ? only : this.controller.signal;
    if (this.signal === only) return;
    // While no worker is left, all work of a pass waits on this signal.
    setMaxListeners(0, this.signal);
    this.leave = signals.map((signal) => onAbort(signal, this.heard));
    this.heard();
  }

  /** Stops listening. */
  dispose(): void {
    for (const leave of this.leave) leave();
  }

  private readonly heard = (): void => {
    if (this.signals.every(({ aborted }) => aborted)) this.controller.abort();
  };
}

/** Gives their last states to the members that take them. */
async function giveStates(pass: Pick<Pass, 'states'>, members: readonly MemberRows[]): Promise<void> {
  let firstRow = 0;
  for (const { member, position, tokenIds } of members) {
    const wanted = member.takeStates === undefined ? 0 : Math.min(tokenIds.length, member.statesWanted ?? Infinity);
    const skipped = tokenIds.length - wanted;
    const rows = Int32Array.from({ length: wanted }, (_, index) => firstRow + skipped + index);
    firstRow += tokenIds.length;
    if (wanted > 0) member.takeStates?.(position + skipped, await pass.states(rows, true));
  }
}

/** A row of a pass whose logits a member wants. */
interface WantedRow {
  /** Index of the row in the pass. */
  row: number;
  position: number;
  member: number;
}

/** Reads the logits that the members want, some rows at a time. Logits go to the member's observer if it has one, else they are returned by member. */
async function readLogits(
  pass: Pick<Pass, 'logits'>,
  members: readonly MemberRows[],
  vocabSize: number,
): Promise<Float32Array[][]> {
  const wanted = wantedRows(members);
  const logits = members.map((): Float32Array[] => []);
  for (let first = 0; first < wanted.length; first += OBSERVED_LOGITS_ROWS) {
    const rows = wanted.slice(first, first + OBSERVED_LOGITS_ROWS);
    const values = await pass.logits(Int32Array.from(rows, ({ row }) => row));
    for (const [index, { position, member }] of rows.entries()) {
      const ofRow = values.subarray(index * vocabSize, (index + 1) * vocabSize);
      const onLogits = members[member]?.onLogits;
      if (onLogits === undefined) logits[member]?.push(ofRow);
      else onLogits(position, ofRow);
    }
  }
  return logits;
}

function wantedRows(members: readonly MemberRows[]): WantedRow[] {
  const wanted: WantedRow[] = [];
  let firstRow = 0;
  for (const [member, { position, tokenIds, logitsFrom }] of members.entries()) {
    for (let index = logitsFrom; index < tokenIds.length; index++)
      wanted.push({ row: firstRow + index, position: position + index, member });
    firstRow += tokenIds.length;
  }
  return wanted;
}
