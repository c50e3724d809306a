import * as jinjaPackage from '@huggingface/jinja';
import { strftime } from './strftime.js';

/** What is used of @huggingface/jinja, whose own declarations (0.5.11) name modules that TypeScript does not find. */
interface JinjaEnvironment {
  set(name: string, value: unknown): unknown;
}
interface JinjaInterpreter {
  run(program: unknown): { value: string };
  evaluate(statement: unknown, environment: JinjaEnvironment): unknown;
}
interface JinjaTemplate {
  readonly parsed: unknown;
}
const jinja = jinjaPackage as unknown as {
  Environment: new () => JinjaEnvironment;
  Interpreter: new (environment: JinjaEnvironment) => JinjaInterpreter;
  Template: new (source: string) => JinjaTemplate;
};

/** The template has used up its steps. */
export class TemplateStepsError extends Error {}

/**
 * A Jinja template that may take so many steps and no more. Steps are counted, not time: the same template and values have the same
 * outcome on every machine, however busy it is.
 */
export class BoundedTemplate {
  private readonly template: JinjaTemplate;

  /** Throws what the parser says of a source that is no template. */
  constructor(source: string) {
    this.template = new jinja.Template(source);
  }

  /** Throws TemplateStepsError after `stepsLimit` steps, and what the template itself raises. `wallMs`: the time that it is told. */
  render(variables: Record<string, unknown>, stepsLimit: number, wallMs: number): string {
    const steps = new StepBudget(stepsLimit);
    const environment = new jinja.Environment();
    for (const [name, value] of Object.entries(globalsOf(steps, wallMs))) environment.set(name, value);
    for (const [name, value] of Object.entries(variables)) environment.set(name, value);
    return new CountingInterpreter(environment, steps).run(this.template.parsed).value;
  }
}

class StepBudget {
  private taken = 0;

  constructor(private readonly limit: number) {}

  take(): void {
    this.taken += 1;
    if (this.taken > this.limit) throw new TemplateStepsError(`more than ${this.limit} steps`);
  }
}

/** Each node of the template that is evaluated is a step. */
class CountingInterpreter extends jinja.Interpreter {
  constructor(
    environment: JinjaEnvironment,
    private readonly steps: StepBudget,
  ) {
    super(environment);
  }

  override evaluate(statement: unknown, environment: JinjaEnvironment): unknown {
    this.steps.take();
    return super.evaluate(statement, environment);
  }
}

/** What a template finds beside its variables, as Template.render of the package gives it; a range costs a step a number. */
function globalsOf(steps: StepBudget, wallMs: number): Record<string, unknown> {
  return {
    ...{ true: true, false: false, none: null, True: true, False: false, None: null },
    raise_exception: (message: string) => {
      throw new Error(message);
    },
    range: (first: number, second?: number, third?: number) => rangeOf(first, second, third, steps),
    strftime_now: (format: string) => strftime(wallMs, format),
  };
}

/** Python's range. */
function rangeOf(first: number, second: number | undefined, step = 1, steps: StepBudget): number[] {
  if (step === 0) throw new Error('range() step must not be zero');
  const [start, stop] = second === undefined ? [0, first] : [first, second];
  const numbers: number[] = [];
  for (let number = start; step > 0 ? number < stop : number > stop; number += step) {
    steps.take();
    numbers.push(number);
  }
  return numbers;
}
