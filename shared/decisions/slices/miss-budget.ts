/**
 * The miss-rate constraint of a sequence (SliceMoE, sections 3 and 6.1): bytes fetched, of the bytes that a system which keeps whole experts asks
 * for, stay below a target. Levers are pulled one after the other until they do. Swapping experts hurts more than low bits, so it comes last.
 */
import type { Routing } from '../../settings/logical-rules.js';
import { StepNumbers } from './step-numbers.js';

/** The constraint begins after so many decode steps; bytes before are not counted. */
export const FREE_STEPS = 10;

/** SliceMoE's targets. */
export const MISS_TARGETS: readonly number[] = [0.01, 0.025, 0.05, 0.1];

/** Below this part of the target the last lever is let go again. */
const EASED_SHARE = 0.9;

export interface Lever {
  readonly name: string;
  /** No lower slice is fetched. */
  readonly upperOnly: boolean;
  /** Null: the routing that was asked for. */
  readonly routing: Routing | null;
}

function bias(lambda: number, kept: number): Lever {
  return { name: `bias ${lambda}, J = ${kept}`, upperOnly: true, routing: { kind: 'cache-prior', lambda, kept } };
}

export const NO_LEVER: Lever = { name: 'none', upperOnly: false, routing: null };

/** From the mildest to the strongest. */
export const LEVERS: readonly Lever[] = [
  NO_LEVER,
  { name: 'upper slices only', upperOnly: true, routing: null },
  ...[0.25, 0.5, 1, 2, 4].map((lambda) => bias(lambda, 1)),
  ...[1, 2, 4].map((lambda) => bias(lambda, 0)),
];

/** The routing by which a sequence chooses: that of its lever, if it has one. A lever never weakens a bias that was asked for. */
export function pulledRouting(asked: Routing, { routing: pulled }: Lever): Routing {
  if (pulled === null) return asked;
  if (asked.kind !== 'cache-prior' || pulled.kind !== 'cache-prior') return pulled;
  const { kind } = asked;
  return { kind, lambda: Math.max(asked.lambda, pulled.lambda), kept: Math.min(asked.kept, pulled.kept) };
}

export interface BudgetReport {
  readonly lever: string;
  /** Bytes fetched over bytes asked, without the first steps; null: there were no others. */
  readonly missShare: number | null;
  /** The share is at or below the target, or null. */
  readonly isMet: boolean;
}

const STEPS = 0;
const ASKED = 1;
const FETCHED = 2;
const LEVER = 3;
const COUNT = 4;

export class MissBudget {
  constructor(
    readonly target: number,
    private readonly numbers = StepNumbers.zeros(COUNT),
  ) {}

  get lever(): Lever {
    return LEVERS[this.numbers.get(LEVER)] ?? NO_LEVER;
  }

  /**
   * Whether an optional fetch may begin. It may while no more than the target is fetched, so the bytes of one fetch are the most by which optional
   * fetches exceed the target. An upper slice that a chosen expert lacks is not optional.
   */
  get hasRoom(): boolean {
    return !this.counts || this.numbers.get(FETCHED) <= this.target * this.numbers.get(ASKED);
  }

  get report(): BudgetReport {
    const { missShare } = this;
    const isCounted = this.numbers.get(ASKED) > 0;
    return { lever: this.lever.name, missShare: isCounted ? missShare : null, isMet: missShare <= this.target };
  }

  private get missShare(): number {
    const asked = this.numbers.get(ASKED);
    return asked === 0 ? 0 : this.numbers.get(FETCHED) / asked;
  }

  /** `bytes`: of a whole expert. */
  ask(bytes: number): void {
    if (this.counts) this.numbers.add(ASKED, bytes);
  }

  fetch(bytes: number): void {
    if (this.counts) this.numbers.add(FETCHED, bytes);
  }

  /** At the end of a step the next stronger or milder lever may be pulled. */
  endStep(): void {
    if (this.counts) {
      const { missShare } = this;
      const lever = this.numbers.get(LEVER);
      if (missShare > this.target) this.numbers.set(LEVER, Math.min(lever + 1, LEVERS.length - 1));
      else if (missShare < EASED_SHARE * this.target) this.numbers.set(LEVER, Math.max(lever - 1, 0));
    }
    this.numbers.add(STEPS, 1);
  }

  beginStep(): number {
    return this.numbers.beginStep();
  }

  cutBack(step: number): void {
    this.numbers.cutBack(step);
  }

  forgetBefore(step: number): void {
    this.numbers.forgetBefore(step);
  }

  fork(): MissBudget {
    return new MissBudget(this.target, this.numbers.fork());
  }

  private get counts(): boolean {
    return this.numbers.get(STEPS) >= FREE_STEPS;
  }
}
