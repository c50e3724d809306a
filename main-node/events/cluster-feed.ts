import {
  type ClusterEvent,
  type ClusterData,
  type ExpertHeat,
  PASS_EVENTS_PER_S,
  type PassTimeline,
  type RecallView,
} from '../../shared/wire/cluster-events.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { Runtime, Timer } from '../../shared/base/runtime/runtime.js';
import { ListenerQueue } from './listener-queue.js';
import type { FigureCounts, Figures } from './figures.js';

/** Most listeners at a time. */
export const MAX_LISTENERS = 64;
/** Interval at which figures are taken and the cluster is reported. */
const SAMPLE_MS = 1000;
/** Number of samples between two reports of recall and heat. */
const SAMPLES_BETWEEN_LOOKS = 5;
/** Nodes that come or go within this time are reported together. */
const NODES_CHANGED_MS = 100;
const PASS_SPACING_MS = 1000 / PASS_EVENTS_PER_S;
/** Most experts of passes that are reported in a second: each takes a third of a kilobyte, for every listener. Larger passes come less often. */
export const REPORTED_EXPERTS_PER_S = 4096;

/** The sources of the feed's events. */
export interface FeedSources {
  view(): ClusterData;
  figures: Figures;
  counts(): FigureCounts;
  recall(): RecallView;
  heat: { view(): ExpertHeat; fade(): void };
  /** The last RECORDED_PASSES passes, the oldest first. */
  passes(): PassTimeline[];
}

/** Sends the events of the cluster to the listeners. Nothing is computed while there is no listener, except the figures. */
export class ClusterFeed {
  private readonly queues = new Set<ListenerQueue>();
  private timer: Timer | null = null;
  private soon: Timer | null = null;
  private samples = 0;
  private nextPassMs = 0;
  private stopped = false;

  constructor(
    private readonly sources: FeedSources,
    private readonly runtime: Runtime,
    private readonly startedMs: number,
  ) {}

  start(): void {
    this.timer = this.runtime.every(SAMPLE_MS, () => this.sample());
  }

  get listenerCount(): number {
    return this.queues.size;
  }

  /** True if some listener wants passes, and one may be sent now. */
  get wantsPass(): boolean {
    if (this.runtime.nowMs() < this.nextPassMs) return false;
    for (const { wantsPasses } of this.queues) if (wantsPasses) return true;
    return false;
  }

  /** Returns a queue that holds the present state and gets all later events, until it is ended. Throws QUEUE_FULL; NO_MAIN once main stops. */
  listen(wantsPasses: boolean): ListenerQueue {
    if (this.stopped) throw new OdmoeError('NO_MAIN', 'main is being stopped');
    if (this.queues.size >= MAX_LISTENERS) {
      throw new OdmoeError(
        'QUEUE_FULL',
        `${MAX_LISTENERS} listeners follow the cluster already; close one of their pages, or ask again later`,
      );
    }
    const { sources } = this;
    const queue = new ListenerQueue(wantsPasses, (ended) => this.queues.delete(ended));
    this.queues.add(queue);
    queue.put({ type: 'cluster', cluster: sources.view() });
    queue.put({ type: 'figures', samples: [...sources.figures.remembered] });
    queue.put({ type: 'recall', recall: sources.recall() });
    queue.put({ type: 'heat', heat: sources.heat.view() });
    if (wantsPasses) for (const pass of sources.passes()) queue.put({ type: 'pass', pass });
    return queue;
  }

  /** A node has connected or disconnected. */
  nodesChanged(): void {
    if (this.stopped || this.queues.size === 0) return;
    this.soon ??= this.runtime.after(NODES_CHANGED_MS, () => {
      this.soon = null;
      this.tellCluster();
    });
  }

  /** A pass has ended; call this only if `wantsPass` is true. */
  passEnded(pass: PassTimeline): void {
    const experts = pass.layers.reduce((sum, layer) => sum + layer.experts.length, 0);
    this.nextPassMs = this.runtime.nowMs() + Math.max(PASS_SPACING_MS, (1000 * experts) / REPORTED_EXPERTS_PER_S);
    this.tell({ type: 'pass', pass });
  }

  /** Ends all listeners. Idempotent. */
  stop(): void {
    this.stopped = true;
    this.timer?.cancel();
    this.soon?.cancel();
    for (const queue of [...this.queues]) queue.end();
  }

  private sample(): void {
    const { sources, runtime } = this;
    const sample = sources.figures.sample(runtime.nowMs() - this.startedMs, sources.counts());
    this.samples += 1;
    const isLook = this.samples % SAMPLES_BETWEEN_LOOKS === 0;
    if (isLook) sources.heat.fade();
    if (this.queues.size === 0) return;
    this.tellCluster();
    this.tell({ type: 'figures', samples: [sample] });
    if (!isLook) return;
    this.tell({ type: 'recall', recall: sources.recall() });
    this.tell({ type: 'heat', heat: sources.heat.view() });
  }

  private tellCluster(): void {
    if (this.queues.size > 0) this.tell({ type: 'cluster', cluster: this.sources.view() });
  }

  private tell(event: ClusterEvent): void {
    for (const queue of [...this.queues]) queue.put(event);
  }
}
