import type { SequenceRunner } from '../../engine/generation/index.js';
import type { Sequence } from '../../native/index.js';
import type { SepMetrics } from '../../shared/rpc/messages.js';
import { PromptPrefill } from '../prefill/prompt-prefill.js';
import { RequestCounters, type ClusterEngine } from './cluster-engine.js';
import { runDecodeIteration, type DecodeContext } from './decode-iteration.js';
import { SequencePredictions } from './sequence-predictions.js';
import { ShadowFeed } from './shadow-feed.js';

const FLOAT_BYTES = 4;
/** How long the end of an answer waits for shadow's last predictions, so that recall counts them too. */
const LAST_PREDICTIONS_LIMIT_MS = 250;
/** How long the end of an answer waits for the other nodes' counters, so that they include it. */
const LAST_STATUSES_LIMIT_MS = 100;

/** One answer in the making on the cluster: what engine/generation's token loop runs on. */
export class ClusterSequence implements SequenceRunner {
  readonly counters = new RequestCounters();
  private readonly sequence: Sequence;
  private readonly predictions: SequencePredictions;
  private readonly feed: ShadowFeed;
  private readonly context: DecodeContext;
  private readonly tokenIds: number[] = [];
  private ended = false;

  /** `maxPositions`: prompt and answer together. Throws DEVICE_OUT_OF_MEMORY. */
  constructor(
    private readonly engine: ClusterEngine,
    private readonly id: number,
    promptTokens: number,
    maxPositions: number,
    signal: AbortSignal,
  ) {
    const { model, shape, roster, align } = engine;
    const sequence = model.createSequence();
    this.sequence = sequence;
    this.predictions = new SequencePredictions(promptTokens, shape.layers);
    const keyRowBytes = shape.keyValueHeads * shape.headDim * FLOAT_BYTES;
    this.feed = new ShadowFeed(
      { sequence: id, promptTokens, maxPositions, layers: shape.layers, keyRowBytes, align },
      () => roster.shadow,
      () => roster.epoch,
      (layer, position, rows) => sequence.readKeyValues(layer, position, rows),
    );
    const { predictions, feed, counters } = this;
    this.context = { id, sequence, predictions, feed, counters, signal };
    engine.router.open(id, { predictions, feed });
  }

  /** How well shadow predicted; null when none took part. */
  sepMetrics(): SepMetrics | null {
    return this.feed.tookPart ? this.predictions.metrics() : null;
  }

  /** Logits of the prompt's last token (vocabSize). */
  prefill(tokenIds: readonly number[]): Promise<Float32Array> {
    this.tokenIds.push(...tokenIds);
    this.feed.followShadow(this.tokenIds, 0);
    return new PromptPrefill(this.engine, this.context).run(tokenIds);
  }

  /** Runs the token at the next position; logits after it (vocabSize). */
  decode(tokenId: number): Promise<Float32Array> {
    const position = this.tokenIds.length;
    this.feed.followShadow(this.tokenIds, position);
    this.feed.token(position, tokenId);
    this.tokenIds.push(tokenId);
    return this.engine.decodePasses.use(this.context.signal, (slot) =>
      runDecodeIteration(this.engine, this.context, slot, position, tokenId),
    );
  }

  /** Frees everything here and on the other nodes. Idempotent; called when neither prefill nor decode runs. */
  async end(): Promise<void> {
    if (this.ended) return;
    this.ended = true;
    if (this.feed.fed && !this.context.signal.aborted) {
      await this.predictions.waitUntilCaughtUp(LAST_PREDICTIONS_LIMIT_MS);
    }
    const statuses = this.context.signal.aborted
      ? Promise.resolve()
      : this.engine.roster.nextStatuses(LAST_STATUSES_LIMIT_MS);
    this.feed.end();
    this.engine.router.close(this.id);
    this.sequence.dispose();
    await statuses;
  }
}
