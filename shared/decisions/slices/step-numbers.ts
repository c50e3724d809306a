import { assertInvariant } from '../../base/errors/assert-invariant.js';

/**
 * Numbers that can be cut back to the values that they had when a step began. Steps are numbered from 0. A change costs one entry of a log,
 * and cutting back takes one write for each change.
 */
export class StepNumbers {
  private readonly changed: number[] = [];
  private readonly before: number[] = [];
  /** The length of the log when each step began, from `oldest` on. */
  private readonly starts: number[] = [];

  private constructor(
    private readonly values: Float64Array,
    private oldest: number,
  ) {}

  static zeros(count: number): StepNumbers {
    return new StepNumbers(new Float64Array(count), 0);
  }

  /** Takes a copy of the values. */
  static of(values: Float64Array): StepNumbers {
    return new StepNumbers(values.slice(), 0);
  }

  /** The number of the next step. */
  get nextStep(): number {
    return this.oldest + this.starts.length;
  }

  get(index: number): number {
    return this.values[index] ?? NaN;
  }

  set(index: number, value: number): void {
    const before = this.get(index);
    if (before === value) return;
    if (this.starts.length > 0) {
      this.changed.push(index);
      this.before.push(before);
    }
    this.values[index] = value;
  }

  add(index: number, value: number): void {
    this.set(index, this.get(index) + value);
  }

  /** Returns the step's number. */
  beginStep(): number {
    this.starts.push(this.changed.length);
    return this.nextStep - 1;
  }

  /** Sets all numbers to what they were when the step began; it and all later steps are gone. */
  cutBack(step: number): void {
    if (step === this.nextStep) return;
    const start = this.starts[step - this.oldest];
    assertInvariant(start !== undefined, 'a state is cut back to a step that it remembers.');
    for (let at = this.changed.length - 1; at >= start; at -= 1) {
      this.values[this.changed[at] ?? 0] = this.before[at] ?? 0;
    }
    this.changed.length = start;
    this.before.length = start;
    this.starts.length = step - this.oldest;
  }

  /** Nobody will cut back to a step before this one. */
  forgetBefore(step: number): void {
    const steps = Math.min(step, this.nextStep) - this.oldest;
    if (steps <= 0) return;
    const entries = this.starts[steps] ?? this.changed.length;
    this.changed.splice(0, entries);
    this.before.splice(0, entries);
    this.starts.splice(0, steps);
    this.starts.forEach((start, at) => (this.starts[at] = start - entries));
    this.oldest += steps;
  }

  /** A copy that goes its own way. It remembers no step. */
  fork(): StepNumbers {
    return new StepNumbers(this.values.slice(), this.nextStep);
  }
}
