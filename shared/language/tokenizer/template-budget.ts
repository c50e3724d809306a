/** The template has used up its steps, or has made or read more than it may. */
export class TemplateLimitError extends Error {}

/** What a template may take. Counted, not timed: the same template and values have the same outcome on every machine. */
export interface TemplateLimits {
  /** Nodes of the template that are evaluated. */
  steps: number;
  /** Characters and list members that are made or read, weighted by what they cost. */
  work: number;
}

/** Nodes within one another. The stack of a thread holds several times as many. */
const DEPTH_LIMIT = 300;

/** What a character or member costs, in work. All that a template can hold at once follows from these and the limit. */
export const COSTS = {
  /** A character of a new text. */
  character: 1,
  /** A character of a text that is made into a list of them. */
  listedCharacter: 16,
  /** A value in a new list that was in a list before. */
  place: 2,
  /** A new value in a new list. */
  member: 32,
  /** One time through a loop's body: the values of the loop's state, each an object with its methods, take some ten microseconds. */
  turn: 200,
} as const;

/** Texts are read faster than they are made. */
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

  /** Asked before the work is done. */
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
