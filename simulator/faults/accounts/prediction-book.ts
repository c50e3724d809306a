import { expertLayerNumbers } from '../../../shared/model/model-shape.js';
import type { Announce, Predict } from '../../../shared/wire/messages.js';
import { isAlone, type AnswerAccount } from './answer-account.js';
import type { JointPass } from './ran-passes.js';
import type { SequenceEvent } from './sequence-account.js';

/** The prediction for one layer of a pass, as main should have used it. */
export interface LayerPredictions {
  /** The prediction that main had when its router chose; null: none. */
  inTime: Predict | null;
  /** Experts that were sent to main only, which main had to announce to the workers. */
  forMain: Set<number>;
}

/** True if main makes its own predictions, at any layer. */
export function predictsItself({ settings, hasMaps }: Pick<AnswerAccount, 'settings' | 'hasMaps'>): boolean {
  const { source } = settings.prediction;
  // Without sound maps, main predicts by its routers.
  return hasMaps || source === 'random' || source === 'router-ahead' || source === 'trained';
}

function layersKnown({ settings, shape }: Pick<AnswerAccount, 'settings' | 'shape'>): ReadonlySet<number> {
  const { source } = settings.prediction;
  if (source === 'random' || source === 'off') return new Set();
  const routers = expertLayerNumbers(shape).map((layer) => shape.layers[layer]?.routed);
  return new Set([...routers.keys()].filter((layer) => routers[layer]?.byToken === true));
}

/** Replays the events of an answer as main should have handled them, and finds the predictions for its rows and their quality. */
export class PredictionBook {
  activated = 0;
  predictedCorrectly = 0;
  late = 0;
  /** Predictions that came after the router had chosen. */
  readonly latePredictions: Predict[] = [];
  private readonly predictions = new Map<JointPass, LayerPredictions[]>();
  private readonly remembered = new Map<number, Predict>();
  private readonly missed = new Map<number, ReadonlySet<number>>();
  /** Main's own predictions, by chance or by routers of later layers: by place. */
  private readonly own = new Map<number, number[]>();
  /** Experts that main announces on shadow's word, by place; the word may be void later. */
  private readonly onShadowsWord = new Map<number, Set<number>>();
  private running: JointPass | null = null;
  private lastDecided = -1;
  private readonly layers: number;
  /** Layers whose routers choose by the token, where main uses that: it knows the experts before each pass. */
  private readonly known: ReadonlySet<number>;

  constructor(private readonly answer: AnswerAccount) {
    const { account, shape } = answer;
    this.layers = shape.expertLayers;
    this.known = layersKnown(answer);
    for (const event of account.events) {
      if (event.kind === 'end') break;
      this.take(event, predictsItself(answer));
    }
  }

  layerOf(pass: JointPass, layer: number): LayerPredictions {
    const known = this.predictions.get(pass) ?? [];
    this.predictions.set(pass, known);
    return (known[layer] ??= { inTime: null, forMain: new Set() });
  }

  private take(event: SequenceEvent, byMain: boolean): void {
    if (event.kind === 'predictionArrived') this.arrived(event.prediction);
    else if (event.kind === 'restartArrived') this.restarted(event.restart.position);
    else if (event.kind === 'announced' && byMain) this.announced(event.announce);
    else if (event.kind === 'pass') this.begin(event.of);
    else if (event.kind === 'choice') this.decide(event);
  }

  private announced({ pass, layer, experts, doubted = false }: Announce): void {
    if (pass.sequence !== this.answer.account.sequence) return;
    if (this.answer.hasMaps && !this.isRunning(pass.position)) return;
    const place = pass.position * this.layers + layer;
    if (doubted) {
      this.own.set(
        place,
        (this.own.get(place) ?? []).filter((expert) => !experts.includes(expert)),
      );
      return;
    }
    const others = this.onShadowsWord.get(place);
    const own = experts.filter((expert) => others?.has(expert) !== true);
    if (own.length > 0) this.own.set(place, [...(this.own.get(place) ?? []), ...own]);
  }

  /** The maps speak of the running pass alone. Beside a shadow, main may also announce the first layer of the next token. */
  private isRunning(position: number): boolean {
    return this.running !== null && this.answer.decodes.get(this.running) === position;
  }

  private begin(pass: JointPass): void {
    this.running = pass;
    const position = this.answer.decodes.get(pass) ?? null;
    if (position === null) return;
    for (let layer = 0; layer < this.layers; layer++) {
      const known = this.remembered.get(position * this.layers + layer);
      if (known?.mainAnnounces === true)
        for (const expert of known.experts) this.layerOf(pass, layer).forMain.add(expert);
    }
  }

  private restarted(position: number): void {
    for (const place of [...this.remembered.keys()]) if (place >= position * this.layers) this.remembered.delete(place);
  }

  private arrived(prediction: Predict): void {
    const { position } = prediction.pass;
    if (position < this.answer.promptTokens) return;
    const place = position * this.layers + prediction.layer;
    if (place > this.lastDecided) {
      this.remembered.set(place, prediction);
      if (prediction.mainAnnounces === true)
        this.onShadowsWord.set(place, new Set([...(this.onShadowsWord.get(place) ?? []), ...prediction.experts]));
      const { running } = this;
      if (prediction.mainAnnounces === true && running !== null && this.answer.decodes.get(running) === position)
        for (const expert of prediction.experts) this.layerOf(running, prediction.layer).forMain.add(expert);
      return;
    }
    const activated = this.missed.get(place);
    if (activated !== undefined) {
      this.missed.delete(place);
      this.late += 1;
      this.predictedCorrectly += prediction.experts.filter((expert) => activated.has(expert)).length;
    }
    this.latePredictions.push(prediction);
  }

  private decide({ position: first, layer, experts }: Extract<SequenceEvent, { kind: 'choice' }>): void {
    const { running } = this;
    const position = running === null ? null : (this.answer.decodes.get(running) ?? null);
    if (running === null || position === null) return;
    const chosen = new Set(experts.slice(position - first).flat());
    const place = position * this.layers + layer;
    this.lastDecided = place;
    this.activated += chosen.size;
    const prediction = this.remembered.get(place) ?? null;
    const predicted = prediction?.experts ?? (isAlone(running, this.answer.decodes) ? this.own.get(place) : undefined);
    this.remembered.delete(place);
    this.layerOf(running, layer).inTime = prediction;
    if (this.known.has(layer)) this.predictedCorrectly += chosen.size;
    else if (predicted === undefined) this.missed.set(place, chosen);
    else this.predictedCorrectly += [...chosen].filter((expert) => predicted.includes(expert)).length;
  }
}
