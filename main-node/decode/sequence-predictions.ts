import { ExpertRecall } from '../../engine/generation/expert-recall.js';
import type { Predict, SepMetrics } from '../../shared/wire/messages.js';
import { waitForPeer, type WaitRuntime } from '../../shared/base/runtime/peer-wait.js';

/** Most remembered predictions that main has not come to; further ones, from a shadow that is too far ahead, are ignored. */
export const MAX_REMEMBERED_PREDICTIONS = 8192;
/** Most router choices that are remembered for predictions that come late. */
export const MAX_REMEMBERED_CHOICES = 8192;

/** 'remembered': main will use the prediction. 'late': main's router has decided already. 'ignored': it is for the prompt, or too far ahead. */
export type ArrivalVerdict = 'remembered' | 'late' | 'ignored';

/** Number of experts that the layers of decode passes activated, by how they were predicted. */
export interface PredictionCounts {
  /** Predicted before main's router chose. */
  inTime: number;
  /** Predicted after main's router chose. */
  late: number;
  /** Not predicted, though other experts were. */
  missed: number;
  /** Activated in answers for which nothing was predicted, in layers of which main did not know them by the tokens. */
  unpredicted: number;
}

interface RouterDecision {
  /** Decode pass, from 0. */
  pass: number;
  activated: readonly number[];
}

/**
 * Shadow's predictions for one sequence, and how good they were: OD-MoE equations 2 (recall of iteration n) and 3 (recall), decode stage only. An
 * iteration is a pass, known by its first position. Counted for each pass and layer: the distinct experts that its rows activate, and those of them
 * in the set that was known when the router chose. If no set was known then, the first one that comes late counts as if it had come in time. A set
 * that grows row after row (drafts) counts with its first message only; later additions do not count.
 */
export class SequencePredictions {
  private readonly remembered = new Map<number, Predict>();
  /** Words of main's trained maps, and what it knows by tables of experts by token, for the running pass. */
  private readonly foretoldByMain = new Map<number, { prediction: Predict; isCertain: boolean }>();
  private readonly choices = new Map<number, RouterDecision>();
  private readonly recall = new ExpertRecall();
  private lateExperts = 0;
  /** Activated experts of layers of which there was a word, in time or late. */
  private spokenOf = 0;
  private lastDecided = -1;
  private passPosition = -1;
  private pass = -1;
  private onCaughtUp: (() => void) | null = null;

  constructor(
    private readonly promptTokens: number,
    private readonly layers: number,
    private readonly runtime: WaitRuntime,
  ) {}

  /** Number of predictions that main has not come to. */
  get rememberedCount(): number {
    return this.remembered.size;
  }

  /** A later prediction for the same layer replaces an earlier one, as it does at the workers. */
  arrive(prediction: Predict): ArrivalVerdict {
    const { position } = prediction.pass;
    if (position < this.promptTokens) return 'ignored';
    const place = this.place(position, prediction.layer);
    if (place <= this.lastDecided) {
      this.countLate(place, prediction);
      if (this.caughtUp) this.onCaughtUp?.();
      return 'late';
    }
    if (this.remembered.size >= MAX_REMEMBERED_PREDICTIONS && !this.remembered.has(place)) return 'ignored';
    this.remembered.set(place, prediction);
    return 'remembered';
  }

  /** A word of main's trained maps on a layer of the running pass. It counts where shadow does not speak of that layer. */
  foretell(prediction: Predict): void {
    const place = this.place(prediction.pass.position, prediction.layer);
    if (prediction.pass.position >= this.promptTokens && place > this.lastDecided)
      this.foretoldByMain.set(place, { prediction, isCertain: false });
  }

  /** The experts of a layer of the running pass are these, as they follow from its tokens. This counts in place of shadow's word. */
  know(prediction: Predict): void {
    const place = this.place(prediction.pass.position, prediction.layer);
    if (place > this.lastDecided) this.foretoldByMain.set(place, { prediction, isCertain: true });
  }

  foretold(position: number, layer: number): Predict | null {
    return this.foretoldByMain.get(this.place(position, layer))?.prediction ?? null;
  }

  isSpoken(position: number, layer: number): boolean {
    const place = this.place(position, layer);
    return this.remembered.has(place) || this.foretoldByMain.get(place)?.isCertain === true;
  }

  /** Shadow starts again at `position`: its predictions from there on are void. */
  restart(position: number): void {
    this.forget((place) => place >= this.place(position, 0));
  }

  /**
   * Main's router has decided. Returns the prediction for this layer, if it has come. `position`: the first one of the pass. Passes and their layers
   * come in rising order.
   */
  decide(position: number, layer: number, activated: readonly number[]): Predict | null {
    const place = this.place(position, layer);
    // Rows that run again, because their pass has failed, have been counted already.
    if (place <= this.lastDecided) return null;
    this.lastDecided = place;
    this.enterPass(position);
    this.recall.add(this.pass, activated.length, 0);
    const foretold = this.foretoldByMain.get(place);
    const prediction = this.remembered.get(place) ?? foretold?.prediction;
    this.foretoldByMain.delete(place);
    if (prediction === undefined) {
      this.remember(place, { pass: this.pass, activated });
      return null;
    }
    this.remembered.delete(place);
    this.count(this.pass, (foretold?.isCertain === true ? foretold.prediction : prediction).experts, activated);
    return prediction;
  }

  /** The prediction that has come for a layer of the pass at `position`; main's router has not decided there yet. */
  expected(position: number, layer: number): Predict | null {
    const place = this.place(position, layer);
    return this.remembered.get(place) ?? this.foretoldByMain.get(place)?.prediction ?? null;
  }

  /** Predictions for the pass's layers after `layer`; null when the one for its last layer has not come. */
  upcoming(position: number, layer: number): Predict[] | null {
    const last = this.layers - 1;
    if (layer < last && !this.remembered.has(this.place(position, last))) return null;
    const upcoming: Predict[] = [];
    for (let next = layer + 1; next <= last; next++) {
      const prediction = this.remembered.get(this.place(position, next));
      if (prediction !== undefined) upcoming.push(prediction);
    }
    return upcoming;
  }

  /** Resolves when the prediction for the last layer decided has come, or after limitMs. Shadow predicts in main's order. */
  async waitUntilCaughtUp(limitMs: number): Promise<void> {
    if (this.caughtUp) return;
    await new Promise<void>((resolve) => {
      const timer = waitForPeer(this.runtime, limitMs, () => resolve());
      this.onCaughtUp = () => {
        timer.cancel();
        resolve();
      };
    });
    this.onCaughtUp = null;
  }

  private get caughtUp(): boolean {
    return !this.choices.has(this.lastDecided);
  }

  metrics(): SepMetrics {
    return this.recall.result();
  }

  /** `isPredicted`: something predicts the sequence's experts in every layer. */
  activations(isPredicted: boolean): PredictionCounts {
    const { activated, predictedCorrectly } = this.metrics();
    const late = this.lateExperts;
    // Main may know the experts of some layers by the tokens, though nothing predicts those of the others.
    const unpredicted = isPredicted ? 0 : activated - this.spokenOf;
    return {
      inTime: predictedCorrectly - late,
      late,
      missed: activated - predictedCorrectly - unpredicted,
      unpredicted,
    };
  }

  private place(position: number, layer: number): number {
    return position * this.layers + layer;
  }

  /** Drops predictions for passes that never began because an earlier pass had more rows. */
  private enterPass(position: number): void {
    if (position === this.passPosition) return;
    this.passPosition = position;
    this.pass += 1;
    this.forget((place) => place < this.place(position, 0));
    for (const place of [...this.foretoldByMain.keys()])
      if (place < this.place(position, 0)) this.foretoldByMain.delete(place);
  }

  private forget(isVoid: (place: number) => boolean): void {
    for (const place of [...this.remembered.keys()]) if (isVoid(place)) this.remembered.delete(place);
  }

  /** Counts a late prediction once for each layer, and only if no earlier prediction has been counted. */
  private countLate(place: number, prediction: Predict): void {
    const decision = this.choices.get(place);
    if (decision === undefined) return;
    this.choices.delete(place);
    this.recall.addLate();
    this.lateExperts += this.count(decision.pass, prediction.experts, decision.activated);
  }

  /** Counts the activated experts that were predicted. */
  private count(pass: number, predicted: readonly number[], activated: readonly number[]): number {
    const correct = activated.filter((expert) => predicted.includes(expert)).length;
    this.recall.add(pass, 0, correct);
    this.spokenOf += activated.length;
    return correct;
  }

  private remember(place: number, decision: RouterDecision): void {
    this.choices.set(place, decision);
    if (this.choices.size <= MAX_REMEMBERED_CHOICES) return;
    for (const oldest of this.choices.keys()) {
      this.choices.delete(oldest);
      return;
    }
  }
}
