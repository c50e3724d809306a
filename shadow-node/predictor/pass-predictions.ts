import { passOf, type PassOutlook, type PassRange } from './alignment.js';

/** The experts of one layer that the positions of a pass activate, for the positions that have run so far. */
export interface PassPrediction {
  /** First position of the pass. */
  position: number;
  /** Number of positions that the pass has, or is to have. */
  rows: number;
  layer: number;
  /** In order of first appearance: by position, then by the router's rank. */
  experts: number[];
  /** Those of the experts that some of the positions is expected to read with both slices. */
  critical: number[];
  /** True: replaces the earlier prediction of this pass and layer. */
  again: boolean;
  /** Time that shadow's own pass had taken when it chose the last of them. */
  runUs: number;
}

/** A router's choice for a position. */
export interface PositionChoice {
  experts: readonly number[];
  /** Those of the experts that the position is expected to read with both slices. */
  critical: readonly number[];
  /** Time that the pass had taken by then. */
  runUs: number;
}

/**
 * The choices of a sequence's routers, by position and layer, combined for the passes of main. A pass's set grows from position to position. If main
 * begins a pass with fewer positions than planned, the remaining ones go to the next pass.
 */
export class PassPredictions {
  /** position -> layer. Bounded by dropBelow: positions that main has run are forgotten. */
  private readonly chosen = new Map<number, PositionChoice[]>();
  /** First position of a pass -> layer -> sets that were sent last. */
  private readonly sent = new Map<number, SentSets[]>();

  constructor(private readonly layers: number) {}

  /** Number of positions that are remembered, and of passes whose sets were sent. */
  get openCount(): number {
    return this.chosen.size + this.sent.size;
  }

  add(position: number, layer: number, choice: PositionChoice): void {
    const layers = this.chosen.get(position) ?? [];
    layers[layer] = choice;
    this.chosen.set(position, layers);
  }

  /** The prediction to send now for a pass and layer; null when it was sent already, or there is none. */
  news({ begin, rows }: PassRange, layer: number): PassPrediction | null {
    const set = new Set<number>();
    const critical = new Set<number>();
    let runUs = 0;
    for (let position = begin; position < begin + rows; position += 1) {
      const layers = this.chosen.get(position);
      if (layers === undefined) break;
      const choice = layers[layer];
      if (choice === undefined) continue;
      for (const expert of choice.experts) set.add(expert);
      for (const expert of choice.critical) critical.add(expert);
      ({ runUs } = choice);
    }
    const news = { experts: [...set], critical: [...critical] };
    const sent = this.sent.get(begin) ?? [];
    const before = sent[layer];
    if (news.experts.length === 0 || (before !== undefined && isSame(before, news))) return null;
    sent[layer] = news;
    this.sent.set(begin, sent);
    return { position: begin, rows, layer, ...news, again: before !== undefined, runUs };
  }

  /** Main's passes have changed: returns the predictions to send for passes that positions have moved to. By pass, then by layer. */
  regroup(before: PassOutlook, after: PassOutlook): PassPrediction[] {
    const moved = new Map<number, PassRange>();
    for (const position of this.chosen.keys()) {
      const pass = passOf(after, position);
      if (pass.begin !== passOf(before, position).begin) moved.set(pass.begin, pass);
    }
    const passes = [...moved.values()].sort((left, right) => left.begin - right.begin);
    return passes.flatMap((pass) =>
      Array.from({ length: this.layers }, (_, layer) => this.news(pass, layer)).filter((news) => news !== null),
    );
  }

  /** Positions from here on were run on a wrong token. */
  dropFrom(position: number): void {
    for (const map of [this.chosen, this.sent]) {
      for (const key of [...map.keys()]) if (key >= position) map.delete(key);
    }
  }

  /** Main has passed the positions below. */
  dropBelow(position: number): void {
    for (const map of [this.chosen, this.sent]) {
      for (const key of [...map.keys()]) if (key < position) map.delete(key);
    }
  }
}

/** The experts of a prediction, and those of them that are critical. */
type SentSets = Pick<PassPrediction, 'experts' | 'critical'>;

function isSame(left: SentSets, right: SentSets): boolean {
  return isSameList(left.experts, right.experts) && isSameList(left.critical, right.critical);
}

function isSameList(left: readonly number[], right: readonly number[]): boolean {
  return left.length === right.length && left.every((value, index) => value === right[index]);
}
