import { readFileSync } from 'node:fs';

/** The file in which Linux shows the name of its start. */
const BOOT_ID = '/proc/sys/kernel/random/boot_id';

let known: string | null = null;

/** Name of this start of the system; where the system shows none, one of this process alone. */
export function bootId(): string {
  known ??= shownBootId() ?? `${process.pid}-${performance.timeOrigin}`;
  return known;
}

function shownBootId(): string | null {
  try {
    return readFileSync(BOOT_ID, 'utf8').trim();
  } catch {
    return null;
  }
}
