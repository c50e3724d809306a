import { InvalidArgumentError } from 'commander';

/** Most threads that the native library takes. */
export const THREADS_LIMIT = 1024;

/** Parser of a command-line value that is a whole number from `least` to `most`; throws commander's InvalidArgumentError. */
export function wholeNumberFlag(least: number, most: number): (value: string) => number {
  return (value) => {
    const number = wholeNumber(value);
    if (number >= least && number <= most) return number;
    throw new InvalidArgumentError(`Give a whole number from ${least} to ${most}.`);
  };
}

/** As wholeNumberFlag, of a value that may also be the word auto. */
export function wholeNumberOrAutoFlag(least: number, most: number): (value: string) => number | 'auto' {
  return (value) => {
    if (value === 'auto') return value;
    const number = wholeNumber(value);
    if (number >= least && number <= most) return number;
    throw new InvalidArgumentError(`Give auto or a whole number from ${least} to ${most}.`);
  };
}

/** Not a number when it is not written in digits. */
function wholeNumber(value: string): number {
  return /^\d+$/.test(value) ? Number(value) : NaN;
}
