import type { Model, RouterChoice, Sequence } from '../../native/index.js';
import { expertsReadWhole, planReadings } from '../../shared/decisions/slices/plan-readings.js';
import type { ModelShape } from '../../shared/model/model-shape.js';
import type { AlignRows, BeginSequence, DraftToken } from '../../shared/wire/messages.js';
import { type FormatSource, NO_FORMATS } from '../../engine/sampling/output-formats.js';
import type { OutputConstraint } from '../../engine/output-format/output-constraint.js';
import { type OdmoeError, toOdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { TokenSampler } from '../../engine/sampling/token-sampler.js';
import { requireSampling } from '../../shared/wire/sampling-validation.js';
import type { Runtime } from '../../shared/base/runtime/runtime.js';
import { runInSteps } from '../../shared/base/runtime/work-steps.js';
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

/** A guess of main's token, and the pass that it is meant for. */
export type Draft = Omit<DraftToken, 'epoch' | 'sequence'>;

export interface SequenceEvents {
  /** `late`: main is past the pass, so that the prediction can only be used for its count of recall. */
  onPrediction(prediction: PassPrediction, late: boolean): void;
  onDraft?(draft: Draft): void;
  /** Predictions and drafts of passes and positions from `position` on are void. */
  onRestart?(position: number): void;
  /** The sequence cannot go on. */
  onFailure?(error: OdmoeError): void;
}

/** Counts of what a sequence has taken over from main so far, and of positions that it has predicted. */
export interface AlignmentCounts {
  /** Main's due tokens, whether they were taken from main or guessed right. */
  tokens: number;
  /** Main's rows that were written into the last layer's cache. */
  cacheRows: number;
  droppedRows: number;
  predictedPositions: number;
}

/** The sequence's rows in a running pass; once `cancelled`, their results are not used. */
interface RunningStep {
  readonly step: RunnableStep;
  /** The branch when the pass began. */
  readonly branch: number;
  readonly onCancel: () => void;
  cancelled: boolean;
}

/** Shadow's copy of one answer that main is decoding (run-pass.ts runs it). It does not use the network. */
export class ShadowSequence {
  readonly counts: AlignmentCounts = { tokens: 0, cacheRows: 0, droppedRows: 0, predictedPositions: 0 };
  private readonly shape: ModelShape;
  private sequence: Sequence;
  private readonly periods: AlignmentPeriods;
  /** null: its output format is still being compiled, and no token is guessed until then. */
  private sampler: TokenSampler | null = null;
  private readonly over = new AbortController();
  private readonly rows: RowAlignment;
  private readonly predictions: PassPredictions;
  private readonly mainTokens: number[];
  /** Leading positions that are run without predictions. */
  private prefillTokens: number;
  /** Tokens by position, including those of the running pass. */
  private readonly ranTokens: number[] = [];
  /** Guesses that were sent to main, by position. */
  private readonly drafts = new Map<number, Draft>();
  private guessedToken: number | null = null;
  /** True until it is known with how many positions of the named prefix sequence it can begin. */
  private awaitsPrefix: boolean;
  private outlook: PassOutlook;
  private joint = false;
  private running: RunningStep | null = null;
  private disposed = false;

  /**
   * Throws PROTOCOL_VIOLATION when the start does not fit the model. Throws REQUEST_INVALID when its sampling settings are invalid, or name a format
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

  /** The cache that passes use. */
  get cache(): Sequence {
    return this.sequence;
  }

  /** True if main's latest announcement says that it runs the sequence together with others. */
  get isJoint(): boolean {
    return this.joint;
  }

  /** The sequence that this one begins with; null: it knows how many positions it has of that one, or begins with none. */
  get awaitedPrefix(): number | null {
    return this.awaitsPrefix ? (this.start.prefixSequence ?? 0) : null;
  }

  /** The positions that others may go on from. Not while a pass of this sequence runs. */
  get ran(): RanSequence {
    const { sequence: cache, ranTokens: tokenIds } = this;
    return { cache, tokenIds, alignedBelow: this.rows.alignedBelow };
  }

  /** Number of positions whose choices are remembered, and of drafts. Both are bounded, however long the answer is. */
  get openCounts(): { positions: number; drafts: number } {
    return { positions: this.predictions.openCount, drafts: this.drafts.size };
  }

  /**
   * Takes main's token, with what it announces about its passes. A pass that runs on a wrong guess is cancelled. Throws PROTOCOL_VIOLATION when the
   * token leaves a gap or is no token of the model.
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

  /** Takes rows of main's cache. They are stored until they are due, or dropped when the sequence never aligns them. */
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

  /** Begins with the positions of `source` that have the same tokens, as far as possible. Returns their number. Not while a pass runs on it. */
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

  /** The sequence has ended: returns it for others to go on from, with all of main's rows that have come. The caller owns its cache from now on. */
  handOver(): RanSequence {
    this.writeRows(this.ranTokens.length);
    this.disposed = true;
    this.over.abort();
    return this.ran;
  }

  /** A pass is about to run the step. `onCancel` is called when the results are not needed any more. */
  beginStep(step: RunnableStep, onCancel: () => void): void {
    this.writeDueRows();
    this.running = { step, branch: this.outlook.branch, onCancel, cancelled: false };
    this.guessedToken = null;
    this.ranTokens.push(...step.tokenIds);
  }

  /** A layer's router has chosen for the step's rows, expertsPerToken each. `runUs`: time that the pass had taken by then. */
  takeChoice(layer: number, { experts, weights }: RouterChoice, runUs: number): void {
    if (this.running === null || this.running.cancelled || this.running.step.kind === 'prefill') return;
    const { position: first, tokenIds } = this.running.step;
    const perRow = this.shape.expertsPerToken;
    if (layer === 0) this.counts.predictedPositions += tokenIds.length;
    const { criticalTheta = 0 } = this.start;
    const readings =
      criticalTheta === 0 ? [] : planReadings({ kind: 'critical', theta: criticalTheta }, weights, perRow);
    for (const row of tokenIds.keys()) {
      const range = [row * perRow, (row + 1) * perRow] as const;
      const chosen = [...experts.subarray(...range)];
      const critical = expertsReadWhole(chosen, readings.slice(...range));
      this.predictions.add(first + row, layer, { experts: chosen, critical, runUs });
    }
    const passes = tokenIds.map((_, row) => passOf(this.outlook, first + row));
    for (const [index, pass] of passes.entries()) {
      if (passes[index + 1]?.begin !== pass.begin) this.tell(this.predictions.news(pass, layer));
    }
  }

  /** The pass has run all layers. Returns true if the logits of the step's last row are wanted. */
  endLayers(): boolean {
    if (this.running === null || this.running.cancelled) return false;
    const { step } = this.running;
    if (step.kind === 'iterate' && step.tokenFrom === 'main') this.counts.tokens += step.tokenIds.length;
    return needsGuess(step.position + step.tokenIds.length, this.progress(), this.periods);
  }

  /**
   * Guesses the next token from the logits of the step's last row. `takenUs`: time that the pass has taken. A token of a format takes time to choose:
   * messages of main are taken in meanwhile, and may cancel.
   */
  async takeLogits(logits: Float32Array, takenUs: number, runtime: Pick<Runtime, 'nextTurn'>): Promise<void> {
    const { running, sampler } = this;
    if (running === null || running.cancelled) return;
    const { step, branch } = running;
    const rows = step.tokenIds.length;
    const tokenId = sampler && (await runInSteps(sampler.sampleIfAny(logits, this.ranTokens), runtime));
    if (this.isCancelled) return;
    this.guessedToken = tokenId;
    if (step.kind === 'iterate') this.tellDraft(step.position + rows, branch, takenUs / rows);
  }

  /** The pass has ended. Unless it has completed and was not cancelled, the sequence gets the length that it had before. */
  endStep(completed: boolean): void {
    const { running } = this;
    this.running = null;
    if (running === null || (completed && !running.cancelled)) return;
    this.ranTokens.length = Math.min(this.ranTokens.length, running.step.position);
    this.guessedToken = null;
    this.truncate();
  }

  /** Cancels the sequence's part of the running pass: its results are not used. */
  cancel(): void {
    if (this.running === null || this.running.cancelled) return;
    this.running.cancelled = true;
    this.running.onCancel();
  }

  /** True if the sequence's part of the running pass is cancelled, or no pass runs. */
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

  /** Sends no draft for a position whose token main already knows. */
  private tellDraft(position: number, branch: number, runUs: number): void {
    if (this.guessedToken === null || position < this.mainTokens.length) return;
    const passPosition = passOf(this.outlook, position).begin;
    const draft = { position, tokenId: this.guessedToken, branch, passPosition, runUs: Math.round(runUs) };
    this.drafts.set(position, draft);
    this.events.onDraft?.(draft);
  }

  /** Sends predictions and drafts again that now belong to other passes than those that main was sent. */
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

  /** Another token than main's was run, or runs, at `position`: drops everything from there on. */
  private restart(position: number): void {
    this.ranTokens.length = position;
    this.guessedToken = null;
    this.rows.dropFrom(position);
    this.predictions.dropFrom(position);
    for (const drafted of [...this.drafts.keys()]) if (drafted >= position) this.drafts.delete(drafted);
    this.events.onRestart?.(position);
    if (this.running === null) this.truncate();
    else this.cancel();
  }

  /**
   * Cuts the cache back to the positions of ranTokens. If a recurrence cannot be cut back so far, shadow runs all positions anew, those before the
   * cut without predictions.
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
    this.guessedToken = null;
  }

  private progress(): ShadowProgress {
    return {
      mainTokens: this.mainTokens,
      promptTokens: this.start.promptTokens,
      prefillTokens: this.prefillTokens,
      nextPosition: this.ranTokens.length,
      guessedToken: this.guessedToken,
      maxPositions: this.start.maxPositions,
      outlook: this.outlook,
      optimistic: this.start.optimistic,
    };
  }
}
