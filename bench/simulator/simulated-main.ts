import { DraftBook } from '../../main-node/decode/draft-book.js';
import { DraftCostMeter } from '../../main-node/decode/draft-costs.js';
import { FirstLayerAhead } from '../../main-node/decode/first-layer-ahead.js';
import { RandomPrefetch } from '../../main-node/decode/random-prefetch.js';
import type { ShadowFeed } from '../../main-node/decode/shadow-feed.js';
import { MAX_DRAFT_ROWS } from '../../shared/drafting/index.js';
import type { DraftToken, Prediction } from '../../shared/rpc/messages.js';
import { DecodePass, predictionKey, type PassHelpers } from './decode-pass.js';
import type { SimulatedCluster } from './simulated-cluster.js';
import { createSimulatedFeed } from './simulated-feed.js';
import { SimulatedPrefill } from './simulated-prefill.js';
import { RIGHT_TOKEN, SimulatedShadow } from './simulated-shadow.js';

/** When an answer's tokens were there, from the request's arrival on. */
export interface AnswerTimes {
  ttftMs: number;
  lastTokenMs: number;
  tokens: number;
}

/** Main with one request: prefill, then pass after pass until the answer has its tokens. */
export class SimulatedMain {
  readonly #feed: ShadowFeed;
  readonly #drafts = new DraftBook();
  readonly #costs = new DraftCostMeter();
  readonly #promptTokens: number;
  /** Behind the last position that is run: the answer's last token is sampled and not run. */
  readonly #endPosition: number;
  readonly #predictions = new Map<string, Prediction>();
  readonly #helpers: PassHelpers;
  readonly #drafting: boolean;
  readonly #shadow: SimulatedShadow | null;
  readonly #beginMs: number;
  #next: number;
  #firstTokenMs = 0;
  #nextRows = 1;
  /** Main waits for this many drafts of the pass at this position. */
  #waiting: { position: number; drafts: number; sinceMs: number; begin: () => void } | null = null;

  /** `tokens`: of the answer, at least 1. */
  constructor(
    private readonly cluster: SimulatedCluster,
    private readonly sequence: number,
    private readonly prompt: number,
    private readonly tokens: number,
    private readonly onDone: (times: AnswerTimes) => void,
  ) {
    const { setUp, trace } = cluster;
    const { rows, optimistic } = setUp.drafting;
    const { source } = setUp.prediction;
    this.#promptTokens = trace.promptTokens(prompt);
    this.#next = this.#promptTokens;
    this.#endPosition = this.#promptTokens + tokens - 1;
    this.#drafting = source === 'sep' && rows !== 1;
    const start = { sequence, prompt, promptTokens: this.#promptTokens, maxPositions: this.#promptTokens + tokens };
    const listener = {
      predicted: (prediction: Prediction): void => this.#predicted(prediction),
      drafted: (draft: DraftToken): void => this.#drafted(draft),
    };
    this.#shadow = source === 'sep' ? new SimulatedShadow(cluster, start, listener) : null;
    this.#feed = createSimulatedFeed(cluster, this.#shadow, start);
    this.#beginMs = cluster.clock.nowMs;
    const last = this.#endPosition - 1;
    const loadsAhead = source === 'sep' && setUp.placement.spread === 'all' && !optimistic && rows === 1;
    this.#helpers = {
      predictions: this.#predictions,
      feed: this.#feed,
      firstLayer: loadsAhead ? new FirstLayerAhead(sequence, last, cluster) : null,
      random: source === 'random' ? new RandomPrefetch(sequence, last, cluster, (told) => this.#predicted(told)) : null,
    };
  }

  run(): void {
    const { cluster, sequence, prompt } = this;
    this.#feed.followShadow(new Array<number>(this.#promptTokens).fill(RIGHT_TOKEN), 0);
    new SimulatedPrefill(cluster, sequence, prompt, this.#promptTokens, this.#feed).run(() => {
      this.#firstTokenMs = cluster.clock.nowMs;
      this.#drafts.settle(this.#promptTokens, RIGHT_TOKEN);
      this.#helpers.random?.begin(this.#promptTokens);
      this.#decode(this.#promptTokens);
    });
  }

  #decode(position: number): void {
    if (position >= this.#endPosition) return this.#end();
    const drafts = Math.min(this.#wantedRows(), this.#endPosition - position) - 1;
    const begin = (): void => this.#begin(position, this.#drafts.following(position, drafts).tokenIds);
    this.#next = position + 1;
    if (drafts === 0 || this.cluster.setUp.drafting.optimistic) return begin();
    this.#announce(position, 0, drafts + 1);
    this.#waiting = { position, drafts, sinceMs: this.cluster.clock.nowMs, begin };
    this.#beginWhenReady();
  }

  #begin(position: number, drafts: readonly number[]): void {
    const rows = 1 + drafts.length;
    const wrong = drafts.findIndex((token) => token !== RIGHT_TOKEN);
    const rightRows = wrong < 0 ? rows : 1 + wrong;
    this.#nextRows = Math.max(1, Math.min(this.#wantedRows(), this.#endPosition - position - rows));
    this.#announce(position, rows, this.#nextRows);
    const { sequence, prompt } = this;
    const setting = { sequence, prompt, position, rows, rightRows };
    new DecodePass(this.cluster, setting, this.#helpers).run((layersMs) => {
      this.#costs.passed(rows, this.cluster.trace.layers, layersMs);
      this.#passDone(position, rows, rightRows);
    });
  }

  #passDone(position: number, rows: number, rightRows: number): void {
    const { recorder } = this.cluster;
    this.#feed.passEnded();
    recorder.drafts += rows - 1;
    recorder.acceptedDrafts += rightRows - 1;
    const next = position + rightRows;
    for (let sampled = position + 1; sampled <= next; sampled += 1) {
      const verdict = this.#drafts.settle(sampled, RIGHT_TOKEN);
      if (verdict !== 'none') this.#costs.drafted(verdict === 'right');
      // Drafts that were right are main's tokens now.
      if (sampled < next) this.#announce(sampled, 0, this.#nextRows);
    }
    if (rightRows < rows) this.#feed.rewind(next);
    for (const [key, kept] of this.#predictions) if (kept.position < next) this.#predictions.delete(key);
    this.#decode(next);
  }

  #announce(position: number, rows: number, nextRows: number): void {
    this.#feed.token({ position, tokenId: RIGHT_TOKEN, rows, nextRows, branch: this.#drafts.branch });
  }

  #wantedRows(): number {
    if (!this.#drafting) return 1;
    const { setUp, times, trace, placement } = this.cluster;
    if (setUp.drafting.rows !== 'auto') return Math.min(setUp.drafting.rows, MAX_DRAFT_ROWS);
    return this.#costs.rows({
      ...{ loadMs: times.worker.loadMs, optimistic: setUp.drafting.optimistic },
      ...{ workers: setUp.workers, slots: setUp.slots },
      layerWorkers: setUp.placement.spread === 'all' ? setUp.workers : setUp.workers / placement.groups.length,
      ...{ layers: trace.layers, experts: trace.experts, expertsPerToken: trace.expertsPerToken },
    });
  }

  #predicted(prediction: Prediction): void {
    const { position, layer, restart } = prediction;
    if (!restart) {
      this.#predictions.set(predictionKey(position, layer), prediction);
      return;
    }
    for (const [key, kept] of this.#predictions) if (kept.position >= position) this.#predictions.delete(key);
    this.#drafts.restart(position);
  }

  #drafted(draft: DraftToken): void {
    this.#costs.shadowRan(draft.runUs);
    if (this.#drafts.arrive(draft, this.#next)) this.#beginWhenReady();
  }

  #beginWhenReady(): void {
    const waiting = this.#waiting;
    if (waiting === null) return;
    const { tokenIds, complete } = this.#drafts.following(waiting.position, waiting.drafts);
    if (tokenIds.length < waiting.drafts && !complete) return;
    this.#waiting = null;
    this.cluster.recorder.draftWaitMs += this.cluster.clock.nowMs - waiting.sinceMs;
    waiting.begin();
  }

  #end(): void {
    const { cluster } = this;
    this.#shadow?.end();
    const released = { sequence: this.sequence, position: 0, layer: 0, experts: [] };
    for (const id of cluster.workers.keys()) cluster.release(id, released);
    this.onDone({
      ttftMs: this.#firstTokenMs - this.#beginMs,
      lastTokenMs: cluster.clock.nowMs - this.#beginMs,
      tokens: this.tokens,
    });
  }
}
