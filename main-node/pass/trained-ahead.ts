import { requirePresent } from '../../shared/base/errors/assert-invariant.js';
import { type AnnouncingCosts, chooseAnnounced, chooseDoubted, unionOfRows } from './choose-announced.js';
import { criticalField, type PrecisionRule } from '../../shared/decisions/slices/plan-readings.js';
import type { ModelShape } from '../../shared/model/model-shape.js';
import type { Placement } from '../../shared/wire/messages.js';
import type { PlacedWorkers } from '../cluster/placed-workers.js';
import type { Announcements } from './announcements.js';
import { decodePosition, type MemberRows, rangeOf } from './pass-member.js';
import type { MapsTime } from './maps-time.js';
import type { MappedLayer, TrainedMaps } from './trained-maps.js';

/** Main's trained predictor, with what its announcements cost in this cluster. */
export interface TrainedPredictor {
  readonly maps: Pick<TrainedMaps, 'mappedAt' | 'predict' | 'predictHere' | 'failed'>;
  /** As measured so far. */
  costs(): AnnouncingCosts;
  readonly time: Pick<MapsTime, 'mayRunHere' | 'runHere'>;
}

/** Passes know the parts of the cluster that announce. */
export interface TrainedSurroundings {
  readonly shape: Pick<ModelShape, 'expertLayers' | 'experts' | 'hiddenSize'>;
  readonly workers: Pick<PlacedWorkers, 'placement'>;
  readonly announcements: Pick<Announcements, 'announce' | 'doubt' | 'heldAt' | 'ownAt' | 'isWholeLayer' | 'atLayer'>;
  /** The rule by which executions read sliced experts; null: experts are computed exactly. */
  readonly precision: PrecisionRule | null;
}

/** While shadow follows a sequence and is in time, main speaks only of the layer at hand and of the next one: shadow's word comes for the others. */
const REACH_BESIDE_SHADOW = 1;

/** An expert is named for a sequence if it is at least this likely there, as a share of its probability at the sequence that wants it most. */
const LIKELY_SHARE = 0.5;

/** The rows of one sequence's answer in the pass. */
interface AnsweringRows {
  rows: MemberRows;
  /** Position of the sequence's pass. */
  position: number;
  /** Indexes of its answer's rows in the pass, and among all rows of answers. */
  inPass: readonly number[];
  first: number;
  /** Shadow had not spoken of a layer when main came to it. */
  shadowIsLate: boolean;
}

/**
 * Predicts by trained maps from the residual stream, before main attends at a layer: the experts of that layer and of layers ahead. Main announces
 * them under the name of the pass. A later, surer word adds experts, and says which of the earlier ones it doubts; the router's choice releases the wrong ones.
 * Shadow's word on a layer goes first. An instance serves one pass, for all rows of answers at once.
 */
export class TrainedAhead {
  private readonly answering: AnsweringRows[] = [];
  private readonly costs: AnnouncingCosts;
  /** States of the rows of answers: rows x hiddenSize. */
  private answers: Float32Array;
  /** Rows of the pass, and those of answers. */
  private readonly rows: number;
  private readonly answerRows: number;
  /** The states of which maps beside main's attention speak: rows x hiddenSize. */
  private statesAside = new Float32Array();
  /** Maps run beside main's attention. 'failed': they do so no more in this pass. */
  private aside: 'idle' | 'running' | 'failed' = 'idle';

  constructor(
    private readonly predictor: TrainedPredictor,
    private readonly around: TrainedSurroundings,
    members: readonly MemberRows[],
  ) {
    let [row, answers] = [0, 0];
    for (const rows of members) {
      const position = decodePosition(rows);
      const count = rows.tokenIds.length - rows.decodeFrom;
      const begin = row + rows.decodeFrom;
      const inPass = Array.from({ length: Math.max(0, count) }, (_, index) => begin + index);
      if (position !== null) this.answering.push({ rows, position, inPass, first: answers, shadowIsLate: false });
      row += rows.tokenIds.length;
      answers += inPass.length;
    }
    const { hiddenSize } = around.shape;
    this.costs = predictor.costs();
    this.rows = row;
    this.answerRows = answers;
    this.answers = new Float32Array(answers === row ? 0 : answers * hiddenSize);
  }

  /** Takes the states of all rows, rows of the pass x hiddenSize, that main is about to attend from. They must not change before foretell returns. */
  takeStates(states: Float32Array): void {
    const { answers, answering } = this;
    if (this.answerRows === this.rows) {
      this.answers = states;
      return;
    }
    const { hiddenSize } = this.around.shape;
    for (const { inPass, first } of answering)
      for (const [index, row] of inPass.entries())
        answers.set(states.subarray(row * hiddenSize, (row + 1) * hiddenSize), (first + index) * hiddenSize);
  }

  /**
   * Announces what the maps say of the states that were taken last. For few rows that is done when this returns. The maps of many rows, or maps that take
   * longer than a hop leaves time for, run on another thread, and no layer waits for them: when their word comes, it counts for the layers whose routers
   * have not chosen. As long as they run, the maps of further layers are left out.
   */
  foretell(layer: number): void {
    const { maps, time } = this.predictor;
    if (this.aside === 'running') return;
    if (!maps.mappedAt(layer).some(({ distance }) => this.isWanted(layer, distance))) return;
    const { answers, answerRows } = this;
    if (time.mayRunHere(answerRows))
      this.speak(
        layer,
        time.runHere(answerRows, () => maps.predictHere(layer, answers, answerRows)),
      );
    else if (this.aside === 'idle') void this.foretellAside(layer);
  }

  private async foretellAside(layer: number): Promise<void> {
    this.aside = 'running';
    const { answers, answerRows } = this;
    if (this.statesAside.length === 0) this.statesAside = new Float32Array(answers.length);
    this.statesAside.set(answers);
    try {
      this.speak(layer, await this.predictor.maps.predict(layer, this.statesAside, answerRows));
      this.aside = 'idle';
    } catch (thrown) {
      this.aside = 'failed';
      this.predictor.maps.failed(thrown);
    }
  }

  /** Announces by the word of the maps at a layer, of which main may have left some layers behind. */
  private speak(layer: number, probabilities: Float32Array): void {
    const { announcements } = this.around;
    const { atLayer } = announcements;
    const all = this.predictor.maps.mappedAt(layer);
    // The nearest layers load first.
    for (const one of all) {
      const distance = layer + one.distance - atLayer;
      if (distance < 0 || announcements.isWholeLayer(layer + one.distance)) continue;
      const next = one.nextDistance === null || distance === 0 ? null : Math.min(one.nextDistance, distance - 1);
      this.announce(atLayer, { ...one, distance, nextDistance: next }, all.length, probabilities);
    }
  }

  /**
   * True if there is a sequence for which shadow has not spoken of that layer and is not expected to. Notes shadow as late for the sequences of
   * which it has not spoken when main comes to the layer (not at the first one).
   */
  private isWanted(layer: number, distance: number): boolean {
    const asked = this.answering.filter((one) => !this.isSpoken(one, layer + distance));
    if (distance === 0 && layer > 0) for (const one of asked) one.shadowIsLate = true;
    return (
      asked.some((one) => this.speaksFor(one, distance)) && !this.around.announcements.isWholeLayer(layer + distance)
    );
  }

  private isSpoken({ rows, position }: AnsweringRows, layer: number): boolean {
    return rows.member.predictions.isSpoken(position, layer);
  }

  private speaksFor({ rows, shadowIsLate }: AnsweringRows, distance: number): boolean {
    return !rows.member.feed.fed || shadowIsLate || distance <= REACH_BESIDE_SHADOW;
  }

  /** `layer`: the one at which main is. */
  private announce(layer: number, mapped: MappedLayer, distances: number, probabilities: Float32Array): void {
    const { workers, announcements, shape } = this.around;
    const { placement } = workers;
    if (placement === null) return;
    const target = layer + mapped.distance;
    const asking = this.answering.filter((one) => !this.isSpoken(one, target) && this.speaksFor(one, mapped.distance));
    if (asking.length === 0) return;
    const ofMembers = asking.map(({ first, inPass }) =>
      unionOfRows(
        inPass.map((_, index) => {
          const place = ((first + index) * distances + mapped.index) * shape.experts;
          return probabilities.subarray(place, place + shape.experts);
        }),
        shape.experts,
      ),
    );
    const held = new Set(announcements.heldAt(target));
    const word = { ...mapped, probabilities: unionOfRows(ofMembers, shape.experts), held };
    const doubted = new Set(this.isWhole(asking) ? chooseDoubted(word, announcements.ownAt(target), this.costs) : []);
    const kept = new Set([...held].filter((expert) => !doubted.has(expert)));
    const chosen = chooseAnnounced({ ...word, held: kept }, this.costs).filter((expert) => !doubted.has(expert));
    if (doubted.size > 0) this.doubt(placement, target, doubted);
    if (chosen.length === 0) return;
    const foretold = asking.flatMap(
      ({ rows, position }) => rows.member.predictions.foretold(position, target)?.experts ?? [],
    );
    const named = new Set([...foretold, ...chosen]);
    const expected = asking.flatMap((one, index) => {
      const own = requirePresent(ofMembers[index], 'each sequence has its probabilities.');
      const experts = [...named].filter((expert) => isLikely(own, ofMembers, expert));
      const fresh = experts.filter((expert) => chosen.includes(expert));
      this.remember(placement, one, target, experts);
      return fresh.length === 0 ? [] : [{ experts: fresh, critical: this.critical(fresh), rows: [rangeOf(one.rows)] }];
    });
    announcements.announce(target, expected);
  }

  /** Nobody else has a word on the layer, for any of the pass's answers. */
  private isWhole(asking: readonly AnsweringRows[]): boolean {
    return asking.length === this.answering.length;
  }

  private doubt(placement: Placement, layer: number, experts: ReadonlySet<number>): void {
    this.around.announcements.doubt(layer, [...experts]);
    for (const one of this.answering) {
      const earlier = one.rows.member.predictions.foretold(one.position, layer)?.experts ?? [];
      const left = earlier.filter((expert) => !experts.has(expert));
      if (left.length < earlier.length) this.note(placement, one, layer, left);
    }
  }

  /** Nobody knows yet how the rows will read the experts. */
  private critical(experts: number[]): number[] {
    return this.around.precision === null ? [] : experts;
  }

  /** A later word adds to an earlier one, but for what it doubts: what was announced is being loaded. */
  private remember(placement: Placement, answering: AnsweringRows, layer: number, experts: readonly number[]): void {
    if (experts.length === 0) return;
    const earlier = answering.rows.member.predictions.foretold(answering.position, layer)?.experts ?? [];
    this.note(placement, answering, layer, [...new Set([...earlier, ...experts])]);
  }

  private note({ epoch }: Placement, { rows, position, inPass }: AnsweringRows, layer: number, all: number[]): void {
    const { member } = rows;
    member.predictions.foretell({
      epoch,
      pass: { sequence: member.id, position },
      rows: [{ sequence: member.id, position, rows: inPass.length }],
      layer,
      experts: all,
      ...criticalField(this.around.precision, this.critical(all)),
      mainAnnounces: true,
    });
  }
}

function isLikely(own: ArrayLike<number>, ofMembers: readonly ArrayLike<number>[], expert: number): boolean {
  const most = Math.max(...ofMembers.map((probabilities) => probabilities[expert] ?? 0));
  return (own[expert] ?? 0) >= LIKELY_SHARE * most;
}
