import type { Model } from '../../native/index.js';
import type { NodeSettings } from '../../shared/settings/node-settings.js';
import type { Logger } from '../../shared/base/log/logger.js';
import type { Runtime } from '../../shared/base/runtime/runtime.js';
import type { PassLoop } from '../batching/pass-loop.js';
import type { ContextRoom } from '../room/context-room.js';
import type { Roster } from '../cluster/roster.js';
import type { PassEngine } from '../pass/run-layer.js';
import type { ExecutionChecks } from '../verify/execution-checks.js';
import type { ClusterCosts, DraftCostMeter } from './draft-costs.js';
import type { EngineDrafting } from './engine-drafting.js';
import type { CachedNews } from './cached-news.js';
import type { PredictionPost } from './prediction-post.js';

/** The parts of main that all its sequences share. */
export interface ClusterEngine extends PassEngine {
  readonly model: Model;
  readonly roster: Roster;
  readonly predictionPost: PredictionPost;
  readonly cachedNews: CachedNews<object>;
  /** Runs the rows of all sequences. */
  readonly passLoop: PassLoop;
  /** Memory for the rows of all sequences, and for the retained rows of earlier ones. */
  readonly room: ContextRoom;
  readonly align: NodeSettings['align'];
  readonly drafting: EngineDrafting;
  readonly draftCosts: DraftCostMeter;
  readonly checks: ExecutionChecks | null;
  readonly runtime: Runtime;
  readonly log: Logger;
}

/** The present sizes and costs of the cluster, for the choice of a pass's rows. The time of a load is the mean over the workers. */
export function clusterCosts({
  roster,
  shape,
  drafting,
  spread,
}: Pick<ClusterEngine, 'roster' | 'shape' | 'drafting' | 'spread'>): ClusterCosts {
  const statuses = roster.connectedWorkers().flatMap(({ status }) => (status === null ? [] : [status]));
  const loadTimesMs = statuses.filter(({ loads }) => loads > 0).map(({ loadMsMean }) => loadMsMean);
  const placed = roster.placement?.workers ?? [];
  const groups = roster.placement?.groups.length ?? 0;
  return {
    loadMs: loadTimesMs.reduce((sum, ms) => sum + ms, 0) / Math.max(1, loadTimesMs.length),
    optimistic: drafting.optimistic,
    workers: Math.max(1, placed.length),
    layerWorkers: Math.max(1, spread === 'all' ? placed.length : placed.length / Math.max(1, groups)),
    slots: Math.max(1, ...statuses.map(({ slots }) => slots)),
    layers: shape.expertLayers,
    experts: shape.experts,
    expertsPerToken: shape.expertsPerToken,
  };
}
