import { operatorMs } from '../../shared/emulation/device-profile.js';
import type { AlignToken, DraftToken, Prediction } from '../../shared/rpc/messages.js';
import { nextStep, takesMainToken, type AlignmentStep } from '../../shadow-node/predictor/alignment.js';
import { SHADOW_PASS_ROWS } from '../../shadow-node/predictor/shadow-model.js';
import { PredictedSets } from './predicted-sets.js';
import { lastDraftPosition, passOf, type KnownPass } from './shadow-passes.js';
import { MAIN, SHADOW, type SimulatedCluster } from './simulated-cluster.js';

/** A simulated token is right (main's) or wrong; no more is known of it. */
export const RIGHT_TOKEN = 0;
export const WRONG_TOKEN = 1;

export interface ShadowedSequence {
  sequence: number;
  prompt: number;
  promptTokens: number;
  maxPositions: number;
  /** Positions of a pass of main may be drafts. */
  drafting: boolean;
  /** Main has layer 0 loaded ahead. */
  firstLayerAhead: boolean;
}

/** What main hears of shadow. */
export interface ShadowListener {
  predicted(prediction: Prediction): void;
  drafted(draft: DraftToken): void;
}

/** Shadow: runs its quantized copy position by position, as the daemon's alignment lets it, and predicts as each gate decides. */
export class SimulatedShadow {
  readonly #mainTokens: number[];
  readonly #sets: PredictedSets;
  #nextPosition = 0;
  #ownToken: number | null = null;
  /** First position that was run, or is to run, on a wrong guess. */
  #offPathFrom = Infinity;
  #known: KnownPass;
  #branch = 0;
  #running = false;
  /** When the last position began to run. */
  #beganMs = 0;
  /** Rises when what runs is given up. */
  #life = 0;

  constructor(
    private readonly cluster: SimulatedCluster,
    private readonly start: ShadowedSequence,
    private readonly listener: ShadowListener,
  ) {
    this.#mainTokens = new Array<number>(start.promptTokens).fill(RIGHT_TOKEN);
    const { spread } = cluster.setUp.placement;
    this.#sets = new PredictedSets(cluster.placement, start.sequence, spread, start.firstLayerAhead);
    this.#known = { position: start.promptTokens, rows: 1, nextRows: 1 };
  }

  begin(): void {
    this.#goOn();
  }

  end(): void {
    this.#life += 1;
    this.#running = true;
  }

  announce(token: AlignToken): void {
    const { position, rows, nextRows } = token;
    this.#branch = token.branch;
    this.#mainTokens[position] = RIGHT_TOKEN;
    const corrected = position === this.#offPathFrom;
    if (corrected) this.#correct(position);
    if (rows > 0 || corrected || position >= this.#known.position + Math.max(1, this.#known.rows)) {
      this.#known = { position, rows, nextRows };
      this.#regroup();
    }
    this.#sets.forgetBefore(this.#known.position);
    this.#goOn();
  }

  /** Main's token is another than the guess. */
  #correct(position: number): void {
    this.#offPathFrom = Infinity;
    if (this.#nextPosition < position || (this.#nextPosition === position && !this.#running)) {
      this.#ownToken = null;
      return;
    }
    this.#life += 1;
    this.#running = false;
    this.#nextPosition = position;
    this.#ownToken = null;
    this.cluster.recorder.restarts += 1;
    const forgotten = this.#sets.forgetFrom(position);
    const { sequence } = this.start;
    for (const [id, worker] of this.cluster.workers) {
      this.cluster.network.send(SHADOW, id, 0, () => {
        for (const place of forgotten) worker.predict('shadow', { sequence, ...place, experts: [] });
      });
    }
    const restart = { epoch: 1, sequence, position, layer: 0, experts: [], workers: [], restart: true };
    this.cluster.network.send(SHADOW, MAIN, 0, () => this.listener.predicted(restart));
  }

  /** Positions that were run for this pass but are not of it belong to the next one. */
  #regroup(): void {
    const next = this.#known.position + this.#known.rows;
    for (let position = next; this.#known.rows > 0 && position < this.#nextPosition; position += 1) {
      for (let layer = 0; layer < this.cluster.trace.layers; layer += 1) this.#predict(position, layer);
    }
  }

  #goOn(): void {
    if (this.#running) return;
    const step = this.#decide();
    if (step.kind === 'prefill') this.#prefill(step.position, step.tokenIds.length);
    if (step.kind === 'iterate') this.#iterate(step.position, step.tokenIds.length);
  }

  #decide(): AlignmentStep {
    const { promptTokens, maxPositions, drafting } = this.start;
    const { tokenPeriod: token, keyValuePeriod: keyValue } = this.cluster.setUp.align;
    const { optimistic } = this.cluster.setUp.drafting;
    const progress = {
      mainTokens: this.#mainTokens,
      promptTokens,
      prefillTokens: promptTokens,
      nextPosition: this.#nextPosition,
      ownToken: this.#ownToken,
      maxPositions,
    };
    const announced = this.#mainTokens.length - 1;
    const mayDraft = (drafting || optimistic) && this.#ownToken !== null && this.#nextPosition > announced;
    if (mayDraft && this.#nextPosition < maxPositions) {
      const position = this.#nextPosition;
      if (position > lastDraftPosition(this.#known, optimistic)) return { kind: 'wait', reason: 'lead' };
      return { kind: 'iterate', position, tokenIds: [this.#ownToken ?? WRONG_TOKEN], tokenFrom: 'shadow' };
    }
    return nextStep(progress, { token, keyValue }, SHADOW_PASS_ROWS);
  }

  #prefill(position: number, rows: number): void {
    const { clock, trace, times } = this.cluster;
    let durationMs = 0;
    for (let layer = 0; layer < trace.layers; layer += 1) {
      durationMs += operatorMs(times.shadow.denseLayer, rows) + this.#expertsMs(position, rows, layer);
    }
    this.#running = true;
    const life = this.#life;
    clock.after(durationMs, () => {
      if (life === this.#life) this.#finish(position + rows);
    });
  }

  #iterate(position: number, rows: number): void {
    this.#running = true;
    this.#beganMs = this.cluster.clock.nowMs;
    this.#runLayer(position, rows, 0, this.#life);
  }

  #runLayer(position: number, rows: number, layer: number, life: number): void {
    const { clock, trace, times, recorder } = this.cluster;
    if (layer === trace.layers) return this.#finish(position + rows);
    const beginMs = clock.nowMs;
    const endMs = beginMs + operatorMs(times.shadow.denseLayer, rows) + this.#expertsMs(position, rows, layer);
    clock.after(operatorMs(times.shadow.denseLayer, rows), () => {
      if (life !== this.#life) return;
      for (let row = position; row < position + rows; row += 1) this.#predict(row, layer);
    });
    clock.at(endMs, () => {
      if (life !== this.#life) return;
      const span = { lane: SHADOW, position, layer, expert: -1, beginMs, endMs, cancelled: false };
      recorder.span({ kind: 'S', ...span });
      this.#runLayer(position, rows, layer + 1, life);
    });
  }

  /** The activated experts of some rows of a layer, one after the other. */
  #expertsMs(position: number, rows: number, layer: number): number {
    const { trace, times } = this.cluster;
    const { prompt, promptTokens } = this.start;
    const rowsByExpert = new Map<number, number>();
    for (let row = position; row < position + rows; row += 1) {
      const place = { prompt, position: row, layer, onPath: row < this.#offPathFrom };
      const experts = row < promptTokens ? trace.activated(place) : trace.predicted(place);
      for (const expert of experts) rowsByExpert.set(expert, (rowsByExpert.get(expert) ?? 0) + 1);
    }
    let sumMs = 0;
    for (const count of rowsByExpert.values()) sumMs += operatorMs(times.shadow.expert, count);
    return sumMs;
  }

  #predict(position: number, layer: number): void {
    const { prompt } = this.start;
    const experts = this.cluster.trace.predicted({ prompt, position, layer, onPath: position < this.#offPathFrom });
    const prediction = this.#sets.add(passOf(position, this.#known), layer, experts);
    if (prediction === null) return;
    for (const [id, told] of this.#sets.byWorker(prediction)) this.cluster.predict(id, prediction, told);
    this.cluster.network.send(SHADOW, MAIN, 0, () => this.listener.predicted(prediction));
  }

  #finish(next: number): void {
    const { clock, times } = this.cluster;
    const life = this.#life;
    if (!this.#needsOwnToken(next)) return this.#settle(next, null);
    clock.after(operatorMs(times.shadow.lmHead, 1), () => {
      if (life !== this.#life) return;
      const right = next < this.#offPathFrom && this.cluster.trace.guessedRight(this.start.prompt, next);
      this.#settle(next, right ? RIGHT_TOKEN : WRONG_TOKEN);
    });
  }

  #settle(next: number, ownToken: number | null): void {
    this.#running = false;
    this.#nextPosition = next;
    this.#ownToken = ownToken;
    const announced = this.#mainTokens.length - 1;
    if (ownToken !== null && next > announced) {
      if (ownToken === WRONG_TOKEN && this.#keepsToMain(next)) this.#offPathFrom = Math.min(this.#offPathFrom, next);
      if (this.start.drafting || this.cluster.setUp.drafting.optimistic) this.#draft(next, ownToken);
    } else if (ownToken !== null && this.#keepsToMain(next)) {
      // Main's token is here already.
      this.#ownToken = null;
    }
    this.#goOn();
  }

  #draft(position: number, tokenId: number): void {
    const { sequence } = this.start;
    const passPosition = passOf(position, this.#known);
    const runUs = 1000 * (this.cluster.clock.nowMs - this.#beganMs);
    const draft = { epoch: 1, sequence, position, tokenId, branch: this.#branch, passPosition, runUs };
    this.cluster.network.send(SHADOW, MAIN, 0, () => this.listener.drafted(draft));
  }

  /** Main's token of this position is, or will be, what shadow runs in the end. */
  #keepsToMain(position: number): boolean {
    const { tokenPeriod: token, keyValuePeriod: keyValue } = this.cluster.setUp.align;
    return takesMainToken(position, this.start.promptTokens, { token, keyValue });
  }

  #needsOwnToken(position: number): boolean {
    if (position < this.start.promptTokens || position >= this.start.maxPositions) return false;
    if (position < this.#mainTokens.length && this.#keepsToMain(position)) return false;
    return this.start.drafting || this.cluster.setUp.drafting.optimistic || !this.#keepsToMain(position);
  }
}
