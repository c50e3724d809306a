/** The template has exceeded its limit of steps or of work. */
export class TemplateLimitError extends Error {}

/** Limits of a template. They are counts, not times: the same template and values have the same outcome on every machine. */
export interface TemplateLimits {
  /** Nodes of the template that may be evaluated. */
  steps: number;
  /** Characters and list items that may be made or read, weighted by their cost. */
  work: number;
}

/** Most levels of nested nodes. The stack of a thread holds several times as many. */
export const DEPTH_LIMIT = 300;

/** Cost of one character or item, in work. Together with the limit it bounds the memory of a template's values. */
export const COSTS = {
  /** One character of a new text. */
  character: 1,
  /** One character of a text that is converted to a list of characters. */
  listedCharacter: 16,
  /** One place in a new list for a value that exists already. */
  place: 2,
  /** One new value in a new list. */
  item: 32,
  /** One iteration of a loop's body: the values of the loop's state, each an object with its methods, take some ten microseconds. */
  turn: 200,
} as const;

/** Reading a text costs less than making one. */
const READ_CHARACTERS_PER_WORK = 2;

export class TemplateBudget {
  private steps = 0;
  private work = 0;
  private depth = 0;

  constructor(private readonly limits: TemplateLimits) {}

  step(): void {
    this.steps += 1;
    if (this.steps > this.limits.steps) throw new TemplateLimitError(`${this.limits.steps} steps`);
  }

  enter(): void {
    this.depth += 1;
    if (this.depth > DEPTH_LIMIT) {
      throw new TemplateLimitError(`${DEPTH_LIMIT} calls and expressions within one another`);
    }
  }

  leave(): void {
    this.depth -= 1;
  }

  /** Call this before the work is done. */
  spend(work: number): void {
    this.work += work;
    if (!(this.work <= this.limits.work)) {
      throw new TemplateLimitError(`making and reading texts and lists of ${this.limits.work} characters in all`);
    }
  }

  read(characters: number): void {
    this.spend(Math.ceil(characters / READ_CHARACTERS_PER_WORK));
  }
}
