import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { z } from 'zod';

/** The machine of a run. Null: not known, or for `gpu` also that there is none. */
const machineShape = z.strictObject({
  cpu: z.string().nullable(),
  cores: z.number().nullable(),
  memory_gib: z.number().nullable(),
  gpu: z.string().nullable(),
  instruction_set: z.string().nullable(),
  /** Threads that wanted to run when the run began, as the mean of a minute: above zero, other work ran. */
  load: z.number().nullable(),
});

/** Energy that the machine took while the run measured, from counters of its parts (bench/energy). */
const energyShape = z.strictObject({
  joules: z.number(),
  seconds: z.number(),
  counters: z.array(z.strictObject({ name: z.string(), joules: z.number() })),
  missing: z.array(z.string()),
});

/** One line of a file in bench/history. Null: the run's notes do not say it; for `machine` also that the figures are the same on all. */
const runLineShape = z.strictObject({
  /** Short hash; with "+changes" where the tree had some; "unknown" outside a checkout. */
  commit: z.string().nullable(),
  /** UTC: a day, or a second. */
  date: z
    .string()
    .regex(/^\d{4}-\d\d-\d\d(T\d\d:\d\d:\d\dZ)?$/)
    .nullable(),
  machine: machineShape.nullable(),
  /** As it was typed. */
  command: z.string().nullable(),
  /** Conditions that nothing else says; a person adds them. */
  note: z.string().nullable(),
  /** Left out: not measured. */
  energy: energyShape.optional(),
  figures: z.union([z.record(z.string(), z.unknown()), z.array(z.record(z.string(), z.unknown()))]),
});

export type RunMachine = z.infer<typeof machineShape>;
export type RunLine = z.infer<typeof runLineShape>;

/** Reads a file of bench/history. @throws USAGE, with the number of the line that is none */
export function parseRunLines(text: string, path: string): RunLine[] {
  return text
    .split('\n')
    .filter((line, index, lines) => index < lines.length - 1 || line !== '')
    .map((line, index) => {
      try {
        return runLineShape.parse(JSON.parse(line));
      } catch (thrown) {
        const reason = thrown instanceof z.ZodError ? z.prettifyError(thrown) : String(thrown);
        throw new OdmoeError('USAGE', `${path}, line ${index + 1}, is no measured run: ${reason}`, { cause: thrown });
      }
    });
}

const DIGITS = 6;
const LONGEST_SERIES = 32;

/**
 * The figures of a run as they are recorded: without long series of bare numbers, such as one for each token, and with six digits of each
 * fraction. Pure.
 */
export function recordedFigures(value: unknown): unknown {
  if (typeof value === 'number') return Number.isInteger(value) ? value : Number(value.toPrecision(DIGITS));
  if (Array.isArray(value)) return value.map(recordedFigures);
  if (value === null || typeof value !== 'object') return value;
  const properties = Object.entries(value).filter(([, property]) => !isLongSeries(property));
  return Object.fromEntries(properties.map(([name, property]) => [name, recordedFigures(property)]));
}

function isLongSeries(value: unknown): boolean {
  return (
    Array.isArray(value) &&
    value.length > LONGEST_SERIES &&
    value.every((item) => item === null || typeof item === 'number')
  );
}

/** The command as a shell would take it again. Pure. */
export function commandLine(args: readonly string[]): string {
  return args
    .map((word) => (/^[\w./:=,@%+-]+$/.test(word) ? word : `'${word.replaceAll("'", String.raw`'\''`)}'`))
    .join(' ');
}
