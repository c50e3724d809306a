import type { ExpertSlots } from '../../native/index.js';
import type { ExpertSource } from '../../shared/model/tensor-source.js';

/**
 * Registers the experts of a model with slots. The place of an expert is checked and passed at its first load; later loads use only its number.
 */
export class RegisteredExperts {
  private readonly numbers: (number | undefined)[] = [];

  /** `layerExperts`: experts of one layer. `find`: the place where an expert is stored now. */
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

  /** The expert will be stored at another place: it is registered again at its next load. */
  forget(layer: number, expert: number): void {
    this.numbers[this.indexOf(layer, expert)] = undefined;
  }

  private indexOf(layer: number, expert: number): number {
    return layer * this.layerExperts + expert;
  }
}
