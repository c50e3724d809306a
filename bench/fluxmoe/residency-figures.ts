/** Figures 6 and 9 of FluxMoE: the cost of residency, and how the planner follows growing keys and values. */
import { REPLAN_PASSES } from '../../shared/settings/setting-limits.js';
import {
  type LayerResidency,
  lowerLayer,
  planResidency,
  type ResidencyCosts,
  residencyLevel,
  residencyLoadMs,
  residentBytes,
} from '../../shared/decisions/residency/residency-planner.js';
import { type ExpertLayout, layoutOfLayers, uniform } from './expert-layout.js';
import { cell, type FigureCell, type FigureOrder, type FigureResult } from './figure-cells.js';
import { serverLoadOf, measureLayout, measurePasses, onVirtualClock } from './measure-serving.js';
import { PAPER } from './paper-column.js';
import type { ServerModel, ServerProfile } from './server-profile.js';
import { ServerWork } from './server-work.js';
import { type ServerLoad, StreamingServer } from './streaming-server.js';

const MS_PER_S = 1000;
const GB = 1e9;

/** Figure 6: a number of sequences beside which all experts fit. */
const CURVE_POINT = { batch: 32, context: 4096 };
const CURVE_LEVELS = [1, 0.98, 0.96, 0.94, 0.92, 0.9, 0.8, 0.7];
/** Times that differ by less count as equal: the loads of a pass's first layers cannot overlap with any computation. */
const EQUAL_SHARE = 0.02;

/** Figure 9: passes of a session, and the sequences of (a) and (b); each pass adds a position. */
const SESSION_PASSES = 5100;
const SESSION_BATCH = 256;
const SMALL_SESSION_BATCH = 32;
/** Number of passes that run in each interval between plannings; they stand for the others. */
const SETTLING_PASSES = 2;
const SAMPLED_PASSES = 2;

/** Bytes and times of the planner for a served model. */
export function serverResidencyCosts(work: ServerWork): ResidencyCosts {
  const ms = (rate: number): number => (work.expertBytes / rate) * MS_PER_S;
  return {
    bytes: { plain: work.expertBytes, compressed: work.expertBytes * work.costs.compressedShare },
    loadMs: {
      compressed: ms(work.rate('decompressBytesPerS')),
      offloaded: ms(work.rate('expertLinkBytesPerS')),
    },
  };
}

/** Figure 6: starts with all experts plain and moves more and more experts of each layer to host memory. */
export async function residencyCurve(profile: ServerProfile): Promise<FigureResult> {
  const work = new ServerWork(profile.performance, profile.gpu, profile.costs);
  const load = serverLoadOf(profile, CURVE_POINT);
  const theoryMs = work.computeMs(load.sequences, load.positions);
  const cells: FigureCell[] = [cell('figure6', 'theoretical time of computing', 'ms', theoryMs)];
  const points: { loadMs: number; passMs: number }[] = [];
  for (const level of CURVE_LEVELS) {
    const plain = Math.round(work.experts * level);
    const layers = uniform(work, { plain, compressed: 0, offloaded: work.experts - plain });
    const loadMs = residencyLoadMs(layers, serverResidencyCosts(work));
    const { passMs } = await measureLayout(work, layoutOfLayers(work, layers, level < 1), load);
    points.push({ loadMs, passMs });
    cells.push(
      cell('figure6', `alpha ${level}: loading`, 'ms', loadMs),
      cell('figure6', `alpha ${level}: a pass`, 'ms', passMs),
    );
  }
  const hidden = points.filter(({ loadMs }) => loadMs <= theoryMs);
  const open = points.filter(({ loadMs }) => loadMs > theoryMs);
  const isFlat = hidden.every(({ passMs }) => Math.abs(passMs / theoryMs - 1) < EQUAL_SHARE);
  const follows = open.every(({ loadMs, passMs }) => Math.abs(passMs / loadMs - 1) < EQUAL_SHARE);
  const rises = points.every(({ loadMs }, index) => index === 0 || loadMs > (points[index - 1]?.loadMs ?? 0));
  const order = (what: string, holds: boolean): FigureOrder => ({ figure: 'figure6', what, holds });
  return {
    cells,
    orders: [
      order('loading rises as alpha falls', rises),
      order('a pass takes the theoretical time while loading takes less', isFlat),
      order('beyond the knee a pass takes what loading takes', follows && open.length > 0),
    ],
  };
}

/** Figure 9: (a) the model that fits into the cards, and (b) the one that barely fits. */
export async function adaptationFigure(profile: ServerProfile): Promise<FigureResult> {
  const large = await adaptationOf(profile, profile.performance, SESSION_BATCH);
  const small = await smallAdaptation(profile);
  return { cells: [...large.cells, ...small.cells], orders: [...large.orders, ...small.orders] };
}

/** Figure 9(b). The paper's text has no numbers for it. */
async function smallAdaptation(profile: ServerProfile): Promise<FigureResult> {
  const { cells, orders } = await adaptationOf(profile, profile.capacity, SMALL_SESSION_BATCH);
  return {
    cells: cells.map((each) => ({ ...each, what: `(b) ${each.what}`, paper: null })),
    orders: orders.map((order) => ({ ...order, what: `(b) ${order.what}` })),
  };
}

/** The same session with all experts compressed, with the planner, and with moves within one layer at a time. */
async function adaptationOf(profile: ServerProfile, model: ServerModel, batch: number): Promise<FigureResult> {
  const session = await playSession(profile, model, batch);
  const { steps, reclaimedBytes, points } = session;
  const shareOf = (of: 'adapted' | 'unbalanced'): number => Math.min(...points.map((point) => point[of] / point.fixed));
  const paper = PAPER.figure9;
  return {
    cells: [
      cell('figure9', 'experts offloaded of each layer and card', 'steps', steps, paper.steps),
      cell('figure9', 'times that alpha is lowered', 'steps', session.changes, paper.steps),
      cell('figure9', 'memory that experts have given back', 'GB', reclaimedBytes / GB, paper.reclaimedGb),
      cell('figure9', 'alpha at the end', 'ratio', session.level),
      cell(
        'figure9',
        'planner over fixed alpha, least of all intervals',
        'ratio',
        shareOf('adapted'),
        paper.leastOfFixed,
      ),
      cell('figure9', 'moves within one layer over fixed alpha, least', 'ratio', shareOf('unbalanced')),
    ],
    orders: [
      {
        figure: 'figure9',
        what: 'the planner is never slower than fixed alpha (0.5 %)',
        holds: shareOf('adapted') > 0.995,
      },
      {
        figure: 'figure9',
        what: 'moves within one layer are slower',
        holds: shareOf('unbalanced') < shareOf('adapted'),
      },
    ],
  };
}

interface SessionPoint {
  fixed: number;
  adapted: number;
  unbalanced: number;
}

interface Session {
  /** Tokens a second, one point per interval. */
  points: SessionPoint[];
  /** Mean number of offloaded experts of each layer and card; a step down offloads one. */
  steps: number;
  /** Number of plannings that lowered the residency. */
  changes: number;
  reclaimedBytes: number;
  level: number;
}

function playSession(profile: ServerProfile, model: ServerModel, batch: number): Promise<Session> {
  const work = new ServerWork(model, profile.gpu, profile.costs);
  const costs = serverResidencyCosts(work);
  const start = uniform(work, { plain: 0, compressed: work.experts, offloaded: 0 });
  const layout = (layers: readonly LayerResidency[]): ExpertLayout => layoutOfLayers(work, layers, true);
  return onVirtualClock(async (runtime) => {
    const [fixed, adapted, unbalanced] = [0, 1, 2].map(() => new StreamingServer(runtime, work, layout(start)));
    const points: SessionPoint[] = [];
    let layers = start;
    let inOneLayer = start;
    let changes = 0;
    for (let pass = REPLAN_PASSES; pass <= SESSION_PASSES; pass += REPLAN_PASSES) {
      const load = { sequences: batch, positions: Math.round(pass * profile.costs.contextShare) };
      const measure = async (server: StreamingServer | undefined) =>
        server === undefined ? null : measurePasses(server, load, SETTLING_PASSES, SAMPLED_PASSES);
      const [atFixed, atAdapted, atUnbalanced] = [
        await measure(fixed),
        await measure(adapted),
        await measure(unbalanced),
      ];
      points.push({
        fixed: atFixed?.tokensPerS ?? 0,
        adapted: atAdapted?.tokensPerS ?? 0,
        unbalanced: atUnbalanced?.tokensPerS ?? 0,
      });
      const plan = planResidency({
        layers,
        costs,
        expertsPerLayer: model.gpus,
        keepsPlain: false,
        keepsCompressed: true,
        layerComputeMs: layerTimes(work, load),
        deviceBytes: work.freeBytes - work.windowBytes,
        cacheBytes: batch * work.sequenceBytes(load.positions),
      });
      if (plan.change !== 'lowered' && plan.change !== 'forced') continue;
      inOneLayer = lowerOneLayer(inOneLayer, changes, costs, movedExperts(layers, plan.layers));
      layers = plan.layers;
      changes += 1;
      adapted?.changeLayout(layout(layers));
      unbalanced?.changeLayout(layout(inOneLayer));
    }
    const reclaimedBytes = residentBytes(start, costs) - residentBytes(layers, costs);
    const steps = movedExperts(start, layers) / (work.layers * model.gpus);
    return { points, steps, changes, reclaimedBytes, level: residencyLevel(layers) };
  });
}

function movedExperts(before: readonly LayerResidency[], after: readonly LayerResidency[]): number {
  return after.reduce((sum, { offloaded }, index) => sum + offloaded - (before[index]?.offloaded ?? 0), 0);
}

/** tau_comp of each layer for all sequences together; the LM head counts to the last layer. */
function layerTimes(work: ServerWork, { sequences, positions }: ServerLoad): number[] {
  return Array.from({ length: work.layers }, (_, layer) => {
    const headMs = layer === work.layers - 1 ? work.headMs(sequences) : 0;
    return work.layerMs(layer, sequences, positions) + headMs;
  });
}

/** Takes as many experts from one layer as the planner takes from all layers. */
function lowerOneLayer(
  layers: readonly LayerResidency[],
  step: number,
  costs: ResidencyCosts,
  experts: number,
): LayerResidency[] {
  return layers.map((layer, index) => (index === step % layers.length ? lowerLayer(layer, costs, experts) : layer));
}
