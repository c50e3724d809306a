import type { PassTimeline } from '../../shared/wire/cluster-events.js';
import type { NodeStatus, StatusReply } from '../../shared/wire/messages.js';
import type { Runtime } from '../../shared/base/runtime/runtime.js';
import type { RosterObserver } from '../cluster/roster.js';
import type { PeerCounts } from '../cluster/peer-totals.js';
import type { PassObserver } from '../pass/pass-observer.js';
import type { RequestObserver } from '../rpc/request-observer.js';
import { AnswerTotals } from './answer-totals.js';
import { ClusterFeed } from './cluster-feed.js';
import { clusterView, type ServedCluster } from './cluster-view.js';
import { ExpertHeatCounts } from './expert-heat.js';
import { Figures } from './figures.js';
import { type LostNode, LostNodes } from './lost-nodes.js';
import type { PassRecord } from './pass-record.js';
import { PassRecorder } from './pass-recorder.js';
import { passTimeline } from './pass-timeline.js';

/** The state of main at present. */
export interface MainMoment extends Pick<StatusReply, 'activeSequences' | 'queuedRequests'> {
  status(): StatusReply;
  peerCounts: ReadonlyMap<string, PeerCounts>;
}

/** Gathers the events of main for the feed. */
export class MainEvents {
  readonly feed: ClusterFeed;
  readonly requests: RequestObserver;
  readonly nodes: RosterObserver;
  readonly passes: PassObserver;
  private readonly lost: LostNodes;

  /** `moment`: called from start() on. */
  constructor(served: ServedCluster, moment: () => MainMoment, runtime: Runtime, startedMs: number) {
    const answers = new AnswerTotals();
    const figures = new Figures();
    const lost = (this.lost = new LostNodes(() => runtime.nowMs()));
    const heat = new ExpertHeatCounts(served);
    // Listeners that begin while the record exists share its timeline, which is large for passes with thousands of experts.
    const timelines = new WeakMap<PassRecord, PassTimeline>();
    const timelineOf = (record: PassRecord): PassTimeline => {
      const timeline = timelines.get(record) ?? passTimeline(record, startedMs);
      timelines.set(record, timeline);
      return timeline;
    };
    const passes = new PassRecorder(
      () => runtime.nowMs(),
      heat,
      (record) => {
        if (this.feed.wantsPass) this.feed.passEnded(timelineOf(record));
      },
    );
    this.passes = passes;
    const view = () => {
      const status = moment().status();
      return clusterView(served, {
        atMs: Math.round(runtime.nowMs() - startedMs),
        status,
        lost: this.lostBeside(status.nodes),
      });
    };
    const counts = () => {
      const { activeSequences: activeRequests, queuedRequests, peerCounts: peers } = moment();
      return { answers: answers.counts(), peers, activeRequests, queuedRequests, ...passes.counts };
    };
    const sources = {
      view,
      figures,
      counts,
      recall: () => answers.recall(),
      heat,
      passes: () => passes.records.map(timelineOf),
    };
    this.feed = new ClusterFeed(sources, runtime, startedMs);
    this.requests = {
      admitted: () => undefined,
      firstToken: (ttftMs) => figures.firstToken(ttftMs),
      token: () => figures.token(),
      answering: (source) => answers.begun(source),
      answered: (source) => answers.answered(source),
      ended: () => undefined,
    };
    this.nodes = {
      changed: () => this.feed.nodesChanged(),
      lost: (link, reason, wasUsed) => {
        lost.lost(link, reason, wasUsed);
        this.feed.nodesChanged();
      },
      distrusted: () => this.feed.nodesChanged(),
    };
  }

  /** Lost nodes that are not among `nodes`. */
  lostBeside(nodes: readonly NodeStatus[]): LostNode[] {
    return this.lost.list(new Set(nodes.map(({ identity }) => identity.id)));
  }
}
