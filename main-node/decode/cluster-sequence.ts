import { HEAD_PASS_ROWS } from '../../engine/generation/draft-head.js';
import type { PromptLogitsObserver } from '../../engine/generation/prompt-logprobs.js';
import type { SequenceRunner } from '../../engine/generation/sequence-runner.js';
import { type Sequence, crc32c } from '../../native/index.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { requirePresent } from '../../shared/base/errors/assert-invariant.js';
import { expectedRule } from '../../shared/decisions/slices/plan-readings.js';
import { SequenceDecisions } from '../../shared/decisions/slices/sequence-decisions.js';
import type { DraftMetrics, SepMetrics } from '../../shared/wire/messages.js';
import type { SamplingOptions } from '../../shared/wire/sampling-options.js';
import type { BatchMember, DrafterRows } from '../batching/batch-member.js';
import { predictsItself } from '../pass/run-layer.js';
import { RequestCounters, RowProvenance } from '../pass/pass-member.js';
import { alignedLayers } from './aligned-layers.js';
import type { DraftMaker, ProposedDraft } from '../drafting/choose-drafts.js';
import { clusterCosts, type ClusterEngine } from './cluster-engine.js';
import type { DraftSource } from './draft-source.js';
import { type ForcedAnswer, ForcedSource } from './forced-source.js';
import { LookupSource } from './lookup-source.js';
import { MtpSource } from './mtp-source.js';
import { OwnDrafts } from './own-drafts.js';
import { type DraftCounts, SequenceDrafting } from './sequence-drafting.js';
import { type PredictionCounts, SequencePredictions } from './sequence-predictions.js';
import { type ReadableCache, AlignmentSender } from './alignment-sender.js';

/**
 * Checksums of the logits that a sequence has given out, position by position. When its rows are computed anew, because a worker that took part in
 * them gave wrong values, the same logits must come again: clients may have received tokens that follow from them.
 */
export class GivenLogits {
  private first = 0;
  private readonly checksums: number[] = [];
  /** The next position to compare; null: none. */
  private due: number | null = null;

  /** The position from which on logits are wanted again; null: none are. */
  get dueFrom(): number | null {
    return this.due;
  }

  /** Remembers logits that are given out. Positions follow one another; for a position that was given out before nothing changes. */
  note(position: number, logits: Float32Array): void {
    if (this.has(position)) return;
    if (this.checksums.length === 0) this.first = position;
    this.checksums.push(checksumOf(logits));
  }

  /** From now on compares all that was given out with the logits that come again. */
  compareAll(): void {
    this.due = this.checksums.length > 0 ? this.first : null;
  }

  /** Returns true if the position was given out before. Throws WORKER_DISTRUSTED if it is to be compared and other logits were given out. */
  compare(position: number, logits: Float32Array): boolean {
    if (!this.has(position)) return false;
    if (position !== this.due) return true;
    if (checksumOf(logits) !== this.checksums[position - this.first]) {
      throw new OdmoeError(
        'WORKER_DISTRUSTED',
        'a worker that took part in this answer gave wrong values (odmoe status names it); computed anew without it the answer would be ' +
          'another one, and some of it has been given out already: ask again',
      );
    }
    this.due = this.has(position + 1) ? position + 1 : null;
    return true;
  }

  private has(position: number): boolean {
    return position >= this.first && position < this.first + this.checksums.length;
  }
}

function checksumOf({ buffer, byteOffset, byteLength }: Float32Array): number {
  return crc32c(new Uint8Array(buffer, byteOffset, byteLength), 0);
}

/** Longest time that the end of an answer waits for shadow's last predictions, so that recall counts them, too. */
const LAST_PREDICTIONS_LIMIT_MS = 250;
/** Longest time that the end of an answer waits for the other nodes' counters, so that they include the answer. */
const LAST_STATUSES_LIMIT_MS = 100;

/** The request for one answer. */
export interface SequenceRequest {
  id: number;
  /** The client that sent the request (BatchMember.client). */
  client: string;
  promptTokens: number;
  /** Most positions of prompt and answer together. */
  maxPositions: number;
  /** Main's sampling settings, with the seed that it uses. */
  sampling: SamplingOptions;
  /** The format that the answer follows; null, or left out: any text. */
  forced?: ForcedAnswer | null;
  /** Tokens that the client expects in the answer; left out: none. */
  expectedIds?: readonly number[];
  /** Called with the number of the prompt's tokens that are done. */
  onPrefill: (doneTokens: number) => void;
}

/** The costs of one answer. */
export interface AnswerCost {
  activations: PredictionCounts;
  reloads: number;
  ioStallMs: number;
  /** Null: main runs without drafts. */
  drafts: DraftMetrics | null;
  /** The same by the makers of the drafts; left out: there were none. */
  draftsByMaker?: ReadonlyMap<DraftMaker, DraftCounts>;
  /** Tokens of the prompt that were not run, because rows of an equal beginning existed. */
  cachedTokens: number;
}

/** One answer in the making on the cluster. The token loop of engine/generation runs on it, and it is a member of the pass loop. */
export class ClusterSequence implements SequenceRunner, BatchMember {
  readonly counters = new RequestCounters();
  readonly id: number;
  readonly client: string;
  readonly predictions: SequencePredictions;
  readonly feed: AlignmentSender;
  readonly lastPosition: number;
  readonly tokenIds: number[] = [];
  readonly decisions: SequenceDecisions | null;
  wantedFrom = 0;
  decodeFrom: number;
  private readonly promptTokens: number;
  private memory: Sequence;
  private rowProvenance = new RowProvenance();
  private readonly drafting: SequenceDrafting;
  private readonly ownDrafts: OwnDrafts;
  /** The makers of the drafts of the next pass. */
  private makers: readonly DraftMaker[] = [];
  /** Number of tokens that are known; the tokens after them are drafts. */
  private knownTokens = 0;
  private nextRows = 1;
  private cachedTokens = 0;
  private ending: Promise<void> | null = null;
  private tainted = false;
  private isSound = true;
  /** All logits that were given out: clients may have received tokens that follow from them. */
  private readonly given = new GivenLogits();

  /** Throws DEVICE_OUT_OF_MEMORY. */
  constructor(
    private readonly engine: ClusterEngine,
    private readonly request: SequenceRequest,
    readonly signal: AbortSignal,
  ) {
    const { id, client, promptTokens, maxPositions } = request;
    this.id = id;
    this.client = client;
    this.promptTokens = promptTokens;
    this.decodeFrom = promptTokens;
    this.decisions = engine.decisions && SequenceDecisions.begin(engine.decisions, promptTokens);
    this.memory = engine.model.createSequence();
    const predictions = new SequencePredictions(promptTokens, engine.shape.expertLayers, engine.runtime);
    this.predictions = predictions;
    this.feed = createFeed(engine, request, () => this.memory);
    // The token sampled last is not run.
    const lastPosition = maxPositions - 2;
    this.lastPosition = lastPosition;
    this.drafting = new SequenceDrafting(
      { rows: engine.drafting.shadowRows, optimistic: engine.drafting.optimistic, promptTokens, lastPosition },
      engine.draftCosts,
      () => engine.draftCosts.rows(clusterCosts(engine)),
      engine.runtime,
    );
    const { ownRows, trial } = engine.drafting;
    this.ownDrafts = new OwnDrafts(ownSources(engine, request), { rows: ownRows, lastPosition }, trial, () =>
      engine.draftCosts.line(),
    );
    engine.predictionPost.open(id, { predictions, feed: this.feed, drafts: this.drafting });
    engine.passLoop.join(this);
    engine.room.enter(this);
  }

  get sequence(): Sequence {
    return this.memory;
  }

  get takeStates(): ((position: number, states: Float32Array) => void) | undefined {
    return this.ownDrafts.takeStates;
  }

  get statesWanted(): number {
    return this.ownDrafts.statesWanted;
  }

  get written(): number {
    return this.memory.length;
  }

  get drafterRows(): DrafterRows | null {
    return this.ownDrafts.drafterRows;
  }

  get provenance(): RowProvenance {
    return this.rowProvenance;
  }

  get isTainted(): boolean {
    return this.tainted;
  }

  preempt(): void {
    // This is created first: an empty sequence takes no memory, and if it cannot be created, nothing has changed.
    const empty = this.engine.model.createSequence();
    this.memory.dispose();
    this.memory = empty;
    // Decisions outlive their rows, and so does the provenance of the numbers from which they follow.
    if (this.decisions === null) this.rowProvenance = new RowProvenance();
    this.ownDrafts.preempted();
    this.engine.passLoop.countPreemption();
  }

  distrust(workerId: string): void {
    this.tainted ||= this.rowProvenance.has(workerId);
  }

  /** Computes the rows anew, and compares the new logits with those that were given out. Shadow drops its rows, since some of them came from main. */
  computeAnew(): void {
    if (!this.tainted) return;
    this.tainted = false;
    this.preempt();
    // The decisions follow from wrong values, so they are made anew.
    this.decisions?.cutBack(0);
    this.rowProvenance = new RowProvenance();
    this.drafting.forgetPass();
    this.feed.forget();
    this.given.compareAll();
    this.wantedFrom = Math.min(this.wantedFrom, this.given.dueFrom ?? Infinity);
  }

  failed({ code }: OdmoeError): void {
    // The rows of an answer that was only cancelled are as good as those of any other.
    this.isSound &&= code === 'CANCELLED';
  }

  /** The recall of the predictions; null when nothing predicted experts. */
  sepMetrics(): SepMetrics | null {
    return this.isPredicted ? this.predictions.metrics() : null;
  }

  private get isPredicted(): boolean {
    return this.feed.tookPart || predictsItself(this.engine);
  }

  /** Null: the cluster runs without drafts. */
  draftMetrics(): DraftMetrics | null {
    const { shadowRows, ownRows } = this.engine.drafting;
    return shadowRows === 1 && ownRows === 1 ? null : { ...this.drafting.counts };
  }

  /** The costs of all that was done for the answer. */
  cost(): AnswerCost {
    const { reloads, ioStallUs } = this.counters;
    const activations = this.predictions.activations(this.isPredicted);
    const { cachedTokens } = this;
    const { countsByMaker: draftsByMaker } = this.drafting;
    const drafts = this.draftMetrics();
    return { activations, reloads, ioStallMs: ioStallUs / 1000, drafts, draftsByMaker, cachedTokens };
  }

  /** Number of shadow's predictions and drafts for positions that main has not come to. */
  get remembered(): { predictions: number; drafts: number } {
    return { predictions: this.predictions.rememberedCount, drafts: this.drafting.rememberedCount };
  }

  /** Logits of the prompt's last token (vocabSize). */
  async prefill(tokenIds: readonly number[], onLogits?: PromptLogitsObserver): Promise<Float32Array> {
    const { engine, promptTokens, feed } = this;
    this.tokenIds.push(...tokenIds);
    this.knownTokens = tokenIds.length;
    this.ownDrafts.begin(tokenIds);
    const last = promptTokens - 1;
    this.wantedFrom = onLogits === undefined ? last : 0;
    this.shareRows();
    await this.restoreRows();
    feed.followShadow(this.tokenIds, this.written);
    let result: Float32Array | undefined;
    const observe = (position: number, logits: Float32Array): void => {
      // Rows that run again, because their pass failed or the sequence was preempted, have been observed already.
      if (this.given.compare(position, logits)) return;
      this.given.note(position, logits);
      this.wantedFrom = position + 1;
      if (position === last) result = logits.slice();
      else onLogits?.(position, logits);
    };
    this.request.onPrefill(this.written);
    const [begunMs, before] = [engine.runtime.nowMs(), this.written];
    await engine.passLoop.run(this, {
      until: promptTokens,
      ...(onLogits === undefined ? {} : { onLogits: observe }),
      ran: (logits) => {
        if (onLogits === undefined) result = logits[0];
        this.request.onPrefill(this.written);
      },
    });
    engine.room.notePrompt(promptTokens - before, engine.runtime.nowMs() - begunMs);
    return this.give(last, requirePresent(result, 'a prompt that has run has the logits of its last row.'));
  }

  private give(position: number, logits: Float32Array): Float32Array {
    this.given.note(position, logits);
    return logits;
  }

  /**
   * Returns the logits after the token at the next position (vocabSize): those that an earlier pass left, or those of a new pass that begins with the
   * token.
   */
  async decode(tokenId: number): Promise<Float32Array> {
    const { drafting, feed } = this;
    const position = this.knownTokens;
    const accepted = drafting.settle(position, tokenId);
    this.ownDrafts.settled(position, tokenId, accepted !== null);
    this.knownTokens += 1;
    if (accepted !== null) {
      this.tokenIds[position] = tokenId;
      feed.token({ position, tokenId, rows: 0, nextRows: this.nextRows, branch: drafting.branch, joint: this.isJoint });
      return this.give(position, accepted);
    }
    this.tokenIds.length = position;
    if (this.written > position) this.memory.truncate(position);
    // Both are needed also if the sequence was preempted meanwhile.
    this.decisions?.cutBack(position);
    feed.rewind(position);
    if (feed.followShadow(this.tokenIds, this.written)) drafting.forgetDrafts();
    this.tokenIds.push(tokenId);
    const { runtime, passLoop } = this.engine;
    const begunMs = runtime.nowMs();
    const answersAlone = passLoop.hasAnswersAlone;
    const drafts = await this.drafts(position, tokenId);
    this.makers = drafts.map(({ maker }) => maker);
    this.tokenIds.push(...drafts.map((draft) => draft.tokenId));
    const logits = await this.runPass(position, tokenId);
    const ran = this.tokenIds.slice(position);
    const isJudged = !this.makers.includes('shadow') && answersAlone && passLoop.hasAnswersAlone;
    const timed = { drafts: ran.length - 1, passMs: runtime.nowMs() - begunMs };
    this.ownDrafts.passed(position, ran, isJudged ? timed : null);
    return this.give(position, logits);
  }

  /** Frees everything here and on the other nodes. Idempotent; called when neither prefill nor decode runs. */
  end(): Promise<void> {
    return (this.ending ??= this.free());
  }

  private async free(): Promise<void> {
    // A pass that has other members, too, runs to its end.
    await this.engine.passLoop.leave(this);
    await this.ownDrafts.end();
    if (this.feed.fed && !this.signal.aborted) {
      await this.predictions.waitUntilCaughtUp(LAST_PREDICTIONS_LIMIT_MS);
    }
    const statuses = this.signal.aborted ? Promise.resolve() : this.engine.roster.nextStatuses(LAST_STATUSES_LIMIT_MS);
    this.feed.end();
    this.engine.predictionPost.close(this.id);
    try {
      this.engine.room.leave(this, this.tokenIds.slice(0, this.knownTokens), this.isSound);
    } finally {
      this.engine.passLoop.memoryFreed(this);
    }
    await statuses;
  }

  /** Begins with rows of the same tokens that main already holds. If logits of the whole prompt are wanted, its rows run instead. */
  private shareRows(): void {
    const { engine, wantedFrom } = this;
    const shared = engine.room.share(this, wantedFrom, (member) => engine.passLoop.isBusy(member));
    if (shared === null) return;
    this.memory.dispose();
    this.memory = shared.sequence;
    this.rowProvenance = shared.provenance;
    if (shared.decisions !== null) this.decisions?.beginWith(shared.decisions);
    this.cachedTokens = shared.positions;
    this.feed.beginsAs({ sequence: shared.from, positions: shared.positions });
  }

  /** Goes on with rows that lie on main's disk, if it has more of them than memory. */
  private async restoreRows(): Promise<void> {
    const { engine, wantedFrom } = this;
    const restored = await engine.room.restore(this, wantedFrom);
    if (restored === null) return;
    if (this.cachedTokens === 0) this.feed.beginsAs({ sequence: restored.from, positions: restored.positions });
    this.cachedTokens += restored.positions;
  }

  private get isJoint(): boolean {
    return this.engine.passLoop.isShared;
  }

  /** Drafts for the pass at `position`: those of main where they are surer than shadow's, or where shadow has none. */
  private async drafts(position: number, tokenId: number): Promise<readonly Omit<ProposedDraft, 'chance'>[]> {
    const { drafting, ownDrafts, signal } = this;
    const { passLoop, draftCosts } = this.engine;
    const limit = passLoop.answerRowsLimit;
    const own = await ownDrafts.propose(position, limit - 1, this.isJoint ? passLoop.answeringCount - 1 : 0, signal);
    if (signal.aborted) throw new OdmoeError('CANCELLED', 'the request was cancelled');
    const rows = Math.min(drafting.rowsAt(position), limit);
    if (own.length > 0 && (rows === 1 || (own[0]?.chance ?? 0) >= draftCosts.shadowAcceptance)) return own;
    const ofShadow = await this.shadowDrafts(position, tokenId, rows);
    return ofShadow.length === 0 ? own : ofShadow.map((id) => ({ tokenId: id, maker: 'shadow' }));
  }

  /** A shadow that does not run ahead needs this position's token before it can draft the next ones. */
  private async shadowDrafts(position: number, tokenId: number, rows: number): Promise<number[]> {
    const { drafting, feed, signal } = this;
    const { optimistic } = this.engine.drafting;
    if (rows === 1 || !feed.fed) return drafting.following(position, rows).tokenIds;
    if (!optimistic || this.isJoint) this.tellToken(position, tokenId, 0, rows);
    if (!optimistic) {
      await drafting.wait(position, rows, () => feed.fed, signal);
      if (signal.aborted) throw new OdmoeError('CANCELLED', 'the request was cancelled');
    }
    return drafting.following(position, rows).tokenIds;
  }

  /** `rows`: number of rows of the pass that begins with the token; 0: no pass begins with it yet. */
  private tellToken(position: number, tokenId: number, rows: number, nextRows: number): void {
    const { branch } = this.drafting;
    this.feed.token({ position, tokenId, rows, nextRows, branch, joint: this.isJoint });
  }

  /** Runs the pass, which may have room for only the first of the drafts. */
  private async runPass(position: number, tokenId: number): Promise<Float32Array> {
    const { drafting, engine } = this;
    this.decodeFrom = position;
    this.wantedFrom = Math.min(position, this.given.dueFrom ?? position);
    const tell = (rows: number): void => {
      this.nextRows = Math.min(drafting.rowsAt(position + rows), engine.passLoop.answerRowsLimit);
      this.tellToken(position, tokenId, rows, this.nextRows);
    };
    const rows = this.tokenIds.length - position;
    // A single row is never cut, so that shadow has the token before the pass begins.
    if (rows === 1) tell(rows);
    const logits: Float32Array[] = [];
    await engine.passLoop.run(this, {
      until: position + 1,
      begins: (rows) => {
        if (this.tokenIds.length > position + 1) tell(rows);
      },
      onLogits: (at, ofRow) => {
        if (!this.given.compare(at, ofRow)) logits[at - position] = ofRow;
      },
      ran: () => undefined,
    });
    this.tokenIds.length = this.written;
    drafting.passed({ position, tokenIds: this.tokenIds.slice(position), logits, makers: this.makers });
    return requirePresent(logits[0], 'a pass has logits of its first row.');
  }
}

/** Without drafts of main's own there are no sources, so that an answer costs nothing for them. */
function ownSources(
  { drafting, runtime, shape, log, passLoop }: ClusterEngine,
  request: SequenceRequest,
): DraftSource[] {
  const { ownRows, lookup, mtp } = drafting;
  if (ownRows === 1) return [];
  const { forced = null, expectedIds = [] } = request;
  const sources: DraftSource[] = forced === null ? [] : [new ForcedSource(forced, runtime)];
  sources.push(new LookupSource(lookup, expectedIds));
  const { hiddenSize } = shape;
  const onFreed = (): void => passLoop.memoryReturned();
  const nowMs = (): number => runtime.nowMs();
  if (mtp !== null) sources.push(new MtpSource(mtp, { hiddenSize, mostRows: HEAD_PASS_ROWS }, { log, onFreed, nowMs }));
  return sources;
}

function createFeed(
  engine: ClusterEngine,
  { id, promptTokens, maxPositions, sampling }: SequenceRequest,
  cache: () => ReadableCache,
): AlignmentSender {
  const { shape, roster, align, drafting, precision } = engine;
  const expected = precision && expectedRule(precision);
  return new AlignmentSender(
    {
      sequence: id,
      promptTokens,
      maxPositions,
      layers: alignedLayers(shape),
      align,
      sampling,
      optimistic: drafting.optimistic,
      spread: engine.spread === 'all',
      criticalTheta: expected?.kind === 'critical' ? expected.theta : 0,
    },
    () => (engine.prediction.source === 'sep' ? roster.shadow : null),
    () => roster.epoch,
    cache,
    (shadow) => (engine.spread === 'all' ? engine.cachedNews.takeFor(shadow) : []),
  );
}
