import type { PromptLogitsObserver } from '../../engine/generation/prompt-logprobs.js';
import type { SequenceRunner } from '../../engine/generation/sequence-runner.js';
import type { Sequence } from '../../native/index.js';
import { OdmoeError } from '../../shared/errors/odmoe-error.js';
import { requirePresent } from '../../shared/errors/assert-invariant.js';
import type { DraftMetrics, SepMetrics } from '../../shared/rpc/messages.js';
import type { SamplingOptions } from '../../shared/sampling/sampling-options.js';
import { RequestCounters, type MemberRows, type PassMember } from '../pass/pass-member.js';
import { alignedLayers } from './aligned-layers.js';
import { clusterCosts, type ClusterEngine } from './cluster-engine.js';
import { SequenceDrafting } from './sequence-drafting.js';
import { type ActivationCounts, SequencePredictions } from './sequence-predictions.js';
import { ShadowFeed } from './shadow-feed.js';

/** How long the end of an answer waits for shadow's last predictions, so that recall counts them too. */
const LAST_PREDICTIONS_LIMIT_MS = 250;
/** How long the end of an answer waits for the other nodes' counters, so that they include it. */
const LAST_STATUSES_LIMIT_MS = 100;

/** One answer that is to be made. */
export interface SequenceRequest {
  id: number;
  promptTokens: number;
  /** Prompt and answer together. */
  maxPositions: number;
  /** As main samples, with the seed that it uses. */
  sampling: SamplingOptions;
  /** Is told how many of the prompt's tokens are done. */
  onPrefill: (doneTokens: number) => void;
}

/** What an answer has cost. */
export interface AnswerCost {
  activations: ActivationCounts;
  reloads: number;
  ioStallMs: number;
  /** Null: main was not to use drafts. */
  drafts: DraftMetrics | null;
}

/** One answer in the making on the cluster: what engine/generation's token loop runs on. */
export class ClusterSequence implements SequenceRunner {
  readonly counters = new RequestCounters();
  private readonly id: number;
  private readonly sequence: Sequence;
  private readonly predictions: SequencePredictions;
  private readonly feed: ShadowFeed;
  private readonly drafting: SequenceDrafting;
  private readonly member: PassMember;
  private readonly tokenIds: number[] = [];
  private nextRows = 1;
  private ended = false;

  /** Throws DEVICE_OUT_OF_MEMORY. */
  constructor(
    private readonly engine: ClusterEngine,
    private readonly request: SequenceRequest,
    signal: AbortSignal,
  ) {
    const { id, promptTokens, maxPositions } = request;
    this.id = id;
    const sequence = engine.model.createSequence();
    this.sequence = sequence;
    const predictions = new SequencePredictions(promptTokens, engine.shape.expertLayers, engine.runtime);
    this.predictions = predictions;
    this.feed = createFeed(engine, request, sequence);
    // The token sampled last is not run.
    const lastPosition = maxPositions - 2;
    this.drafting = new SequenceDrafting(
      { ...engine.drafting, promptTokens, lastPosition },
      engine.draftCosts,
      () => engine.draftCosts.rows(clusterCosts(engine)),
      engine.runtime,
    );
    this.member = {
      ...{ id, sequence, predictions, feed: this.feed, counters: this.counters, lastPosition, signal },
    };
    engine.predictionPost.open(id, { predictions, feed: this.feed, drafts: this.drafting });
  }

  /** How well experts were predicted; null when nobody did. */
  sepMetrics(): SepMetrics | null {
    return this.isPredicted ? this.predictions.metrics() : null;
  }

  private get isPredicted(): boolean {
    const { source } = this.engine.prediction;
    return this.feed.tookPart || source === 'random' || source === 'router-ahead';
  }

  /** Null: the cluster is not to draft. */
  draftMetrics(): DraftMetrics | null {
    return this.engine.drafting.rows === 1 ? null : { ...this.drafting.counts };
  }

  /** Of all that was done for the answer. */
  cost(): AnswerCost {
    const { reloads, ioStallUs } = this.counters;
    const activations = this.predictions.activations(this.isPredicted);
    return { activations, reloads, ioStallMs: ioStallUs / 1000, drafts: this.draftMetrics() };
  }

  /** What shadow has told of positions that main has not come to. */
  get kept(): { predictions: number; drafts: number } {
    return { predictions: this.predictions.keptCount, drafts: this.drafting.keptCount };
  }

  /** Logits of the prompt's last token (vocabSize). */
  async prefill(tokenIds: readonly number[], onLogits?: PromptLogitsObserver): Promise<Float32Array> {
    const { engine, request, member } = this;
    this.tokenIds.push(...tokenIds);
    this.feed.followShadow(this.tokenIds, 0);
    const last: Float32Array[] = [];
    const observe: PromptLogitsObserver = (position, logits) => {
      if (position < tokenIds.length - 1) onLogits?.(position, logits);
      else last.push(logits);
    };
    return engine.prefillPasses.use(member.signal, async (slot) => {
      request.onPrefill(0);
      for (let start = 0; ; start += engine.prefillRows) {
        const rows = this.chunk(tokenIds, start);
        const end = start + rows.tokenIds.length;
        const next = end < tokenIds.length ? [this.chunk(tokenIds, end)] : null;
        const observed = onLogits === undefined ? {} : { logitsFrom: 0 };
        await engine.runPass(slot, [{ ...rows, ...observed, onLogits: observe }], () => next);
        request.onPrefill(end);
        if (next === null) return requirePresent(last[0], 'a pass has logits of its last row.');
      }
    });
  }

  /** Some of the prompt's rows, from `start` on. */
  private chunk(tokenIds: readonly number[], start: number): MemberRows {
    const ofChunk = tokenIds.slice(start, start + this.engine.prefillRows);
    const rows = ofChunk.length;
    const isLast = start + rows === tokenIds.length;
    const logitsFrom = isLast ? rows - 1 : rows;
    return { member: this.member, position: start, tokenIds: ofChunk, decodeFrom: rows, logitsFrom };
  }

  /** Logits after the token at the next position (vocabSize): those that a pass has kept, or of a new pass that begins with it. */
  async decode(tokenId: number): Promise<Float32Array> {
    const { drafting, feed } = this;
    const position = this.tokenIds.length;
    const kept = drafting.settle(position, tokenId);
    if (kept !== null) {
      this.tokenIds.push(tokenId);
      feed.token({ position, tokenId, rows: 0, nextRows: this.nextRows, branch: drafting.branch });
      return kept;
    }
    if (this.sequence.length > position) {
      this.sequence.truncate(position);
      feed.rewind(position);
    }
    if (feed.followShadow(this.tokenIds, position)) drafting.forgetDrafts();
    this.tokenIds.push(tokenId);
    const tokenIds = [tokenId, ...(await this.drafts(position, tokenId))];
    return this.runPass(position, tokenIds);
  }

  /** Frees everything here and on the other nodes. Idempotent; called when neither prefill nor decode runs. */
  async end(): Promise<void> {
    if (this.ended) return;
    this.ended = true;
    if (this.feed.fed && !this.member.signal.aborted) {
      await this.predictions.waitUntilCaughtUp(LAST_PREDICTIONS_LIMIT_MS);
    }
    const statuses = this.member.signal.aborted
      ? Promise.resolve()
      : this.engine.roster.nextStatuses(LAST_STATUSES_LIMIT_MS);
    this.feed.end();
    this.engine.predictionPost.close(this.id);
    this.sequence.dispose();
    await statuses;
  }

  /** Drafts for the pass at `position`. A shadow that does not run ahead must have the token before it can draft what follows. */
  private async drafts(position: number, tokenId: number): Promise<number[]> {
    const { drafting, feed, member } = this;
    const rows = drafting.rowsAt(position);
    if (rows > 1 && feed.fed && !this.engine.drafting.optimistic) {
      feed.token({ position, tokenId, rows: 0, nextRows: rows, branch: drafting.branch });
      await drafting.wait(position, rows, () => feed.fed, member.signal);
      if (member.signal.aborted) throw new OdmoeError('CANCELLED', 'the request was cancelled');
    }
    return drafting.following(position, rows).tokenIds;
  }

  private async runPass(position: number, tokenIds: readonly number[]): Promise<Float32Array> {
    const { drafting, engine, member } = this;
    const rows = tokenIds.length;
    const tokenId = requirePresent(tokenIds[0], 'a pass has a first token.');
    this.nextRows = drafting.rowsAt(position + rows);
    this.feed.token({ position, tokenId, rows, nextRows: this.nextRows, branch: drafting.branch });
    const ran = await engine.decodePasses.use(member.signal, (slot) =>
      engine.runPass(slot, [{ member, position, tokenIds, decodeFrom: 0, logitsFrom: 0 }]),
    );
    const logits = requirePresent(ran[0], 'a pass has logits of its member.');
    drafting.passed({ position, tokenIds, logits });
    return requirePresent(logits[0], 'a pass has logits of its first row.');
  }
}

function createFeed(
  engine: ClusterEngine,
  { id, promptTokens, maxPositions, sampling }: SequenceRequest,
  cache: Sequence,
): ShadowFeed {
  const { shape, roster, align, drafting } = engine;
  return new ShadowFeed(
    {
      ...{ sequence: id, promptTokens, maxPositions, layers: alignedLayers(shape), align, sampling },
      optimistic: drafting.optimistic,
      spread: engine.spread === 'all',
    },
    () => (engine.prediction.source === 'sep' ? roster.shadow : null),
    () => roster.epoch,
    () => cache,
  );
}
