import type { ExpertSlots } from '../../native/index.js';
import type { ExpertSource } from '../../shared/model/tensor-source.js';

/**
 * The experts of a model as slots know them. Where an expert lies is checked and handed over at its first load; every later one names it
 * by a number.
 */
export class RegisteredExperts {
  private readonly numbers: (number | undefined)[] = [];

  /** `layerExperts`: of each layer. `find`: where an expert lies now. */
  constructor(
    private readonly slots: Pick<ExpertSlots, 'register'>,
    private readonly layerExperts: number,
    private readonly find: (layer: number, expert: number) => ExpertSource,
  ) {}

  numberOf(layer: number, expert: number): number {
    return (this.numbers[this.indexOf(layer, expert)] ??= this.slots.register(this.find(layer, expert), {
      layer,
      expert,
    }));
  }

  /** It is going to lie elsewhere: it is registered anew at its next load. */
  forget(layer: number, expert: number): void {
    this.numbers[this.indexOf(layer, expert)] = undefined;
  }

  private indexOf(layer: number, expert: number): number {
    return layer * this.layerExperts + expert;
  }
}
