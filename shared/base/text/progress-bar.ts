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

/** A bar on stderr; shows nothing if stderr is not a terminal. `label`: "loading the model"; `describe`: formats an amount, by default as bytes. */
export function createProgressBar(label: string, describe: (amount: number) => string = formatBytes): ProgressBar {
  if (!process.stderr.isTTY) return SILENT;
  const bar = new SingleBar({
    format: `${printableLine(label)} [{bar}] {percentage} %  {done} of {all}`,
    stream: process.stderr,
    clearOnComplete: true,
    hideCursor: true,
    barCompleteChar: '#',
    barIncompleteChar: '.',
  });
  bar.start(1, 0, { done: describe(0), all: '?' });
  let running = true;
  return {
    update(done, total) {
      bar.setTotal(total);
      bar.update(done, { done: describe(done), all: describe(total) });
    },
    stop() {
      if (running) bar.stop();
      running = false;
    },
  };
}
