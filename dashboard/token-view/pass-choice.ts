import type { PassTimeline } from '../../shared/wire/cluster-events.js';

/** The choice of the passes that are shown. */
export interface PassChoice {
  /** The passes at the time of the pause; null: not paused, the newest pass is shown. */
  paused: readonly PassTimeline[] | null;
  /** Number of the shown pass; it counts only while paused. */
  shown: number;
  /** Number of the pass that is compared with it; null: none. */
  compared: number | null;
}

export const LIVE: PassChoice = { paused: null, shown: 0, compared: null };

export interface ShownPasses {
  /** The passes to step through, oldest first. */
  passes: readonly PassTimeline[];
  /** Null: there is no pass yet. */
  shown: PassTimeline | null;
  compared: PassTimeline | null;
}

/** `newest`: all passes that the cluster has sent so far, oldest first. */
export function shownPasses(choice: PassChoice, newest: readonly PassTimeline[]): ShownPasses {
  if (choice.paused === null) return { passes: newest, shown: newest.at(-1) ?? null, compared: null };
  const find = (number: number | null): PassTimeline | null =>
    choice.paused?.find((pass) => pass.number === number) ?? null;
  return { passes: choice.paused, shown: find(choice.shown), compared: find(choice.compared) };
}

export function pause(newest: readonly PassTimeline[]): PassChoice {
  const last = newest.at(-1);
  return last === undefined ? LIVE : { paused: newest, shown: last.number, compared: null };
}

/** Shows the pass that is `steps` later (negative: earlier), but at most the first or last. A live view becomes paused. */
export function step(choice: PassChoice, newest: readonly PassTimeline[], steps: number): PassChoice {
  const { passes, shown } = shownPasses(choice, newest);
  if (shown === null) return choice;
  const index = passes.indexOf(shown) + steps;
  const next = passes[Math.max(0, Math.min(passes.length - 1, index))] ?? shown;
  return { ...choice, paused: passes, shown: next.number };
}

export function show(choice: PassChoice, newest: readonly PassTimeline[], number: number): PassChoice {
  return { ...choice, paused: shownPasses(choice, newest).passes, shown: number };
}

/** `number` null: no pass is compared. */
export function compare(choice: PassChoice, newest: readonly PassTimeline[], number: number | null): PassChoice {
  const { passes, shown } = shownPasses(choice, newest);
  return shown === null ? choice : { paused: passes, shown: shown.number, compared: number };
}

/** Numbers of sequences are unique while main runs, and long; their last digits distinguish those of one pass. */
const NUMBER_DIGITS = 4;

function shortNumber(sequence: number): string {
  const digits = String(sequence);
  return digits.length <= NUMBER_DIGITS ? digits : `…${digits.slice(-NUMBER_DIGITS)}`;
}

/** The tokens of a pass: "sequence 3, position 17", or the numbers of tokens and sequences. */
export function passTitle({ number, members }: PassTimeline): string {
  const words = members.slice(0, 3).map(({ sequence, position, rows, kind }) => {
    const place = rows > 1 ? `positions ${position} to ${position + rows - 1}` : `position ${position}`;
    return `${kind === 'prompt' ? 'prompt of ' : ''}sequence ${shortNumber(sequence)}, ${place}`;
  });
  const more = members.length > 3 ? [`and ${members.length - 3} more`] : [];
  return `Pass ${number}: ${[...words, ...more].join('; ')}`;
}
