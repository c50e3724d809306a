import { InvalidArgumentError } from 'commander';

/** Parser of a command-line value that is a whole number from `least` to `most`; throws commander's InvalidArgumentError. */
export function wholeNumberFlag(least: number, most: number): (value: string) => number {
  return (value) => wholeNumber(value, least, most, 'a whole number');
}

/** As wholeNumberFlag, for a value that may also be the word auto. */
export function wholeNumberOrAutoFlag(least: number, most: number): (value: string) => number | 'auto' {
  return (value) => (value === 'auto' ? value : wholeNumber(value, least, most, 'auto or a whole number'));
}

function wholeNumber(value: string, least: number, most: number, allowed: string): number {
  const number = /^\d+$/.test(value) ? Number(value) : NaN;
  if (number >= least && number <= most) return number;
  throw new InvalidArgumentError(`Give ${allowed} from ${least} to ${most}.`);
}
