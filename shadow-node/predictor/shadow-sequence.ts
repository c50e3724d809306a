import type { Model, Sequence } from '../../native/index.js';
import type { ModelShape } from '../../shared/model/model-shape.js';
import type { AlignRows, BeginSequence, DraftToken } from '../../shared/wire/messages.js';
import { type FormatSource, NO_FORMATS } from '../../engine/sampling/output-formats.js';
import type { OutputConstraint } from '../../engine/output-format/output-constraint.js';
import { type OdmoeError, toOdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { TokenSampler } from '../../engine/sampling/token-sampler.js';
import { requireSampling } from '../../shared/wire/sampling-validation.js';
import type { Runtime } from '../../shared/base/runtime/runtime.js';
import { runInSlices } from '../../shared/base/runtime/slices.js';
import { resolveSampling } from '../../shared/wire/sampling-options.js';
import {
  firstOutlook,
  keyValuesDueBelow,
  mustRestart,
  needsGuess,
  nextStep,
  oldestPosition,
  outlookAfter,
  passOf,
  takesMainToken,
  type AlignmentPeriods,
  type AlignmentStep,
  type PassOutlook,
  type RunnableStep,
  type ShadowProgress,
  type MainToken,
} from './alignment.js';
import { prefixPositions, type RanSequence } from './retained-sequences.js';
import { PassPredictions, type PassPrediction } from './pass-predictions.js';
import { RowAlignment } from './row-alignment.js';
import { checkAlignedRows, checkStart, checkToken } from './sequence-checks.js';

export type SequenceStart = Omit<BeginSequence, 'epoch' | 'sequence'>;

/** A guess at main's token, and the pass that it is meant for. */
export type Draft = Omit<DraftToken, 'epoch' | 'sequence'>;

export interface SequenceEvents {
  /** `late`: main is past the pass, so that only its count of recall can use the prediction. */
  onPrediction(prediction: PassPrediction, late: boolean): void;
  onDraft?(draft: Draft): void;
  /** What was predicted and drafted of passes and positions from `position` on is void. */
  onRestart?(position: number): void;
  /** It can go on no more. */
  onFailure?(error: OdmoeError): void;
}

/** What a sequence has taken over from main so far, and how many positions it has predicted. */
export interface AlignmentCounts {
  /** Main's tokens where they were due, whether taken from main or guessed rightly. */
  tokens: number;
  /** Of the last layer. */
  cacheRows: number;
  droppedRows: number;
  predictedPositions: number;
}

/** The sequence's rows in a pass under way; once `cancelled` nothing comes of them any more. */
interface RunningStep {
  readonly step: RunnableStep;
  /** As the pass begins. */
  readonly branch: number;
  readonly onCancel: () => void;
  cancelled: boolean;
}

/** One answer that main is decoding, as the shadow model lives it (run-pass.ts runs it). Knows nothing of the network. */
export class ShadowSequence {
  readonly counts: AlignmentCounts = { tokens: 0, cacheRows: 0, droppedRows: 0, predictedPositions: 0 };
  private readonly shape: ModelShape;
  private sequence: Sequence;
  private readonly periods: AlignmentPeriods;
  /** null: its output format is being compiled, and nothing is guessed so long. */
  private sampler: TokenSampler | null = null;
  private readonly over = new AbortController();
  private readonly rows: RowAlignment;
  private readonly predictions: PassPredictions;
  private readonly mainTokens: number[];
  /** Leading positions that are run without predictions. */
  private prefillTokens: number;
  /** By position, with those of a pass that runs now. */
  private readonly ranTokens: number[] = [];
  /** Guesses told to main, by position. */
  private readonly drafts = new Map<number, Draft>();
  private ownToken: number | null = null;
  /** Nobody has said yet how much it can begin with of the sequence that its start names. */
  private awaitsPrefix: boolean;
  private outlook: PassOutlook;
  private joint = false;
  private running: RunningStep | null = null;
  private disposed = false;

  /**
   * Throws PROTOCOL_VIOLATION when the start does not fit the model, REQUEST_INVALID when its sampling makes no sense, or wants a format
   * that the model cannot have.
   */
  constructor(
    model: Model,
    private readonly start: SequenceStart,
    private readonly events: SequenceEvents,
    formats: FormatSource = NO_FORMATS,
  ) {
    const { shape } = model;
    checkStart(start, shape);
    this.shape = shape;
    this.periods = { token: start.alignTokenPeriod, keyValue: start.alignKvPeriod };
    this.makeSampler(formats);
    this.mainTokens = [...start.tokenIds];
    this.prefillTokens = start.tokenIds.length;
    this.outlook = firstOutlook(start.tokenIds.length);
    this.predictions = new PassPredictions(shape.expertLayers);
    this.awaitsPrefix = (start.prefixPositions ?? 0) > 0;
    this.rows = new RowAlignment(shape);
    this.sequence = model.createSequence();
  }

  /** For passes. */
  get cache(): Sequence {
    return this.sequence;
  }

  /** Main runs it together with others, as far as it has told. */
  get isJoint(): boolean {
    return this.joint;
  }

  /** The sequence that this one begins as; null: it knows how much it has of it, or begins as none. */
  get awaitedPrefix(): number | null {
    return this.awaitsPrefix ? (this.start.prefixSequence ?? 0) : null;
  }

  /** What others may go on from. Not while a pass of this sequence runs. */
  get ran(): RanSequence {
    const { sequence: cache, ranTokens: tokenIds } = this;
    return { cache, tokenIds, alignedBelow: this.rows.alignedBelow };
  }

  /** Positions whose choices are remembered, and drafts: bounded however long the answer is. */
  get openCounts(): { positions: number; drafts: number } {
    return { positions: this.predictions.openCount, drafts: this.drafts.size };
  }

  /**
   * Main's token and what it says of its passes. A pass that runs on a wrong guess is cancelled. PROTOCOL_VIOLATION when it
   * leaves a gap or is no token of the model.
   */
  announceToken(announced: MainToken): void {
    const { position, tokenId } = announced;
    const { mainTokens, shape } = this;
    const { maxPositions, promptTokens } = this.start;
    checkToken(announced, { mainTokens, prefillTokens: this.start.tokenIds.length, maxPositions, shape });
    this.joint = announced.joint === true;
    const before = this.outlook;
    this.outlook = outlookAfter(before, announced);
    if (position === mainTokens.length) {
      mainTokens.push(tokenId);
      if (mustRestart(announced, this.ranTokens, promptTokens, this.periods)) this.restart(position);
      else if (position < this.ranTokens.length && takesMainToken(position, promptTokens, this.periods)) {
        this.counts.tokens += 1;
      }
    }
    if (announced.branch > before.branch) this.rows.dropFrom(position);
    this.regroup(before, position);
  }

  /** Rows of main's cache; kept until they are due, let go when the sequence never aligns them. */
  addRows(rows: AlignRows): void {
    checkAlignedRows(rows, this.shape, this.start.maxPositions);
    if (this.periods.keyValue === 0) return;
    if (!this.rows.add(rows)) this.counts.droppedRows += rows.rows;
  }

  /** Decides what to do next, for passes of up to maxRows rows. Not while a pass of this sequence runs. */
  nextStep(maxRows: number): AlignmentStep {
    if (this.awaitsPrefix) return { kind: 'wait', reason: 'prefix' };
    return nextStep(this.progress(), this.periods, maxRows);
  }

  /** Writes main's rows that are due before the next position. Not while a pass of this sequence runs. */
  writeDueRows(): void {
    const next = this.ranTokens.length;
    this.writeRows(Math.min(keyValuesDueBelow(next, this.start.promptTokens, this.periods), next));
  }

  /** Begins with what `source` has run of the same tokens, as far as that can be. Returns how many positions. Not while a pass runs on it. */
  takePrefix(source: RanSequence | null): number {
    this.awaitsPrefix = false;
    const { tokenIds, alignKvPeriod, prefixPositions: most = 0 } = this.start;
    const positions = source === null ? 0 : prefixPositions(source, { tokenIds, alignKvPeriod, prefixPositions: most });
    if (source === null || positions === 0) return 0;
    const fork = source.cache.fork(positions);
    this.sequence.dispose();
    this.sequence = fork;
    this.ranTokens.push(...tokenIds.slice(0, positions));
    this.rows.beginAt(Math.min(positions, source.alignedBelow));
    return positions;
  }

  /** The sequence is over: what others may go on from, with all of main's rows that have come. Its cache is the caller's from now on. */
  handOver(): RanSequence {
    this.writeRows(this.ranTokens.length);
    this.disposed = true;
    this.over.abort();
    return this.ran;
  }

  /** A pass is about to run the step. `onCancel` is told when nothing is to come of it any more. */
  beginStep(step: RunnableStep, onCancel: () => void): void {
    this.writeDueRows();
    this.running = { step, branch: this.outlook.branch, onCancel, cancelled: false };
    this.ownToken = null;
    this.ranTokens.push(...step.tokenIds);
  }

  /** A layer's router has chosen for the step's rows, expertsPerToken each. `runUs`: what the pass had taken by then. */
  takeChoice(layer: number, experts: Int32Array, runUs: number): void {
    if (this.running === null || this.running.cancelled || this.running.step.kind === 'prefill') return;
    const { position: first, tokenIds } = this.running.step;
    const perRow = this.shape.expertsPerToken;
    if (layer === 0) this.counts.predictedPositions += tokenIds.length;
    for (const row of tokenIds.keys()) {
      this.predictions.add(first + row, layer, [...experts.subarray(row * perRow, (row + 1) * perRow)], runUs);
    }
    const passes = tokenIds.map((_, row) => passOf(this.outlook, first + row));
    for (const [index, pass] of passes.entries()) {
      if (passes[index + 1]?.begin !== pass.begin) this.tell(this.predictions.news(pass, layer));
    }
  }

  /** The pass has come through all layers. True: the logits of the step's last row are wanted. */
  endLayers(): boolean {
    if (this.running === null || this.running.cancelled) return false;
    const { step } = this.running;
    if (step.kind === 'iterate' && step.tokenFrom === 'main') this.counts.tokens += step.tokenIds.length;
    return needsGuess(step.position + step.tokenIds.length, this.progress(), this.periods);
  }

  /**
   * Guesses the next token from the logits of the step's last row. `takenUs`: what the pass has taken. A token of a format takes its time: main
   * is heard meanwhile, and may cancel.
   */
  async takeLogits(logits: Float32Array, takenUs: number, runtime: Pick<Runtime, 'nextTurn'>): Promise<void> {
    const { running, sampler } = this;
    if (running === null || running.cancelled) return;
    const { step, branch } = running;
    const rows = step.tokenIds.length;
    const tokenId = sampler && (await runInSlices(sampler.sampleIfAny(logits, this.ranTokens), runtime));
    if (this.isCancelled) return;
    this.ownToken = tokenId;
    if (step.kind === 'iterate') this.tellDraft(step.position + rows, branch, takenUs / rows);
  }

  /** The pass is over. Unless it has completed, and something was to come of it, the sequence is as long as it was before. */
  endStep(completed: boolean): void {
    const { running } = this;
    this.running = null;
    if (running === null || (completed && !running.cancelled)) return;
    this.ranTokens.length = Math.min(this.ranTokens.length, running.step.position);
    this.ownToken = null;
    this.truncate();
  }

  /** Nothing is to come of what a pass runs of the sequence. */
  cancel(): void {
    if (this.running === null || this.running.cancelled) return;
    this.running.cancelled = true;
    this.running.onCancel();
  }

  /** Nothing is to come of the pass that runs, or none runs. */
  get isCancelled(): boolean {
    return this.running?.cancelled !== false;
  }

  /** Idempotent. Not while a pass of this sequence runs. */
  dispose(): void {
    if (this.disposed) return;
    this.disposed = true;
    this.over.abort();
    this.sequence.dispose();
  }

  private makeSampler(formats: FormatSource): void {
    const { sampling: given, promptTokens, maxPositions } = this.start;
    if (given !== null) requireSampling(given);
    const sampling = resolveSampling(given, () => 0);
    const { signal } = this.over;
    const constraint = formats.constraintOf(sampling.outputFormat, signal);
    const samplerOf = (ready: OutputConstraint | null): TokenSampler =>
      new TokenSampler({ sampling, promptTokens, maxPositions, constraint: ready });
    if (!(constraint instanceof Promise)) {
      this.sampler = samplerOf(constraint);
      return;
    }
    constraint.then(
      (ready) => (this.sampler = samplerOf(ready)),
      (thrown: unknown) => {
        if (!signal.aborted) this.events.onFailure?.(toOdmoeError(thrown));
      },
    );
  }

  private writeRows(below: number): void {
    this.counts.cacheRows += this.rows.write(this.sequence, below);
  }

  private tell(prediction: PassPrediction | null): void {
    if (prediction !== null) this.events.onPrediction(prediction, prediction.position < this.outlook.begin);
  }

  /** Of positions that main knows the token of there is nothing to draft. */
  private tellDraft(position: number, branch: number, runUs: number): void {
    if (this.ownToken === null || position < this.mainTokens.length) return;
    const passPosition = passOf(this.outlook, position).begin;
    const draft = { position, tokenId: this.ownToken, branch, passPosition, runUs: Math.round(runUs) };
    this.drafts.set(position, draft);
    this.events.onDraft?.(draft);
  }

  /** Tells of predictions and drafts again that belong to other passes than main had been told. */
  private regroup(before: PassOutlook, announcedPosition: number): void {
    this.predictions.dropBelow(oldestPosition(this.outlook));
    for (const news of this.predictions.regroup(before, this.outlook)) this.tell(news);
    for (const [position, draft] of this.drafts) {
      if (position <= announcedPosition) {
        this.drafts.delete(position);
        continue;
      }
      const passPosition = passOf(this.outlook, position).begin;
      if (passPosition === draft.passPosition) continue;
      const moved = { ...draft, passPosition };
      this.drafts.set(position, moved);
      this.events.onDraft?.(moved);
    }
  }

  /** Another token than main's was run, or runs, at `position`: forgets everything from there on. */
  private restart(position: number): void {
    this.ranTokens.length = position;
    this.ownToken = null;
    this.rows.dropFrom(position);
    this.predictions.dropFrom(position);
    for (const drafted of [...this.drafts.keys()]) if (drafted >= position) this.drafts.delete(drafted);
    this.events.onRestart?.(position);
    if (this.running === null) this.truncate();
    else this.cancel();
  }

  /**
   * The cache forgets what ranTokens does not hold. Where a recurrence cannot be cut back so far, shadow runs all positions anew, those
   * before the cut without predictions.
   */
  private truncate(): void {
    const length = this.ranTokens.length;
    this.rows.cutBack(length);
    if (this.sequence.length < length) return;
    if (length >= this.sequence.oldestPosition) return this.sequence.truncate(length);
    this.sequence.truncate(0);
    this.rows.cutBack(0);
    this.prefillTokens = Math.max(this.prefillTokens, length);
    this.ranTokens.length = 0;
    this.ownToken = null;
  }

  private progress(): ShadowProgress {
    return {
      mainTokens: this.mainTokens,
      promptTokens: this.start.promptTokens,
      prefillTokens: this.prefillTokens,
      nextPosition: this.ranTokens.length,
      ownToken: this.ownToken,
      maxPositions: this.start.maxPositions,
      outlook: this.outlook,
      optimistic: this.start.optimistic,
    };
  }
}
