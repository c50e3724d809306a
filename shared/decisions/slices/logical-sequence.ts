/**
 * Everything by which a sequence decides experts and precision on its own: its logical cache, its miss budget and the ranges of its routers' logits.
 * The same prompt and the same tokens give the same decisions, wherever they run and whoever runs beside. It can be cut back to any step that it has
 * not been told to forget.
 */
import type { LogicalRules } from '../../settings/logical-rules.js';
import { chooseExperts, rangeOf, renormalizedScores, type RouterScores } from './choose-experts.js';
import { isCritical } from './critical-executions.js';
import { LogicalCache, type CacheShape } from './logical-cache.js';
import { MissBudget, NO_LEVER, pulledRouting, type BudgetReport } from './miss-budget.js';
import { emptyPromptState, type PromptState } from './prompt-state.js';
import { StepNumbers } from './step-numbers.js';
import { cacheContents, type CacheStart, type PromptChoices } from './warm-cache.js';

export interface SequenceRules extends LogicalRules {
  readonly cache: CacheShape;
  readonly expertsPerToken: number;
  /** Executions with at least this renormalized weight are critical. */
  readonly theta: number;
  /** Null: there is no constraint. */
  readonly missTarget: number | null;
  readonly start: CacheStart;
  readonly seed: number;
}

export interface SlicedExecution {
  readonly expert: number;
  /** The share of this expert in the sum of the chosen experts' scores. */
  readonly renormalizedWeight: number;
  readonly precision: 'high' | 'low';
  /** Bytes that the execution waits for, and all bytes that it fetches. */
  readonly waitedBytes: number;
  readonly fetchedBytes: number;
}

/** The experts of a token in one layer. */
export interface LayerChoice {
  /** By rank. */
  readonly experts: ArrayLike<number>;
  /** Each one's share in the sum of their scores. */
  readonly renormalizedWeights: Float32Array;
  /** The highest logit of the layer minus the lowest. */
  readonly logitsRange: number;
}

export class LogicalSequence {
  private readonly wholeBytes: number;
  /** Lower slices that arrive when the step ends. */
  private arriving: number[] = [];

  private constructor(
    private readonly rules: SequenceRules,
    readonly cache: LogicalCache,
    private readonly budget: MissBudget | null,
    /** Each layer has the sum of the ranges of its logits, then their count. */
    private readonly ranges: StepNumbers,
    private readonly prompt: PromptChoices,
  ) {
    this.wholeBytes = rules.cache.upperBytes + rules.cache.lowerBytes;
  }

  /** `prompt`: the state after the first rows of the prompt, where some have run. */
  static begin(rules: SequenceRules, prompt: PromptState = emptyPromptState(rules.cache)): LogicalSequence {
    const { cache, missTarget } = rules;
    return new LogicalSequence(
      rules,
      new LogicalCache(cache),
      missTarget === null ? null : new MissBudget(missTarget),
      StepNumbers.of(prompt.ranges),
      prompt.choices.fork(),
    );
  }

  /** Null without a constraint. */
  get report(): BudgetReport | null {
    return this.budget?.report ?? null;
  }

  /** A token of the prompt in one layer. Prefill runs the router's own choice, with both slices. */
  takePrompt(layer: number, router: RouterScores): void {
    const view = { isCached: () => false, meanRange: 0 };
    const experts = chooseExperts({ kind: 'top-k' }, router, this.rules.expertsPerToken, view);
    const renormalizedWeights = renormalizedScores(router, experts);
    this.takePromptChoice(layer, { experts, renormalizedWeights, logitsRange: rangeOf(router.logits) });
  }

  /** As takePrompt, for a choice that is known. */
  takePromptChoice(layer: number, { experts, renormalizedWeights, logitsRange }: LayerChoice): void {
    this.addRange(layer, logitsRange);
    renormalizedWeights.forEach((weight, rank) =>
      this.prompt.add(this.cache.numberOf(layer, experts[rank] ?? 0), weight),
    );
  }

  /** Writes a layer's part of the prompt's state, as it is now, into another one. */
  notePrompt(layer: number, into: PromptState): void {
    const first = this.cache.numberOf(layer, 0);
    into.choices.take(this.prompt, first, first + this.rules.cache.experts);
    for (const at of [2 * layer, 2 * layer + 1]) into.ranges[at] = this.ranges.get(at);
  }

  endPrompt(): void {
    this.cache.fill(cacheContents(this.rules.start, this.prompt, this.rules.cache, this.rules));
  }

  /** Returns the number of the decode step that begins. */
  beginStep(): number {
    for (const state of [this.budget, this.ranges]) state?.beginStep();
    return this.cache.beginStep();
  }

  /** The step's executions in one layer, by rank. */
  runLayer(layer: number, router: RouterScores): SlicedExecution[] {
    const meanRange = this.addRange(layer, rangeOf(router.logits));
    const isCached = (expert: number): boolean => this.cache.holds(this.cache.numberOf(layer, expert), 'upper');
    const routing = pulledRouting(this.rules.routing, this.budget?.lever ?? NO_LEVER);
    const chosen = chooseExperts(routing, router, this.rules.expertsPerToken, { isCached, meanRange });
    return this.executeAll(layer, chosen, renormalizedScores(router, chosen));
  }

  /** As runLayer, for a token that has run with this choice: the state becomes what it became then. */
  repeatLayer(layer: number, { experts, renormalizedWeights, logitsRange }: LayerChoice): void {
    this.addRange(layer, logitsRange);
    this.executeAll(layer, experts, renormalizedWeights);
  }

  endStep(): void {
    for (const expert of this.arriving) this.cache.use(expert, 'lower');
    this.arriving = [];
    this.budget?.endStep();
  }

  /** As it was before the step began. */
  cutBack(step: number): void {
    this.arriving = [];
    for (const state of [this.cache, this.budget, this.ranges]) state?.cutBack(step);
  }

  /** Nobody will cut back to a step before this one. */
  forgetBefore(step: number): void {
    for (const state of [this.cache, this.budget, this.ranges]) state?.forgetBefore(step);
  }

  /** A copy between two steps. */
  fork(): LogicalSequence {
    const { rules, cache, budget, ranges, prompt } = this;
    return new LogicalSequence(rules, cache.fork(), budget?.fork() ?? null, ranges.fork(), prompt.fork());
  }

  private executeAll(layer: number, experts: ArrayLike<number>, weights: Float32Array): SlicedExecution[] {
    return Array.from(experts, (expert, rank) => this.execute(layer, expert, weights[rank] ?? 0));
  }

  private execute(layer: number, expert: number, renormalizedWeight: number): SlicedExecution {
    const number = this.cache.numberOf(layer, expert);
    const { upperBytes, lowerBytes } = this.rules.cache;
    this.budget?.ask(this.wholeBytes);
    const upper = this.cache.holds(number, 'upper') ? 0 : upperBytes;
    this.budget?.fetch(upper);
    this.cache.use(number, 'upper');
    const result = { expert, renormalizedWeight };
    if (!isCritical(renormalizedWeight, this.rules.theta)) {
      return { ...result, precision: 'low', waitedBytes: upper, fetchedBytes: upper };
    }
    if (this.cache.holds(number, 'lower')) {
      this.cache.use(number, 'lower');
      return { ...result, precision: 'high', waitedBytes: upper, fetchedBytes: upper };
    }
    if (!this.mayFetchLower()) return { ...result, precision: 'low', waitedBytes: upper, fetchedBytes: upper };
    this.budget?.fetch(lowerBytes);
    const fetchedBytes = upper + lowerBytes;
    if (this.rules.lowerFetch === 'wait') {
      this.cache.use(number, 'lower');
      return { ...result, precision: 'high', waitedBytes: fetchedBytes, fetchedBytes };
    }
    this.arriving.push(number);
    return { ...result, precision: 'low', waitedBytes: upper, fetchedBytes };
  }

  private mayFetchLower(): boolean {
    if (this.rules.lowerFetch === 'never') return false;
    return this.budget === null || (this.budget.hasRoom && !this.budget.lever.upperOnly);
  }

  /** Returns the running mean, with this token's range. */
  private addRange(layer: number, logitsRange: number): number {
    this.ranges.add(2 * layer, logitsRange);
    this.ranges.add(2 * layer + 1, 1);
    return this.ranges.get(2 * layer) / this.ranges.get(2 * layer + 1);
  }
}
