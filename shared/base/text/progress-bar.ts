import { SingleBar } from 'cli-progress';
import { printableLine } from './printable-text.js';
import { formatBytes } from './units.js';

export interface ProgressBar {
  /** Both fields can be passed on as functions. */
  update: (done: number, total: number) => void;
  /** Removes the bar. Idempotent. */
  stop: () => void;
}

const SILENT: ProgressBar = { update: () => undefined, stop: () => undefined };

/**
 * A bar on stderr. `label`: "loading the model"; `describe`: says how much of all is done, by default in bytes. A `total` of null is not known yet.
 * `elsewhere`: what shows progress if stderr is not a terminal; by default nothing does.
 */
export function createProgressBar(
  label: string,
  describe: (done: number, total: number | null) => string = describeBytes,
  elsewhere: ProgressBar = SILENT,
): ProgressBar {
  if (!process.stderr.isTTY) return elsewhere;
  const bar = new SingleBar({
    format: `${printableLine(label)} [{bar}] {percentage} %  {amount}`,
    stream: process.stderr,
    clearOnComplete: true,
    hideCursor: true,
    barCompleteChar: '#',
    barIncompleteChar: '.',
  });
  bar.start(1, 0, { amount: describe(0, null) });
  let running = true;
  return {
    update(done, total) {
      bar.setTotal(total);
      bar.update(done, { amount: describe(done, total) });
    },
    stop() {
      if (running) bar.stop();
      running = false;
    },
  };
}

/** "4.14 MB of 8.54 MB" */
export function describeBytes(done: number, total: number | null): string {
  return `${formatBytes(done)} of ${total === null ? '?' : formatBytes(total)}`;
}
