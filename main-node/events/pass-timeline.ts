import type {
  ExpertTimeline,
  LayerTimeline,
  PassTimeline,
  PredictionOutcome,
} from '../../shared/wire/cluster-events.js';
import type { ExpertRecord, LayerRecord, PassRecord, ArrivedPrediction } from './pass-record.js';

const US_PER_MS = 1000;

/** Makes the timeline of a pass, with times relative to its begin. `startedMs`: when main started, on the clock of the record. */
export function passTimeline(record: PassRecord, startedMs: number): PassTimeline {
  const { number, beginMs, endMs, members, layers, predictions } = record;
  return {
    number,
    atMs: rounded(beginMs - startedMs),
    members,
    durationMs: rounded(endMs - beginMs),
    layers: layers.map((layer) => layerTimeline(layer, predictions, beginMs)),
    predictions: predictions.map(({ sequence, layer, receivedMs, runUs, experts }) => ({
      sequence,
      layer,
      receivedMs: rounded(receivedMs - beginMs),
      runMs: runUs / US_PER_MS,
      experts: [...experts],
    })),
  };
}

function layerTimeline(
  record: LayerRecord,
  predictions: readonly ArrivedPrediction[],
  passBeginMs: number,
): LayerTimeline {
  const { layer, beginMs, routedMs, answeredMs, endMs } = record;
  const late = new Set(
    predictions.flatMap((arrival) => (arrival.layer === layer && arrival.receivedMs > routedMs ? arrival.experts : [])),
  );
  return {
    layer,
    beginMs: rounded(beginMs - passBeginMs),
    routedMs: rounded(routedMs - passBeginMs),
    answeredMs: rounded(answeredMs - passBeginMs),
    endMs: rounded(endMs - passBeginMs),
    experts: [...byExpertAndWorker(record.experts)].map((results) => {
      const { expert } = results[0];
      const whenRouted = record.outcomes.get(expert) ?? 'unpredicted';
      const outcome = whenRouted === 'mispredicted' ? (late.has(expert) ? 'late' : 'missed') : whenRouted;
      return expertTimeline(results, outcome, passBeginMs);
    }),
  };
}

type Results = readonly [ExpertRecord, ...ExpertRecord[]];

/** Groups the results: rows in mini-batches give an expert several of them. */
function byExpertAndWorker(records: readonly ExpertRecord[]): Iterable<Results> {
  const found = new Map<string, [ExpertRecord, ...ExpertRecord[]]>();
  for (const record of records) {
    const key = `${record.expert} ${record.workerId}`;
    const before = found.get(key);
    if (before === undefined) found.set(key, [record]);
    else before.push(record);
  }
  return found.values();
}

function expertTimeline(results: Results, outcome: PredictionOutcome, passBeginMs: number): ExpertTimeline {
  const placed = results.map(placeOf);
  const loads = placed.flatMap(({ loadMs }) => (loadMs === null ? [] : [loadMs]));
  const [load = null] = loads;
  const relative = (times: readonly number[], choose: (...times: number[]) => number): number =>
    rounded(choose(...times) - passBeginMs);
  const [{ expert, workerId }] = results;
  const isPredicted = outcome === 'predicted' || outcome === 'announced';
  return {
    expert,
    worker: workerId,
    rows: results.reduce((sum, { rows }) => sum + rows, 0),
    foretold: outcome,
    reloaded: results.some(({ resent, wasLoaded }) => resent || (!isPredicted && !wasLoaded)),
    sentMs: relative(
      placed.map(({ sentMs }) => sentMs),
      Math.min,
    ),
    arrivedMs: relative(
      placed.map(({ arrivedMs }) => arrivedMs),
      Math.min,
    ),
    loadBeginMs: load === null ? null : rounded(load.beginMs - passBeginMs),
    loadEndMs: load === null ? null : rounded(load.endMs - passBeginMs),
    executeBeginMs: relative(
      placed.map(({ executeBeginMs }) => executeBeginMs),
      Math.min,
    ),
    executeEndMs: relative(
      placed.map(({ executeEndMs }) => executeEndMs),
      Math.max,
    ),
    receivedMs: relative(
      results.map(({ receivedMs }) => receivedMs),
      Math.max,
    ),
  };
}

interface PlacedResult {
  sentMs: number;
  arrivedMs: number;
  loadMs: { beginMs: number; endMs: number } | null;
  executeBeginMs: number;
  executeEndMs: number;
}

/**
 * Places a worker's times on main's clock. The time between main's message and the reply that the worker did not spend is split in halves: one for
 * the way there, one for the way back.
 */
function placeOf(result: ExpertRecord): PlacedResult {
  const { receivedMs, loadUs, wasLoaded, loadedBeforeUs, stallUs, begunUs, executeUs, answeredUs } = result;
  const atWorkerMs = answeredUs / US_PER_MS;
  const sentMs = result.sentMs ?? receivedMs - atWorkerMs;
  const arrivedMs = sentMs + Math.max(0, receivedMs - sentMs - atWorkerMs) / 2;
  const loadEndMs = arrivedMs + (wasLoaded ? -loadedBeforeUs : stallUs) / US_PER_MS;
  const executeBeginMs = arrivedMs + begunUs / US_PER_MS;
  return {
    sentMs,
    arrivedMs,
    executeBeginMs,
    executeEndMs: executeBeginMs + executeUs / US_PER_MS,
    loadMs: loadUs === 0 ? null : { beginMs: loadEndMs - loadUs / US_PER_MS, endMs: loadEndMs },
  };
}

/** Rounds to the microsecond. */
function rounded(timeMs: number): number {
  return Math.round(timeMs * US_PER_MS) / US_PER_MS;
}
