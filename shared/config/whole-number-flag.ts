import { InvalidArgumentError } from 'commander';

/** Most threads that the native library takes. */
export const THREADS_LIMIT = 1024;

/** Parser of a command-line value that is a whole number from `least` to `most`; throws commander's InvalidArgumentError. */
export function wholeNumberFlag(least: number, most: number): (value: string) => number {
  return (value) => {
    const number = /^\d+$/.test(value) ? Number(value) : NaN;
    if (number >= least && number <= most) return number;
    throw new InvalidArgumentError(`Give a whole number from ${least} to ${most}.`);
  };
}
