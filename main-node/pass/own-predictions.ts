import type { PassRow, Predict, Placement } from '../../shared/wire/messages.js';
import { requirePresent } from '../../shared/base/errors/assert-invariant.js';
import { expertsByWorker } from '../../shared/decisions/placement/experts-by-worker.js';
import { assignPredictedExperts } from '../../shared/decisions/placement/assign-predicted-experts.js';
import type { PlacedWorkers } from '../cluster/placed-workers.js';
import { type MemberRows, decodePosition, rangeOf, expectedBy } from './pass-member.js';
import { type Announcements, announcedByPrediction } from './announcements.js';
import { counterRandom } from '../../shared/base/arithmetic/counter-random.js';
import type { Pass } from '../../native/index.js';
import type { TokenExperts } from './token-experts.js';
import {
  criticalField,
  expectedRule,
  expertsReadWhole,
  planReadings,
  type PrecisionRule,
} from '../../shared/decisions/slices/plan-readings.js';
import { firstLayerWorkers } from '../../shared/decisions/placement/first-layer-workers.js';
import { passOfSequence } from '../../shared/wire/pass-rows.js';

/** Experts of a layer that main itself predicts for the rows of one sequence's answer. */
export interface OwnPrediction {
  rows: MemberRows;
  /** Position of the sequence's pass that the experts are for: this pass, or its next one. */
  position: number;
  layer: number;
  experts: number[];
  /** Those of the experts that are expected to read both slices for some row; left out: none. */
  critical?: number[];
}

/**
 * Main predicts experts itself. For a sequence that runs alone, each expert is announced to the worker that the layer's group has for it, as shadow
 * would do. In a joint pass it is announced together with the predictions for all members.
 */
export class OwnPredictions {
  constructor(
    private readonly workers: Pick<PlacedWorkers, 'placement' | 'worker'>,
    private readonly announcements: Announcements,
    private readonly options: { readonly isAlone: boolean; readonly precision: PrecisionRule | null },
  ) {}

  /** Announces predictions that are all for one layer. */
  announce(placement: Placement, predictions: readonly OwnPrediction[]): void {
    const [first] = predictions;
    const expected = predictions.flatMap((prediction) => {
      const { rows, experts, critical = [] } = prediction;
      const here = this.predict(placement, prediction);
      return !this.options.isAlone && here ? [{ experts, critical, rows: [rangeOf(rows)] }] : [];
    });
    if (first !== undefined && expected.length > 0) this.announcements.announce(first.layer, expected);
  }

  /** Returns true if the prediction is for the rows of this pass. */
  private predict(placement: Placement, { rows, position, layer, experts, critical = [] }: OwnPrediction): boolean {
    const { isAlone, precision } = this.options;
    const { member, tokenIds, decodeFrom } = rows;
    const isHere = decodePosition(rows) === position;
    const run = { sequence: member.id, position, rows: isHere ? tokenIds.length - decodeFrom : 1 };
    const { epoch } = placement;
    const place = {
      epoch,
      pass: { sequence: member.id, position },
      rows: [run],
      layer,
    };
    const prediction = { ...place, experts, ...criticalField(precision, critical), mainAnnounces: !isAlone };
    // The pass runs again, and the layer's router has decided before: no message would release experts that were announced now.
    const isLate = member.predictions.arrive(prediction) === 'late';
    if (!isAlone || isLate) return isHere;
    for (const [worker, ofWorker] of expertsByWorker(assignPredictedExperts(placement, layer, experts))) {
      const ofCritical = critical.filter((expert) => ofWorker.includes(expert));
      this.workers
        .worker(worker)
        ?.sendAnnounce({ ...place, experts: ofWorker, ...criticalField(precision, ofCritical) });
    }
    return isHere;
  }
}

/**
 * A sequence that runs alone announces experts of its next pass under that pass's own name (RandomPrefetch). If its rows then come in a pass of another
 * name, the workers would need to match each message of that pass with the earlier announcements, and an expert that runs for other rows only would
 * never be released. So main releases these experts, and keeps the predictions for the pass to announce (AnnouncedPasses.begin).
 */
export function takeBackOwnName(
  workers: Pick<PlacedWorkers, 'placement' | 'worker'>,
  pass: PassRow,
  members: readonly MemberRows[],
): void {
  const { placement } = workers;
  if (placement === null) return;
  for (const rows of members) {
    const { member } = rows;
    if (member.id === pass.sequence && decodePosition(rows) === pass.position) continue;
    for (let layer = 0; layer < placement.layers; layer++) {
      const prediction = expectedBy(rows, layer);
      const announced = announcedByPrediction(placement, prediction);
      if (prediction === null || announced === null) continue;
      const { epoch, pass: ownPass, rows: ownRows } = prediction;
      for (const [worker, experts] of expertsByWorker(announced))
        workers.worker(worker)?.sendRelease({ epoch, pass: ownPass, rows: ownRows, layer, experts });
      member.predictions.arrive({ ...prediction, mainAnnounces: true });
    }
  }
}

/**
 * Returns `count` distinct experts of `experts`, or all if there are fewer. They follow from (sequence, position, layer) alone. All sets are equally
 * likely.
 */
export function randomExperts(
  place: { sequence: number; position: number; layer: number },
  shape: { layers: number; experts: number },
  count: number,
): number[] {
  const draws = Math.min(count, shape.experts);
  const first = (place.position * shape.layers + place.layer) * draws;
  const left = Array.from({ length: shape.experts }, (_, expert) => expert);
  return Array.from({ length: draws }, (_, draw) => {
    const index = Math.floor(counterRandom(place.sequence, first + draw) * left.length);
    return requirePresent(left.splice(index, 1)[0], 'fewer experts are drawn than there are.');
  });
}

/**
 * The ablation of OD-MoE figure 8, in which nothing is predicted: as soon as a group has run its layer, it loads random experts for its next layer,
 * `groups` layers ahead, in the next token if need be. An instance serves one pass.
 */
export class RandomPrefetch {
  constructor(
    private readonly workers: Pick<PlacedWorkers, 'placement'>,
    private readonly members: readonly MemberRows[],
    private readonly own: OwnPredictions,
  ) {}

  /** Before the first layer: loads each group's first layer, unless this was announced in the token before. */
  begin(): void {
    for (let layer = 0; layer < this.groups; layer++)
      this.announce(
        layer,
        this.members.filter((rows) => expectedBy(rows, layer) === null),
      );
  }

  layerDone(layer: number): void {
    this.announce(layer + this.groups, this.members);
  }

  private get groups(): number {
    return this.workers.placement?.groups.length ?? 0;
  }

  /** `layer` may lie in a later token. */
  private announce(layer: number, members: readonly MemberRows[]): void {
    const { placement } = this.workers;
    if (placement === null) return;
    const { layers, experts, expertsPerToken } = placement;
    const predictions = members.flatMap((rows) => {
      const first = decodePosition(rows);
      if (first === null) return [];
      const position = first + Math.floor(layer / layers);
      if (position > rows.member.lastPosition) return [];
      const place = { sequence: rows.member.id, position, layer: layer % layers };
      return [
        { rows, position, layer: place.layer, experts: randomExperts(place, { layers, experts }, expertsPerToken) },
      ];
    });
    this.own.announce(placement, predictions);
  }
}

/**
 * Expert layers whose routers are asked ahead once the router of `layer` has chosen. Each is asked once a pass: the one that is `layersAhead` further
 * on, and at the first layer also all layers before that one. The first layer itself is never asked ahead. Pure.
 */
export function layersAskedAt(layer: number, expertLayers: number, layersAhead: number): number[] {
  const first = layer === 0 ? 1 : layer + layersAhead;
  const last = Math.min(layer + layersAhead, expertLayers - 1);
  return Array.from({ length: Math.max(0, last - first + 1) }, (_, place) => first + place);
}

/**
 * Predicts without a shadow: main's own router of a later layer chooses on the hidden state that the current layer has left, while the workers run
 * this layer's experts. For models whose shadow would be no smaller than the model, and for clusters with no machine to spare. An instance serves one
 * pass, for all rows of answers at once.
 */
export class RouterAhead {
  constructor(
    private readonly ahead: {
      expertLayers: number;
      layersAhead: number;
      precision: PrecisionRule | null;
      /** Layers whose experts are known by the tokens, and need no question; null: none. */
      known: Pick<TokenExperts, 'knows'> | null;
    },
    private readonly workers: Pick<PlacedWorkers, 'placement'>,
    private readonly members: readonly MemberRows[],
    private readonly announcements: Pick<Announcements, 'isWholeLayer'>,
    private readonly own: OwnPredictions,
  ) {}

  /** The router of the layer has chosen; its experts run. The pass has not combined yet. */
  async routerHasChosen(pass: Pick<Pass, 'chooseAhead'>, layer: number): Promise<void> {
    for (const asked of layersAskedAt(layer, this.ahead.expertLayers, this.ahead.layersAhead)) {
      const { placement } = this.workers;
      if (placement === null) return;
      if (this.announcements.isWholeLayer(asked) || this.ahead.known?.knows(asked) === true) continue;
      const { experts, weights } = await pass.chooseAhead(asked);
      const { precision } = this.ahead;
      const readings =
        precision === null ? [] : planReadings(expectedRule(precision), weights, placement.expertsPerToken);
      let row = 0;
      const predictions = this.members.flatMap((rows) => {
        const [first, end] = [row + rows.decodeFrom, row + rows.tokenIds.length];
        row = end;
        const position = decodePosition(rows);
        if (position === null) return [];
        const range = [first * placement.expertsPerToken, end * placement.expertsPerToken] as const;
        const chosen = experts.subarray(...range);
        const critical = expertsReadWhole(chosen, readings.slice(...range));
        return [{ rows, position, layer: asked, experts: [...new Set(chosen)], critical }];
      });
      this.own.announce(placement, predictions);
    }
  }
}

const FIRST_LAYER = 0;

/**
 * Loads the first layer of the next token before that token is known. Towards the end of a token workers have nothing left to load. If each of them
 * then loads an expert of the first layer, the next token need not wait for any (docs/architecture.md). An expert is announced to a worker as soon as
 * all predictions of the token are there and none of them is left for this worker, since its only slot may be needed until then. Used where experts
 * are spread over all workers and shadow does not run ahead.
 */
export class FirstLayerAhead {
  private announced: { placement: Placement; position: number; workers: Map<number, string> } | null = null;

  /** `lastPosition`: the last position that this answer can run. */
  constructor(
    private readonly sequence: number,
    private readonly lastPosition: number,
    private readonly workers: Pick<PlacedWorkers, 'placement' | 'worker'>,
    /** The rule by which executions read sliced experts; null: experts are computed exactly. */
    private readonly precision: PrecisionRule | null,
  ) {}

  /**
   * The router of a layer has chosen for the token at `position`. `upcoming`: the predictions for all later layers; null: some of them have not come.
   */
  afterRouter(position: number, upcoming: readonly Predict[] | null): void {
    const { placement } = this.workers;
    if (placement === null || upcoming === null || position >= this.lastPosition) return;
    const next = position + 1;
    if (this.announced?.position !== next || this.announced.placement.epoch !== placement.epoch) {
      this.announced = { placement, position: next, workers: new Map() };
    }
    const busy = new Set(
      upcoming.flatMap((prediction) => [...(announcedByPrediction(placement, prediction)?.values() ?? [])]),
    );
    for (const [expert, workerId] of firstLayerWorkers(placement)) {
      if (busy.has(workerId) || this.announced.workers.has(expert)) continue;
      this.announced.workers.set(expert, workerId);
      this.workers.worker(workerId)?.sendAnnounce({
        epoch: placement.epoch,
        ...passOfSequence(this.sequence, next, 1),
        layer: FIRST_LAYER,
        experts: [expert],
        // The worker has nothing else to do, and nobody knows yet how the token will read the expert.
        ...criticalField(this.precision, [expert]),
      });
    }
  }

  /**
   * A pass of the sequence begins. `position`: that of its first row, if it runs rows of this answer and nothing else; null: it does not. Only a pass
   * of exactly this sequence and position asks for the announced experts: the rows of a preempted sequence come in prompt chunks of other names, and
   * those of several sequences in a joint pass. All experts that were announced for another pass are released.
   */
  passBegins(position: number | null): void {
    const { announced } = this;
    if (announced === null || announced.position === position) return;
    this.announced = null;
    const { placement, workers } = announced;
    // Under another placement the workers have dropped these announcements.
    if (this.workers.placement?.epoch !== placement.epoch) return;
    for (const [worker, experts] of expertsByWorker(workers))
      this.workers.worker(worker)?.sendRelease({
        epoch: placement.epoch,
        ...passOfSequence(this.sequence, announced.position, 1),
        layer: FIRST_LAYER,
        experts,
      });
  }

  /** expert -> worker: the announcements for the first layer at `position` under this placement. */
  announcedFor(placement: Placement, position: number): ReadonlyMap<number, string> {
    const { announced } = this;
    return announced?.position === position && announced.placement.epoch === placement.epoch
      ? announced.workers
      : new Map();
  }

  /** Returns the same map once that layer's router has chosen, and drops it: from now on nothing is announced. */
  take(placement: Placement, position: number): ReadonlyMap<number, string> {
    const workers = this.announcedFor(placement, position);
    if (workers.size > 0) this.announced = null;
    return workers;
  }
}
