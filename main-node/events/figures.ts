import { type FigureSample, REMEMBERED_FIGURES_S } from '../../shared/wire/cluster-events.js';
import type { PeerCounts } from '../cluster/peer-totals.js';
import type { AnswerCounts } from './answer-totals.js';

/** The counts since main's start that figures are computed from. */
export interface FigureCounts {
  answers: AnswerCounts;
  /** Counts of the connected peers. */
  peers: ReadonlyMap<string, Pick<PeerCounts, 'loads' | 'storageReadBytes'>>;
  activeRequests: number;
  queuedRequests: number;
  passes: number;
  rows: number;
}

/** Samples main's work once a second, and holds the last samples. */
export class Figures {
  private readonly samples: FigureSample[] = [];
  private tokens = 0;
  private firstTokens = 0;
  private ttftMs = 0;
  private before: (FigureCounts & { atMs: number }) | null = null;

  /** The last REMEMBERED_FIGURES_S samples, the oldest first. */
  get remembered(): readonly FigureSample[] {
    return this.samples;
  }

  token(): void {
    this.tokens += 1;
  }

  firstToken(ttftMs: number): void {
    this.firstTokens += 1;
    this.ttftMs += ttftMs;
  }

  /** Takes the sample of the time since the sample before. `atMs`: time since main's start. */
  sample(atMs: number, counts: FigureCounts): FigureSample {
    const { before } = this;
    const elapsedS = Math.max(MIN_ELAPSED_MS, atMs - (before?.atMs ?? 0)) / 1000;
    const answers = differenceOf(counts.answers, before?.answers ?? null);
    const [loads, loadBytes] = loadsSince(counts.peers, before?.peers ?? null);
    const sample: FigureSample = {
      atMs: Math.round(atMs),
      tokensPerS: rounded(this.tokens / elapsedS),
      ttftMs: this.firstTokens === 0 ? null : rounded(this.ttftMs / this.firstTokens),
      recall: shareOf(answers.predicted, answers.activated),
      reloadsPerS: rounded(answers.reloads / elapsedS),
      draftsRight: shareOf(answers.draftsRight, answers.draftsRun),
      loadsPerS: rounded(loads / elapsedS),
      loadBytesPerS: Math.round(loadBytes / elapsedS),
      activeRequests: counts.activeRequests,
      queuedRequests: counts.queuedRequests,
      passes: counts.passes - (before?.passes ?? 0),
      rows: counts.rows - (before?.rows ?? 0),
    };
    this.before = { ...counts, atMs };
    [this.tokens, this.firstTokens, this.ttftMs] = [0, 0, 0];
    this.samples.push(sample);
    if (this.samples.length > REMEMBERED_FIGURES_S) this.samples.shift();
    return sample;
  }
}

/** Shortest time over which a rate is computed. */
const MIN_ELAPSED_MS = 1;
const THOUSANDTHS = 1000;

function rounded(value: number): number {
  return Math.round(value * THOUSANDTHS) / THOUSANDTHS;
}

/** Null if `whole` is 0. The share is bounded, because late predictions may belong to an earlier second. */
function shareOf(part: number, whole: number): number | null {
  return whole <= 0 ? null : rounded(Math.min(1, Math.max(0, part / whole)));
}

function differenceOf(now: AnswerCounts, before: AnswerCounts | null): AnswerCounts {
  return {
    activated: now.activated - (before?.activated ?? 0),
    predicted: now.predicted - (before?.predicted ?? 0),
    reloads: now.reloads - (before?.reloads ?? 0),
    draftsRun: now.draftsRun - (before?.draftsRun ?? 0),
    draftsRight: now.draftsRight - (before?.draftsRight ?? 0),
  };
}

/** Sums loads of peers that were there before only: a peer that connects brings counts of earlier work. */
function loadsSince(
  now: FigureCounts['peers'],
  before: FigureCounts['peers'] | null,
): readonly [loads: number, bytes: number] {
  let [loads, bytes] = [0, 0];
  for (const [id, counts] of now) {
    const earlier = before?.get(id);
    if (earlier === undefined) continue;
    loads += Math.max(0, counts.loads - earlier.loads);
    bytes += Math.max(0, counts.storageReadBytes - earlier.storageReadBytes);
  }
  return [loads, bytes];
}
