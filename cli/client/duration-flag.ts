import { InvalidArgumentError } from 'commander';

const UNITS_MS: Readonly<Record<string, number>> = { s: 1000, m: 60_000, min: 60_000, h: 3_600_000, d: 86_400_000 };

/** Reads "90s", "30m", "24h" or "7d", for a flag. Returns milliseconds. Throws InvalidArgumentError. */
export function durationFlag(value: string): number {
  const [, number = '', unit = ''] = /^(\d+(?:\.\d+)?) ?([a-z]+)$/.exec(value.trim().toLowerCase()) ?? [];
  const unitMs = UNITS_MS[unit];
  if (unitMs === undefined || !(Number(number) > 0)) {
    throw new InvalidArgumentError('Give a time such as 90s, 30m, 24h or 7d.');
  }
  return Number(number) * unitMs;
}
