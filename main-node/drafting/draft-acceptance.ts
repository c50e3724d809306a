import { requirePresent } from '../../shared/base/errors/assert-invariant.js';

/** How often drafts prove right, by the kind of the draft and by its place behind main's token. Pure but for its own memory. */

/** Drafts of a cell over which its mean moves. */
export const ACCEPTANCE_DRAFTS = 16;
/** Weight of what was known before the first draft of a cell, in drafts. */
const KNOWN_BEFORE = 2;
/** Drafts of the same place class behave alike: the 1st; the 2nd; the 3rd and 4th; the 5th to 8th; all later ones. */
const PLACE_CLASSES = 5;

/** The class of the draft at `place`, 0 being the first draft behind main's token. */
export function placeClass(place: number): number {
  if (place < 2) return place;
  if (place < 4) return 2;
  return place < 8 ? 3 : 4;
}

interface Cell {
  mean: number;
  drafts: number;
}

/**
 * Moving averages. `assumed`: by kind, the chance before any draft of the kind was verified. `before`: what other answers have shown; it learns from
 * this one, too.
 */
export class DraftAcceptance {
  private readonly cells: Cell[];

  constructor(
    assumed: readonly number[],
    private readonly before: DraftAcceptance | null = null,
  ) {
    this.cells = assumed.flatMap((mean) => Array.from({ length: PLACE_CLASSES }, () => ({ mean, drafts: 0 })));
  }

  /** Probability, 0 to 1, that the draft at `place` equals main's token if all drafts before it are right. */
  chance(kind: number, place: number): number {
    const cell = this.cell(kind, place);
    if (this.before === null || cell.drafts >= ACCEPTANCE_DRAFTS) return cell.mean;
    const ofOthers = this.before.chance(kind, place);
    return (KNOWN_BEFORE * ofOthers + cell.drafts * cell.mean) / (KNOWN_BEFORE + cell.drafts);
  }

  /** A draft was verified, and all drafts before it were right. */
  verified(kind: number, place: number, right: boolean): void {
    const cell = this.cell(kind, place);
    const known = this.before === null ? KNOWN_BEFORE : 0;
    cell.drafts = Math.min(cell.drafts + 1, ACCEPTANCE_DRAFTS);
    cell.mean += ((right ? 1 : 0) - cell.mean) / Math.min(cell.drafts + known, ACCEPTANCE_DRAFTS);
    this.before?.verified(kind, place, right);
  }

  private cell(kind: number, place: number): Cell {
    return requirePresent(this.cells[kind * PLACE_CLASSES + placeClass(place)], 'each kind of draft has its cells.');
  }
}
