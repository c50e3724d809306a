import type {
  ExpertTimeline,
  LayerTimeline,
  PassTimeline,
  PredictionTimeline,
} from '../../shared/wire/cluster-events.js';

export interface SamplePlan {
  number?: number;
  layers?: number;
  workers?: number;
  expertsPerLayer?: number;
  /** Time of a load in each layer whose expert was not predicted. */
  loadMs?: number;
}

/** Some in a row, with the workers of the made-up cluster. */
export function samplePasses(): PassTimeline[] {
  return Array.from({ length: PASSES }, (_, index) => {
    const pass = samplePass({
      number: 100 + index,
      layers: 24,
      workers: 8,
      expertsPerLayer: 4,
      loadMs: 2 + (index % 3),
    });
    for (const expert of pass.layers.flatMap(({ experts }) => experts)) {
      expert.worker = expert.worker.replace(/^worker-(\d+)$/, (_, number) => `orin-${Number(number) + 1}`);
    }
    return pass;
  });
}

const PASSES = 12;
const FORETOLD = ['predicted', 'predicted', 'late', 'predicted', 'missed'] as const;

/** A decode pass as main tells it: every fifth expert was missed, every fifth predicted late, the others in time. */
export function samplePass(plan: SamplePlan = {}): PassTimeline {
  const { number = 7, layers = 4, workers = 2, expertsPerLayer = 2, loadMs = 3 } = plan;
  const traced: LayerTimeline[] = [];
  const predictions: PredictionTimeline[] = [];
  let nowMs = 0.25;
  for (let layer = 0; layer < layers; layer++) {
    const beginMs = nowMs;
    const routedMs = beginMs + 0.8 + (layer % 3) * 0.1;
    const experts = Array.from({ length: expertsPerLayer }, (_, index) => {
      const worker = (layer * expertsPerLayer + index) % workers;
      const foretold = FORETOLD[(layer + 2 * index + number) % FORETOLD.length] ?? 'predicted';
      return expertTimeline(`worker-${worker}`, (layer * 3 + index * 5) % 16, foretold, routedMs, loadMs);
    });
    const answeredMs = Math.max(...experts.map(({ receivedMs }) => receivedMs));
    nowMs = answeredMs + 0.1;
    traced.push({ layer, beginMs, routedMs, answeredMs, endMs: nowMs, experts });
    const predicted = experts.filter(({ foretold }) => foretold !== 'missed').map(({ expert }) => expert);
    predictions.push({ sequence: 3, layer, receivedMs: layer * 0.9 - 2, runMs: (layer + 1) * 0.7, experts: predicted });
  }
  return {
    number,
    atMs: 1000 + number * 50,
    members: [{ sequence: 3, position: 40 + number, rows: 1, kind: 'decode' }],
    durationMs: nowMs + 0.6,
    layers: traced,
    predictions,
  };
}

function expertTimeline(
  worker: string,
  expert: number,
  foretold: 'predicted' | 'late' | 'missed',
  routedMs: number,
  loadMs: number,
): ExpertTimeline {
  const sentMs = routedMs + 0.02;
  const arrivedMs = sentMs + 0.15;
  const headStartMs = { predicted: loadMs + 0.4, late: loadMs * 0.4, missed: 0 }[foretold];
  const loadBeginMs = arrivedMs - headStartMs;
  const executeBeginMs = Math.max(arrivedMs, loadBeginMs + loadMs);
  return {
    expert,
    worker,
    rows: 1,
    foretold,
    reloaded: foretold === 'missed',
    sentMs,
    arrivedMs,
    loadBeginMs,
    loadEndMs: loadBeginMs + loadMs,
    executeBeginMs,
    executeEndMs: executeBeginMs + 0.7,
    receivedMs: executeBeginMs + 0.85,
  };
}
