import type { PassLayer, PassRow } from '../../shared/wire/messages.js';
import { compareProgress } from './expectations.js';

/** Number of sequences whose progress is remembered; the least recently used one is forgotten first. */
export const MAX_FOLLOWED_SEQUENCES = 256;

/** If a sequence had no execute while this many came for others, it has probably ended: its predictions give up their slots. */
export const IDLE_SEQUENCE_EXECUTES = 64;

/** The layer of a sequence whose rows ran in a pass that begins with another sequence: its next own pass may begin at the same position. */
const BEFORE_ANY_LAYER = -1;

interface Progress {
  /** The position and layer of main's latest router choice; null before the first execute. */
  passed: { pass: { position: number }; layer: number } | null;
  ended: boolean;
  /** Value of the execute counter at the last sign of life. */
  lastExecute: number;
}

/** Main's progress in each sequence. It decides whether a prediction comes in time or late. */
export class MainProgress {
  /** In order of last use. */
  private readonly sequences = new Map<number, Progress>();
  private executes = 0;

  /** Main executes at this position and layer now. `isOfHead`: of the model's own head, beside whose executes no answer is idle. */
  executed({ pass, rows, layer }: PassLayer, isOfHead: boolean): void {
    if (!isOfHead) this.executes += 1;
    const progress = this.live(pass.sequence);
    progress.passed = { pass, layer };
    progress.lastExecute = this.executes;
    for (const { sequence, position } of rows) {
      if (sequence === pass.sequence) continue;
      this.reach(sequence, { pass: { position }, layer: BEFORE_ANY_LAYER });
      this.live(sequence).lastExecute = this.executes;
    }
  }

  /** Main's router has chosen for this layer. */
  released({ pass, rows, layer }: PassLayer): void {
    this.reach(pass.sequence, { pass, layer });
    for (const { sequence, position } of rows) {
      if (sequence !== pass.sequence) this.reach(sequence, { pass: { position }, layer: BEFORE_ANY_LAYER });
    }
  }

  end(sequence: number): void {
    this.touch(sequence).ended = true;
  }

  /** True if a prediction comes too late to be useful. Main may add experts to the current layer; shadow may not. */
  isLate(source: 'main' | 'shadow', here: { pass: PassRow; layer: number }): boolean {
    const progress = this.touch(here.pass.sequence);
    if (progress.ended) return true;
    if (progress.passed === null) return false;
    const ahead = compareProgress(here, progress.passed);
    return source === 'main' ? ahead < 0 : ahead <= 0;
  }

  /** True if main is at this layer now: it will soon ask for the layer's experts or release them. */
  isAtMain(here: { pass: PassRow; layer: number }): boolean {
    const passed = this.sequences.get(here.pass.sequence)?.passed ?? null;
    return passed !== null && compareProgress(here, passed) === 0;
  }

  /** A larger number means that the sequence executed more recently. */
  lastExecute(sequence: number): number {
    return this.sequences.get(sequence)?.lastExecute ?? 0;
  }

  idleSequences(): number[] {
    const limit = this.executes - IDLE_SEQUENCE_EXECUTES;
    return [...this.sequences].filter(([, progress]) => progress.lastExecute < limit).map(([sequence]) => sequence);
  }

  /** Forgets the oldest sequences beyond MAX_FOLLOWED_SEQUENCES, except those in use, and returns them. */
  forgetOldest(isInUse: (sequence: number) => boolean): number[] {
    const forgotten: number[] = [];
    for (const sequence of this.sequences.keys()) {
      if (this.sequences.size <= MAX_FOLLOWED_SEQUENCES) break;
      if (isInUse(sequence)) continue;
      this.sequences.delete(sequence);
      forgotten.push(sequence);
    }
    return forgotten;
  }

  clear(): void {
    this.sequences.clear();
  }

  private live(sequence: number): Progress {
    const progress = this.touch(sequence);
    progress.ended = false;
    return progress;
  }

  private reach(sequence: number, here: NonNullable<Progress['passed']>): void {
    const progress = this.touch(sequence);
    if (progress.passed === null || compareProgress(here, progress.passed) > 0) progress.passed = here;
  }

  private touch(sequence: number): Progress {
    const progress = this.sequences.get(sequence) ?? { passed: null, ended: false, lastExecute: this.executes };
    this.sequences.delete(sequence);
    this.sequences.set(sequence, progress);
    return progress;
  }
}
