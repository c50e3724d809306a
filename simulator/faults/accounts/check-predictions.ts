import { miniBatchRowsFor } from '../../../main-node/pass/expert-batches.js';
import { assignmentOf } from '../../../shared/placement/assignment-of.js';
import { expertsByWorker } from '../../../shared/placement/experts-by-worker.js';
import { prefillAssignment, usesNearlyAllExperts } from '../../../shared/placement/prefill-workers.js';
import type { Placement, Prediction } from '../../../shared/rpc/messages.js';
import { rowCount } from '../../../shared/rpc/pass-rows.js';
import type { AnswerAccount } from './check-alignment.js';
import { placeKey } from './check-executes.js';
import type { SequenceEvent } from './sequence-account.js';

const FIRST_LAYER = 0;

/** What main knew of predictions and did about them, worked out from what it was told and what its router chose. */
export interface PredictionAccount {
  activated: number;
  predictedCorrectly: number;
  late: number;
  /** "worker expert position layer" of each expert that was told of and not chosen, in any order. */
  releases: string[];
  /** "expert position layer" of those that main asked for where they had been told of. */
  foreseen: ReadonlySet<string>;
}

/** Goes through what happened as main should have. */
export function accountPredictions({ account, settings, promptTokens, shape }: AnswerAccount): PredictionAccount {
  const { placement, events } = account;
  const book = new PredictionBook(placement as Placement, promptTokens, shape.expertLayers);
  for (const event of events) {
    if (event.kind === 'end') break;
    book.take(event, predictsItself(settings));
  }
  return book;
}

/** Main makes predictions of its own, at any layer. */
function predictsItself({ prediction: { source } }: AnswerAccount['settings']): boolean {
  return source === 'random' || source === 'router-ahead';
}

class PredictionBook implements PredictionAccount {
  activated = 0;
  predictedCorrectly = 0;
  late = 0;
  readonly releases: string[] = [];
  readonly foreseen = new Set<string>();
  private readonly kept = new Map<number, Prediction>();
  private readonly missed = new Map<number, ReadonlySet<number>>();
  /** By position: experts of the first layer that main itself has told workers of. */
  private readonly ahead = new Map<number, Map<number, string>>();
  /** Of main's own predictions, by chance or by routers of later layers: by place. */
  private readonly own = new Map<number, Prediction>();
  /** Of each place in prefill: who was told of what. */
  private readonly announced = new Map<string, Set<string>>();
  private lastDecided = -1;

  constructor(
    private readonly placement: Placement,
    private readonly promptTokens: number,
    private readonly layers: number,
  ) {}

  take(event: SequenceEvent, byMain: boolean): void {
    if (event.kind === 'predictionArrived') this.arrived(event.prediction);
    else if (event.kind === 'announced') this.announce(event.worker, event.prediction, byMain);
    else if (event.kind === 'choice' && event.position >= this.promptTokens) this.decode(event);
    else if (event.kind === 'execute' && event.execute.pass.position < this.promptTokens) {
      const { pass, layer, experts } = event.execute;
      for (const { expert } of experts)
        this.announced.get(placeKey(pass.position, layer))?.delete(`${event.worker} ${expert}`);
    }
  }

  /** Of the prefill: what was told of and never asked for. Called at the end. */
  prefillReleases(): string[] {
    return [...this.announced].flatMap(([place, unused]) => [...unused].map((who) => `${who} ${place}`));
  }

  private arrived(prediction: Prediction): void {
    const { position } = prediction.pass;
    if (prediction.restart) {
      for (const place of [...this.kept.keys()]) if (place >= position * this.layers) this.kept.delete(place);
      return;
    }
    if (position < this.promptTokens) return;
    const place = position * this.layers + prediction.layer;
    if (place > this.lastDecided) {
      this.kept.set(place, prediction);
      return;
    }
    const activated = this.missed.get(place);
    if (activated !== undefined) {
      this.missed.delete(place);
      this.late += 1;
      this.predictedCorrectly += prediction.experts.filter((expert) => activated.has(expert)).length;
    }
    for (const [expert, worker] of assignmentOf(this.placement, prediction))
      this.releases.push(`${worker} ${expert} ${placeKey(position, prediction.layer)}`);
  }

  private announce(worker: string, prediction: Prediction, byMain: boolean): void {
    const { pass, layer, experts } = prediction;
    if (pass.position < this.promptTokens) {
      const key = placeKey(pass.position, layer);
      const told = this.announced.get(key) ?? new Set();
      for (const expert of experts) told.add(`${worker} ${expert}`);
      this.announced.set(key, told);
    } else if (byMain) {
      const place = pass.position * this.layers + layer;
      const known = this.own.get(place)?.experts ?? [];
      this.own.set(place, { ...prediction, experts: [...known, ...experts] });
    } else {
      const told = this.ahead.get(pass.position) ?? new Map<number, string>();
      for (const expert of experts) told.set(expert, worker);
      this.ahead.set(pass.position, told);
    }
  }

  private decode({ position, layer, experts }: Extract<SequenceEvent, { kind: 'choice' }>): void {
    const chosen = new Set(experts.flat());
    const place = position * this.layers + layer;
    this.lastDecided = place;
    this.activated += chosen.size;
    const prediction = this.kept.get(place) ?? this.own.get(place);
    this.kept.delete(place);
    if (prediction === undefined) this.missed.set(place, chosen);
    else this.predictedCorrectly += [...chosen].filter((expert) => prediction.experts.includes(expert)).length;
    const ahead = layer === FIRST_LAYER ? this.ahead.get(position) : undefined;
    const told = new Map([
      ...(ahead ?? []),
      ...(prediction === undefined ? [] : assignmentOf(this.placement, prediction)),
    ]);
    for (const [expert, worker] of ahead ?? [])
      if (told.get(expert) !== worker) this.releases.push(`${worker} ${expert} ${placeKey(position, layer)}`);
    for (const [expert, worker] of told) {
      if (chosen.has(expert)) this.foreseen.add(`${expert} ${placeKey(position, layer)}`);
      else this.releases.push(`${worker} ${expert} ${placeKey(position, layer)}`);
    }
  }
}

/** Recall, releases and reloads are what predictions, router and workers make them. */
export function checkPredictions(answer: AnswerAccount): string[] {
  const { account, finished, promptTokens, settings } = answer;
  const counted = accountPredictions(answer) as PredictionBook;
  const problems: string[] = [];
  const wasPredicted = predictsItself(settings) || account.events.some(({ kind }) => kind === 'begin');
  const sep = finished.sep;
  if (wasPredicted !== (sep !== null))
    problems.push(
      `recall is ${sep === null ? 'not ' : ''}told where experts were ${wasPredicted ? '' : 'not '}predicted`,
    );
  if (
    sep !== null &&
    (sep.activated !== counted.activated ||
      sep.predictedCorrectly !== counted.predictedCorrectly ||
      sep.late !== counted.late)
  )
    problems.push(
      `recall is told as ${sep.predictedCorrectly} of ${sep.activated}, ${sep.late} late; ` +
        `it was ${counted.predictedCorrectly} of ${counted.activated}, ${counted.late} late`,
    );
  const due = [...counted.releases, ...counted.prefillReleases()].sort();
  const sent = account.events
    .flatMap((event) =>
      event.kind === 'release'
        ? event.release.experts.map(
            (expert) => `${event.worker} ${expert} ${placeKey(event.release.pass.position, event.release.layer)}`,
          )
        : [],
    )
    .sort();
  if (due.join() !== sent.join()) problems.push(`releases (worker expert position layer): ${difference(due, sent)}`);
  const reloads = reloadsOf(answer, counted.foreseen);
  if (finished.reloads !== reloads)
    problems.push(`${finished.reloads} reloads are told, ${reloads} experts were loaded on the router's word`);
  return [...problems, ...checkAnnouncements(answer), ...checkTold(answer), ...(promptTokens < 1 ? ['no prompt'] : [])];
}

/** Experts that nobody had been told of and that were not in a slot when main asked, in decode. */
function reloadsOf({ account, promptTokens }: AnswerAccount, foreseen: ReadonlySet<string>): number {
  const places = new Map<string, string>();
  let reloads = 0;
  for (const event of account.events) {
    if (event.kind === 'execute' && event.execute.pass.position >= promptTokens)
      places.set(
        `${event.worker} ${event.execute.requestId}`,
        placeKey(event.execute.pass.position, event.execute.layer),
      );
    if (event.kind !== 'result') continue;
    const place = places.get(`${event.worker} ${event.result.requestId}`);
    if (place === undefined) continue;
    for (const { expert, wasLoaded } of event.result.experts)
      if (!wasLoaded && !foreseen.has(`${expert} ${place}`)) reloads += 1;
  }
  return reloads;
}

/**
 * In prefill each worker is told once of each layer's experts: of all that it is to have where the pass is expected to use nearly all; else of
 * those that it is asked for, where rows go out in several messages; at the very positions that are executed.
 */
function checkAnnouncements({ account, settings, promptTokens, shape, maxTokens }: AnswerAccount): string[] {
  const placement = account.placement as Placement;
  const due: string[] = [];
  const sent: string[] = [];
  for (const { position, tokenIds } of account.passes) {
    if (position >= promptTokens || !settings.main.prefillOverlap) continue;
    const all = usesNearlyAllExperts(placement, tokenIds.length);
    const batchRows = miniBatchRowsFor(settings.main.miniBatchRows, shape.hiddenSize);
    const batches = Math.ceil(tokenIds.length / batchRows);
    if (!all && batches === 1) continue;
    for (let layer = 0; layer < shape.expertLayers; layer++)
      for (const [worker, experts] of expertsByWorker(
        all ? prefillAssignment(placement, layer, batches) : askedFor(account.events, position, layer),
      ))
        due.push(`${worker} of ${experts.join(' ')} at ${position} x ${tokenIds.length} layer ${layer}`);
  }
  const lastPosition = promptTokens + maxTokens - 2;
  const problems: string[] = [];
  const ahead = new Set<string>();
  for (const event of account.events) {
    if (event.kind !== 'announced') continue;
    const { pass, rows, layer, experts } = event.prediction;
    if (pass.position < promptTokens) {
      sent.push(`${event.worker} of ${experts.join(' ')} at ${pass.position} x ${rowCount(rows)} layer ${layer}`);
      continue;
    }
    if (predictsItself(settings)) continue;
    const key = `${event.worker} ${experts.join(' ')} ${pass.position}`;
    if (layer !== FIRST_LAYER || pass.position > lastPosition || ahead.has(key))
      problems.push(`main told ${key} of layer ${layer} ahead`);
    ahead.add(key);
  }
  if (due.sort().join() !== sent.sort().join()) problems.push(`announcements of the prefill: ${difference(due, sent)}`);
  return problems;
}

/** Which expert each worker is asked for at a place, each once, rising. */
function askedFor(events: readonly SequenceEvent[], position: number, layer: number): (readonly [number, string])[] {
  const pairs = new Map<string, readonly [number, string]>();
  for (const event of events) {
    if (event.kind !== 'execute' || event.execute.pass.position !== position || event.execute.layer !== layer) continue;
    for (const { expert } of event.execute.experts) pairs.set(`${expert} ${event.worker}`, [expert, event.worker]);
  }
  return [...pairs.values()].sort(([left], [right]) => left - right);
}

/** What shadow tells main it tells the workers, each its own; only of what main is past it tells main alone. */
function checkTold({ account }: AnswerAccount): string[] {
  const placement = account.placement as Placement;
  const problems: string[] = [];
  const told = new Map<string, string>();
  let mainAt = -1;
  for (const event of account.events) {
    if (event.kind === 'tokenArrived') mainAt = Math.max(mainAt, event.token.position);
    if (event.kind === 'predicted' && !event.prediction.restart && event.prediction.experts.length > 0)
      told.set(event.worker, event.prediction.experts.join(' '));
    if (event.kind !== 'predictionSent' || event.prediction.restart) continue;
    const { prediction } = event;
    const due = [...expertsByWorker(assignmentOf(placement, prediction))].map(
      ([worker, experts]) => `${worker}: ${experts.join(' ')}`,
    );
    const sent = [...told].map(([worker, experts]) => `${worker}: ${experts}`);
    const isLate = told.size === 0 && mainAt > prediction.pass.position;
    if (!isLate && due.sort().join() !== sent.sort().join())
      problems.push(
        `of layer ${prediction.layer} of the pass at ${prediction.pass.position} shadow told workers ${sent.join(', ') || 'nothing'}, main ${due.join(', ')}`,
      );
    told.clear();
  }
  return problems;
}

/** What is missing of the first and what is too much. */
function difference(due: readonly string[], sent: readonly string[]): string {
  const left = [...sent];
  const missing = due.filter((one) => {
    const place = left.indexOf(one);
    if (place >= 0) left.splice(place, 1);
    return place < 0;
  });
  return `missing are [${missing.slice(0, 5).join(', ')}], not due were [${left.slice(0, 5).join(', ')}]`;
}
