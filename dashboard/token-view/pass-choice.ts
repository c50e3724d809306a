import type { PassTrace } from '../../shared/wire/cluster-events.js';

/** Which of the kept passes is shown. */
export interface PassChoice {
  /** The passes that stood when it was paused; null: the newest is shown, live. */
  paused: readonly PassTrace[] | null;
  /** Number of the shown pass, where it is paused. */
  shown: number;
  /** Number of the pass beside it; null: none. */
  compared: number | null;
}

export const LIVE: PassChoice = { paused: null, shown: 0, compared: null };

export interface ShownPasses {
  /** Those among which one can step, oldest first. */
  passes: readonly PassTrace[];
  /** Null: there was none yet. */
  shown: PassTrace | null;
  compared: PassTrace | null;
}

/** `newest`: what the cluster told so far, oldest first. */
export function shownPasses(choice: PassChoice, newest: readonly PassTrace[]): ShownPasses {
  if (choice.paused === null) return { passes: newest, shown: newest.at(-1) ?? null, compared: null };
  const find = (number: number | null): PassTrace | null =>
    choice.paused?.find((pass) => pass.number === number) ?? null;
  return { passes: choice.paused, shown: find(choice.shown), compared: find(choice.compared) };
}

export function pause(newest: readonly PassTrace[]): PassChoice {
  const last = newest.at(-1);
  return last === undefined ? LIVE : { paused: newest, shown: last.number, compared: null };
}

/** Shows the pass that is `steps` further on (negative: back), the first or last at the ends. Live becomes paused. */
export function step(choice: PassChoice, newest: readonly PassTrace[], steps: number): PassChoice {
  const { passes, shown } = shownPasses(choice, newest);
  if (shown === null) return choice;
  const index = passes.indexOf(shown) + steps;
  const next = passes[Math.max(0, Math.min(passes.length - 1, index))] ?? shown;
  return { ...choice, paused: passes, shown: next.number };
}

export function show(choice: PassChoice, newest: readonly PassTrace[], number: number): PassChoice {
  return { ...choice, paused: shownPasses(choice, newest).passes, shown: number };
}

/** Null: nothing beside the shown one. */
export function compare(choice: PassChoice, newest: readonly PassTrace[], number: number | null): PassChoice {
  const { passes, shown } = shownPasses(choice, newest);
  return shown === null ? choice : { paused: passes, shown: shown.number, compared: number };
}

/** Sequences' numbers are unique for main's life, and long; their ends tell those of one pass apart. */
const NUMBER_DIGITS = 4;

function shortNumber(sequence: number): string {
  const digits = String(sequence);
  return digits.length <= NUMBER_DIGITS ? digits : `…${digits.slice(-NUMBER_DIGITS)}`;
}

/** Which tokens a pass was of: "sequence 3, position 17", or how many of how many. */
export function passTitle({ number, members }: PassTrace): string {
  const words = members.slice(0, 3).map(({ sequence, position, rows, kind }) => {
    const place = rows > 1 ? `positions ${position} to ${position + rows - 1}` : `position ${position}`;
    return `${kind === 'prompt' ? 'prompt of ' : ''}sequence ${shortNumber(sequence)}, ${place}`;
  });
  const more = members.length > 3 ? [`and ${members.length - 3} more`] : [];
  return `Pass ${number}: ${[...words, ...more].join('; ')}`;
}
