import { operatorMs } from '../../shared/emulation/device-profile.js';
import { assignmentOf, expertsByWorker, groupForLayer } from '../../shared/placement/index.js';
import { passOfSequence } from '../../shared/rpc/pass-rows.js';
import type { DraftToken, Prediction } from '../../shared/rpc/messages.js';
import {
  firstOutlook,
  mustRestart,
  needsGuess,
  nextStep,
  oldestPosition,
  outlookAfter,
  passOf,
  type AlignmentPeriods,
  type AlignmentStep,
  type PassOutlook,
  type SequenceProgress,
  type TokenAnnouncement,
} from '../../shadow-node/predictor/alignment.js';
import { PassPredictions, type PassPrediction } from '../../shadow-node/predictor/pass-predictions.js';
import { SHADOW_PASS_ROWS } from '../../shadow-node/predictor/shadow-model.js';
import { MAIN, SHADOW, type SimulatedCluster } from './simulated-cluster.js';

/** A simulated token is right (main's) or wrong; no more is known of it. */
export const RIGHT_TOKEN = 0;
export const WRONG_TOKEN = 1;

export interface ShadowedSequence {
  sequence: number;
  prompt: number;
  promptTokens: number;
  maxPositions: number;
}

/** What main hears of shadow. */
export interface ShadowListener {
  predicted(prediction: Prediction): void;
  drafted(draft: DraftToken): void;
}

/**
 * Shadow: runs its quantized copy position by position, as the daemon's decisions let it, and predicts as each gate decides. With main's
 * tokens not aligned it runs its own, of which a trace says the predictions, so that they all count as right.
 */
export class SimulatedShadow {
  readonly #mainTokens: number[];
  readonly #predictions: PassPredictions;
  readonly #periods: AlignmentPeriods;
  /** By position, with those that run now. */
  readonly #ranTokens: number[] = [];
  readonly #drafts = new Map<number, DraftToken>();
  #ownToken: number | null = null;
  #outlook: PassOutlook;
  #running = false;
  #beganMs = 0;
  /** Rises when what runs is given up. */
  #life = 0;

  constructor(
    private readonly cluster: SimulatedCluster,
    private readonly start: ShadowedSequence,
    private readonly listener: ShadowListener,
  ) {
    const { setUp, trace } = cluster;
    this.#mainTokens = new Array<number>(start.promptTokens).fill(RIGHT_TOKEN);
    this.#periods = { token: setUp.align.tokenPeriod, keyValue: setUp.align.keyValuePeriod };
    this.#outlook = firstOutlook(start.promptTokens);
    this.#predictions = new PassPredictions(trace.layers);
  }

  begin(): void {
    this.#goOn();
  }

  end(): void {
    this.#life += 1;
    this.#running = true;
    this.cluster.dealer.forget(this.start.sequence, 0);
  }

  announce(announced: TokenAnnouncement): void {
    const { position } = announced;
    const before = this.#outlook;
    this.#outlook = outlookAfter(before, announced);
    if (position === this.#mainTokens.length) {
      this.#mainTokens.push(RIGHT_TOKEN);
      const { promptTokens } = this.start;
      if (mustRestart({ position, tokenId: RIGHT_TOKEN }, this.#ranTokens, promptTokens, this.#periods)) {
        this.#restart(position);
      }
    }
    this.#regroup(before, position);
    this.#goOn();
  }

  #regroup(before: PassOutlook, announcedPosition: number): void {
    this.#predictions.dropBelow(oldestPosition(this.#outlook));
    for (const news of this.#predictions.regroup(before, this.#outlook)) this.#tell(news);
    for (const [position, draft] of this.#drafts) {
      const passPosition = passOf(this.#outlook, position).begin;
      if (position <= announcedPosition) this.#drafts.delete(position);
      else if (passPosition !== draft.passPosition) this.#draft({ ...draft, passPosition });
    }
  }

  #restart(position: number): void {
    this.#life += 1;
    this.#running = false;
    this.#ranTokens.length = position;
    this.#ownToken = null;
    this.#predictions.dropFrom(position);
    for (const drafted of [...this.#drafts.keys()]) if (drafted >= position) this.#drafts.delete(drafted);
    const { sequence } = this.start;
    this.cluster.dealer.forget(sequence, position);
    const { network, workers, placement, recorder } = this.cluster;
    recorder.restarts += 1;
    for (const [id, worker] of workers) network.send(SHADOW, id, 0, () => worker.restart(sequence, position));
    const nothing = { rows: [], layer: 0, experts: [], workers: [] };
    const restart = { epoch: placement.epoch, pass: { sequence, position }, ...nothing, restart: true };
    network.send(SHADOW, MAIN, 0, () => this.listener.predicted(restart));
  }

  #goOn(): void {
    if (this.#running) return;
    const step = nextStep(this.#progress(), this.#periods, SHADOW_PASS_ROWS);
    if (step.kind === 'prefill' || step.kind === 'iterate') this.#run(step);
  }

  #run(step: Extract<AlignmentStep, { kind: 'prefill' | 'iterate' }>): void {
    this.#running = true;
    this.#beganMs = this.cluster.clock.nowMs;
    this.#ownToken = null;
    this.#ranTokens.push(...step.tokenIds);
    const { branch } = this.#outlook;
    const life = this.#life;
    this.#runLayer(step.kind, step.position, step.tokenIds.length, 0, () => {
      const end = step.position + step.tokenIds.length;
      if (!needsGuess(end, this.#progress(), this.#periods)) return this.#settle();
      this.cluster.clock.after(operatorMs(this.cluster.times.shadow.lmHead, 1), () => {
        if (life !== this.#life) return;
        this.#ownToken = this.#guess(end);
        if (step.kind === 'iterate') this.#tellDraft(end, branch, step.tokenIds.length);
        this.#settle();
      });
    });
  }

  #settle(): void {
    this.#running = false;
    this.#goOn();
  }

  #runLayer(kind: 'prefill' | 'iterate', position: number, rows: number, layer: number, onDone: () => void): void {
    const { clock, trace, times, recorder } = this.cluster;
    if (layer === trace.layers) return onDone();
    const life = this.#life;
    const beginMs = clock.nowMs;
    const gateMs = beginMs + operatorMs(times.shadow.denseLayer, rows);
    const endMs = gateMs + this.#expertsMs(position, rows, layer);
    if (kind === 'iterate') {
      clock.at(gateMs, () => {
        if (life === this.#life) this.#predict(position, rows, layer);
      });
    }
    clock.at(endMs, () => {
      if (life !== this.#life) return;
      const span = { lane: SHADOW, position, layer, expert: -1, beginMs, endMs, cancelled: false };
      recorder.span({ kind: 'S', ...span });
      this.#runLayer(kind, position, rows, layer + 1, onDone);
    });
  }

  /** The activated experts of some rows of a layer, one after the other. */
  #expertsMs(position: number, rows: number, layer: number): number {
    const { trace, times } = this.cluster;
    const rowsByExpert = new Map<number, number>();
    for (let row = position; row < position + rows; row += 1) {
      const experts =
        row < this.start.promptTokens
          ? trace.activated({ prompt: this.start.prompt, position: row, layer, onPath: true })
          : this.#chosen(row, layer);
      for (const expert of experts) rowsByExpert.set(expert, (rowsByExpert.get(expert) ?? 0) + 1);
    }
    let sumMs = 0;
    for (const count of rowsByExpert.values()) sumMs += operatorMs(times.shadow.expert, count);
    return sumMs;
  }

  #chosen(position: number, layer: number): readonly number[] {
    return this.cluster.trace.predicted({
      prompt: this.start.prompt,
      position,
      layer,
      onPath: this.#isOnPath(position),
    });
  }

  /** No token up to the position is wrong that main will correct. */
  #isOnPath(position: number): boolean {
    const wrong = this.#ranTokens.indexOf(WRONG_TOKEN, this.#mainTokens.length);
    return wrong < 0 || wrong > position;
  }

  /** Behind a wrong guess nothing is right; where tokens are never aligned the trace's predictions are those of shadow's own text. */
  #guess(position: number): number {
    if (this.#periods.token !== 1 && !this.cluster.drafts) return RIGHT_TOKEN;
    const right = this.#isOnPath(position - 1) && this.cluster.trace.guessedRight(this.start.prompt, position);
    return right ? RIGHT_TOKEN : WRONG_TOKEN;
  }

  #predict(position: number, rows: number, layer: number): void {
    for (let row = position; row < position + rows; row += 1) {
      this.#predictions.add(row, layer, [...this.#chosen(row, layer)]);
    }
    const passes = Array.from({ length: rows }, (_, row) => passOf(this.#outlook, position + row));
    for (const [index, pass] of passes.entries()) {
      if (passes[index + 1]?.begin === pass.begin) continue;
      const news = this.#predictions.news(pass, layer);
      if (news !== null) this.#tell(news);
    }
  }

  /** As the daemon's service: workers hear of what main is not past yet. */
  #tell(told: PassPrediction): void {
    const { placement, setUp, network } = this.cluster;
    const { sequence } = this.start;
    const { position, rows, layer, experts } = told;
    const late = position < this.#outlook.begin;
    const dealing = { spread: setUp.placement.spread === 'all', optimistic: setUp.drafting.optimistic };
    const workers = late ? [] : this.cluster.dealer.deal(sequence, dealing, told);
    const place = { ...passOfSequence(sequence, position, rows), layer };
    const prediction = { epoch: placement.epoch, ...place, experts, workers, restart: false };
    if (!late) this.#tellWorkers(prediction, told.again);
    network.send(SHADOW, MAIN, 0, () => this.listener.predicted(prediction));
  }

  #tellWorkers(prediction: Prediction, again: boolean): void {
    const { placement, network, workers } = this.cluster;
    const { pass, layer } = prediction;
    const emptied = again && prediction.workers.length === 0 ? groupForLayer(placement, layer) : [];
    for (const [id, experts] of expertsByWorker(assignmentOf(placement, prediction), emptied)) {
      const worker = workers.get(id);
      network.send(SHADOW, id, 0, () => worker?.predict('shadow', { ...pass, layer, experts }));
    }
  }

  #tellDraft(position: number, branch: number, rows: number): void {
    if (this.#ownToken === null || position < this.#mainTokens.length) return;
    const { sequence } = this.start;
    const passPosition = passOf(this.#outlook, position).begin;
    const runUs = Math.round((1000 * (this.cluster.clock.nowMs - this.#beganMs)) / rows);
    this.#draft({ epoch: 1, sequence, position, tokenId: this.#ownToken, branch, passPosition, runUs });
  }

  #draft(draft: DraftToken): void {
    this.#drafts.set(draft.position, draft);
    this.cluster.network.send(SHADOW, MAIN, 0, () => this.listener.drafted(draft));
  }

  #progress(): SequenceProgress {
    const { promptTokens, maxPositions } = this.start;
    return {
      mainTokens: this.#mainTokens,
      promptTokens,
      prefillTokens: promptTokens,
      nextPosition: this.#ranTokens.length,
      ownToken: this.#ownToken,
      maxPositions,
      outlook: this.#outlook,
      optimistic: this.cluster.setUp.drafting.optimistic,
    };
  }
}
