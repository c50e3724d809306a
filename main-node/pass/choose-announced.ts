/** Times are in layers: 1 is the time from one expert layer of main to the next, without waits for loads. */
export interface AnnouncingCosts {
  /** Time that a worker takes to load an expert, above 0. */
  loadLayers: number;
  /** Workers that load the layer's experts. */
  workers: number;
  /** Experts that one worker holds at a time. */
  slots: number;
  /** Groups of workers, which serve the layers in turn: a worker loads for every layer that is a multiple of these away. */
  groups: number;
}

/** Measured times and sizes of a cluster. A time of 0 is not known yet. */
export interface MeasuredCosts {
  loadMs: number;
  layerMs: number;
  workers: number;
  /** Workers among which the experts of one layer are dealt. */
  layerWorkers: number;
  slots: number;
}

/** Until both times are measured, a load is assumed to take as long as OD-MoE equation 1 allows. */
export function announcingCosts({ loadMs, layerMs, workers, layerWorkers, slots }: MeasuredCosts): AnnouncingCosts {
  const groups = Math.max(1, Math.floor(workers / Math.max(1, layerWorkers)));
  const loadLayers = loadMs > 0 && layerMs > 0 ? loadMs / layerMs : groups;
  return { loadLayers, workers: Math.max(1, Math.round(layerWorkers)), slots, groups };
}

/** A word on one layer, before main's attention at some layer at or before it. */
export interface ForetoldLayer {
  /** Layers ahead; 0: the layer at which main is about to attend. */
  distance: number;
  /** The distance of the next word on this layer; null: the next word is that of its router. */
  nextDistance: number | null;
  /** Share of the wrong experts of this word that the next one does not name any more, 0 to 1. The router's word has 1. */
  corrected: number;
  /** The probability of each expert that some row of the pass uses it, by expert. */
  probabilities: ArrayLike<number>;
  /** Experts that are announced for the layer. */
  held: ReadonlySet<number>;
}

/** Attention and router as a share of a layer's time: so long after the word at distance 0 the router has chosen. */
const ATTENTION_SHARE = 0.5;

/**
 * The least share of a wrong load that counts as lost. A worker that has nothing else to do loses no time, but its disk and its memory still do work
 * that other requests may need.
 */
const LEAST_LOST_SHARE = 1 / 8;

/** The share of the wrong experts that the next word corrects, if it is not measured. */
const UNKNOWN_CORRECTED = 0.25;

/**
 * The experts of a layer that main announces now, the likeliest first. For each one, the expected stall decides (the wait of main for a load, by
 * probability), and the expected time that a wrong load takes from other loads. An expert is announced if that costs less than both other ways: to
 * wait for the next, surer word on the layer, or to load the expert once the router has chosen it. So how far ahead main announces follows from
 * OD-MoE equation 1: while a load fits into the time that is left at the next word, waiting costs nothing. Pure.
 */
export function chooseAnnounced(layer: ForetoldLayer, costs: AnnouncingCosts): number[] {
  const { probabilities, held } = layer;
  const { workers, slots, loadLayers } = costs;
  const likeliest = Array.from({ length: probabilities.length }, (_, expert) => expert)
    .filter((expert) => !held.has(expert) && probabilityOf(layer, expert) > 0)
    .sort((left, right) => probabilityOf(layer, right) - probabilityOf(layer, left) || left - right);
  const room = Math.max(0, workers * slots - held.size);
  const chosen: number[] = [];
  if (loadLayers <= 0) return chosen;
  const uses = expectedUses(layer);
  for (const expert of likeliest.slice(0, room)) {
    const round = Math.floor((held.size + chosen.length) / workers);
    if (!isWorthIt(probabilityOf(layer, expert), layerTimes(layer, costs, uses, round))) break;
    chosen.push(expert);
  }
  return chosen;
}

/** An announcement is taken back where it costs so much less than it saves: a word that changes little changes no announcement. */
const DOUBTED_SHARE = 0.5;

/**
 * Those of main's own announcements that a newer word does not support any more: the wait that they still save, by probability, is less than the time that
 * they take from other loads. `own`: some of the experts that are held, with the number of layers that main has done since it announced them. In that time
 * their loads went on, so only what is left of them can make main wait. A load that has ended still keeps its slot from others. Pure.
 */
export function chooseDoubted(
  layer: ForetoldLayer,
  own: ReadonlyMap<number, number>,
  costs: AnnouncingCosts,
): number[] {
  if (costs.loadLayers <= 0) return [];
  const uses = expectedUses(layer);
  const since = (expert: number): number => own.get(expert) ?? 0;
  const inTurn = [...layer.held].sort(
    (left, right) =>
      since(right) - since(left) || probabilityOf(layer, right) - probabilityOf(layer, left) || left - right,
  );
  const untilRouter = layer.distance + ATTENTION_SHARE;
  const ends = loadEnds(inTurn.map(since), layer.distance, costs, uses);
  return inTurn.filter((expert, place) => {
    if (!own.has(expert)) return false;
    const probability = probabilityOf(layer, expert);
    const { stallNever, wrong } = layerTimes(layer, costs, uses, Math.floor(place / costs.workers));
    const stallNow = Math.max(0, (ends[place] ?? 0) - untilRouter);
    return probability * (stallNever - stallNow) < DOUBTED_SHARE * (1 - probability) * wrong;
  });
}

/**
 * The times, from now on, at which announced loads end; below 0: so long ago. Workers take them in turn, each one after the other. `since`: layers that
 * main has done since it announced each of them, falling.
 */
function loadEnds(since: readonly number[], distance: number, costs: AnnouncingCosts, uses: number): number[] {
  const free = new Array<number>(costs.workers).fill(-Infinity);
  return since.map((layers, place) => {
    const worker = place % costs.workers;
    const begin = Math.max(free[worker] ?? 0, firstFreeSlot(distance + layers, costs, uses) - layers);
    return (free[worker] = begin + costs.loadLayers);
  });
}

/** An expert's costs in layers, without its probability. */
interface LayerTimes {
  /** Stalls if it is used: announced now, announced at the next word, and not announced. */
  stallNow: number;
  stallLater: number;
  stallNever: number;
  /** Cost if it is not used, announced now; and the part of it that waiting for the next word saves. */
  wrong: number;
  saved: number;
}

function isWorthIt(probability: number, times: LayerTimes): boolean {
  const { stallNow, stallLater, stallNever, wrong, saved } = times;
  const isBetterThanLater = probability * (stallLater - stallNow) > (1 - probability) * saved;
  return isBetterThanLater && probability * (stallNever - stallNow) > (1 - probability) * wrong;
}

/** `uses`: experts of the layer that the pass is expected to use. `round`: number of loads that the worker does for this layer before this one. */
function layerTimes(layer: ForetoldLayer, costs: AnnouncingCosts, uses: number, round: number): LayerTimes {
  const { distance, nextDistance, corrected } = layer;
  const { loadLayers } = costs;
  const untilRouter = distance + ATTENTION_SHARE;
  const start = firstFreeSlot(distance, costs, uses);
  const nextWord = nextDistance === null ? untilRouter : distance - nextDistance;
  const loading = (round + 1) * loadLayers;
  const stallAfter = (begin: number): number => Math.max(0, Math.max(begin, start) + loading - untilRouter);
  // A wrong load ends when the router has chosen, since main then releases the expert.
  const wasted = Math.min(loadLayers, Math.max(0, untilRouter - start));
  const wrong = wasted * lostShare(costs, uses);
  return {
    stallNow: stallAfter(0),
    stallLater: stallAfter(nextWord),
    stallNever: loading,
    wrong,
    saved: wrong * (nextDistance === null ? 1 : corrected),
  };
}

/** Time until the layer's workers have a slot that no layer before this one needs. */
function firstFreeSlot(distance: number, { workers, slots, groups }: AnnouncingCosts, uses: number): number {
  const together = Math.max(1, Math.round((workers * slots) / Math.max(1, uses)));
  // The layer of these workers that must have run before a slot is free.
  const blocking = distance - together * groups;
  return blocking < 0 ? 0 : blocking + 1;
}

/** Share of a wrong load's time that delays other loads: the share of their time in which these workers load. */
function lostShare({ loadLayers, workers, groups }: AnnouncingCosts, uses: number): number {
  const busy = ((uses / workers) * loadLayers) / groups;
  return Math.min(1, Math.max(LEAST_LOST_SHARE, busy));
}

function expectedUses({ probabilities }: ForetoldLayer): number {
  return Array.from(probabilities).reduce((sum, probability) => sum + bounded(probability), 0);
}

function probabilityOf({ probabilities }: ForetoldLayer, expert: number): number {
  return bounded(probabilities[expert] ?? 0);
}

/** A predictor's numbers are not trusted: NaN counts as 0. */
function bounded(probability: number): number {
  return probability > 0 ? Math.min(1, probability) : 0;
}

/**
 * Share of the wrong experts of a word that the next one corrects, from their measured recalls (0 to 1; undefined: not measured).
 */
export function correctedShare(recall: number | undefined, nextRecall: number | undefined): number {
  if (recall === undefined || nextRecall === undefined) return UNKNOWN_CORRECTED;
  if (recall >= 1) return 0;
  return Math.min(1, Math.max(0, 1 - (1 - nextRecall) / (1 - recall)));
}

/** The probabilities that some of the rows uses each expert. `rows`: each row's probabilities, by expert; rows are taken as independent. */
export function unionOfRows(rows: readonly ArrayLike<number>[], experts: number): Float64Array {
  const unused = new Float64Array(experts).fill(1);
  for (const row of rows)
    for (let expert = 0; expert < experts; expert++)
      unused[expert] = (unused[expert] ?? 1) * (1 - bounded(row[expert] ?? 0));
  return unused.map((share) => 1 - share);
}
