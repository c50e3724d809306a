import { FirstLayerAhead } from '../../main-node/decode/first-layer-ahead.js';
import { PredictionPost } from '../../main-node/decode/prediction-post.js';
import { RandomPrefetch } from '../../main-node/decode/random-prefetch.js';
import { SequencePredictions } from '../../main-node/decode/sequence-predictions.js';
import type { FedShadow, ShadowFeed } from '../../main-node/decode/shadow-feed.js';
import { DecodePass, type PassHelpers } from './decode-pass.js';
import type { SimulatedCluster } from './simulated-cluster.js';
import { SimulatedDrafting } from './simulated-drafting.js';
import { createSimulatedFeed, linkToShadow } from './simulated-feed.js';
import { SimulatedPrefill } from './simulated-prefill.js';
import { RIGHT_TOKEN, SimulatedShadow, type ShadowedSequence } from './simulated-shadow.js';

const nobodyWaits = (): never => {
  throw new Error('the simulator waits on its own clock');
};

/** Nobody samples from the logits of a simulated pass. */
const NO_LOGITS = new Float32Array(0);

/** When an answer's tokens were there, from the request's arrival on. */
export interface AnswerTimes {
  ttftMs: number;
  lastTokenMs: number;
  tokens: number;
}

/** Main with one request: prefill, then pass after pass until the answer has its tokens, as the daemon's ClusterSequence does. */
export class SimulatedMain {
  readonly #feed: ShadowFeed;
  readonly #drafting: SimulatedDrafting;
  readonly #router: PredictionPost;
  readonly #promptTokens: number;
  /** Behind the last position that is run: the answer's last token is sampled and not run. */
  readonly #endPosition: number;
  readonly #helpers: PassHelpers;
  readonly #beginMs: number;
  #firstTokenMs = 0;
  #nextRows = 1;
  /** Positions whose keys and values have been written. */
  #written = 0;

  /** `tokens`: of the answer, at least 1. */
  constructor(
    private readonly cluster: SimulatedCluster,
    private readonly sequence: number,
    private readonly prompt: number,
    private readonly tokens: number,
    private readonly onDone: (times: AnswerTimes) => void,
  ) {
    const { setUp, trace, clock, draftCosts } = cluster;
    const { source } = setUp.prediction;
    const promptTokens = trace.promptTokens(prompt);
    this.#promptTokens = promptTokens;
    this.#endPosition = promptTokens + tokens - 1;
    this.#beginMs = clock.nowMs;
    const lastPosition = this.#endPosition - 1;
    const options = { ...setUp.drafting, promptTokens, lastPosition };
    this.#drafting = new SimulatedDrafting(options, draftCosts, () => cluster.rowsThatPay(), clock);
    this.#router = new PredictionPost(cluster);
    const start = { sequence, prompt, promptTokens, maxPositions: promptTokens + tokens };
    const fed = source === 'sep' ? this.#createShadow(start) : null;
    this.#feed = createSimulatedFeed(cluster, fed, start);
    const predictions = new SequencePredictions(promptTokens, trace.layers, { after: nobodyWaits });
    this.#helpers = {
      ...{ predictions, feed: this.#feed },
      firstLayer: cluster.loadsFirstLayerAhead ? new FirstLayerAhead(sequence, lastPosition, cluster) : null,
      random:
        source === 'random'
          ? new RandomPrefetch(sequence, lastPosition, cluster, (told) => predictions.arrive(told))
          : null,
    };
    this.#router.open(sequence, { predictions, feed: this.#feed, drafts: this.#drafting });
  }

  run(): void {
    const { cluster, sequence, prompt } = this;
    this.#feed.followShadow(new Array<number>(this.#promptTokens).fill(RIGHT_TOKEN), 0);
    new SimulatedPrefill(cluster, sequence, prompt, this.#promptTokens, this.#feed).run(() => {
      this.#firstTokenMs = cluster.clock.nowMs;
      this.#written = this.#promptTokens;
      this.#decode(this.#promptTokens);
    });
  }

  #createShadow(start: ShadowedSequence): FedShadow {
    const shadow: SimulatedShadow = new SimulatedShadow(this.cluster, start, {
      predicted: (prediction) => this.#router.arrive(prediction, link),
      drafted: (draft) => this.#router.draft(draft, link),
    });
    const link = linkToShadow(this.cluster, shadow);
    return link;
  }

  /** Tokens are sampled from `sampled` on, as long as the last pass has their logits; then the next pass begins. */
  #decode(sampled: number): void {
    for (let position = sampled; position < this.#endPosition; position += 1) {
      if (this.#drafting.settle(position, RIGHT_TOKEN) === null) return this.#prepare(position);
      this.#announce(position, 0, this.#nextRows);
    }
    this.#end();
  }

  #prepare(position: number): void {
    const drafting = this.#drafting;
    if (this.#written > position) this.#feed.rewind(position);
    if (position === this.#promptTokens) this.#helpers.random?.begin(position);
    const rows = drafting.rowsAt(position);
    const { clock, recorder, setUp } = this.cluster;
    const sinceMs = clock.nowMs;
    const begin = (): void => {
      recorder.draftWaitMs += clock.nowMs - sinceMs;
      this.#runPass(position, drafting.following(position, rows).tokenIds);
    };
    if (rows === 1 || !this.#feed.fed || setUp.drafting.optimistic) return begin();
    this.#announce(position, 0, rows);
    drafting.waitThen(position, rows, begin);
  }

  #runPass(position: number, drafts: readonly number[]): void {
    const { cluster, sequence, prompt } = this;
    const rows = 1 + drafts.length;
    const wrong = drafts.findIndex((token) => token !== RIGHT_TOKEN);
    const rightRows = wrong < 0 ? rows : 1 + wrong;
    this.#nextRows = this.#drafting.rowsAt(position + rows);
    this.#announce(position, rows, this.#nextRows);
    const setting = { sequence, prompt, position, rows, rightRows };
    new DecodePass(cluster, setting, this.#helpers).run((layersMs) => {
      cluster.draftCosts.passed(rows, cluster.trace.layers, layersMs);
      this.#feed.passEnded();
      this.#written = position + rows;
      const logits = new Array<Float32Array>(rows).fill(NO_LOGITS);
      this.#drafting.passed({ position, tokenIds: [RIGHT_TOKEN, ...drafts], logits });
      this.#decode(position + 1);
    });
  }

  #announce(position: number, rows: number, nextRows: number): void {
    this.#feed.token({ position, tokenId: RIGHT_TOKEN, rows, nextRows, branch: this.#drafting.branch });
  }

  #end(): void {
    const { recorder, clock } = this.cluster;
    recorder.drafts += this.#drafting.counts.proposed;
    recorder.acceptedDrafts += this.#drafting.counts.accepted;
    this.#feed.end();
    this.#router.close(this.sequence);
    this.onDone({
      ttftMs: this.#firstTokenMs - this.#beginMs,
      lastTokenMs: clock.nowMs - this.#beginMs,
      tokens: this.tokens,
    });
  }
}
