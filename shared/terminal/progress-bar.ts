import { SingleBar } from 'cli-progress';
import { formatBytes } from './units.js';

export interface ProgressBar {
  /** Both can be passed on as functions. */
  update: (doneBytes: number, totalBytes: number) => void;
  /** Removes the bar. Idempotent. */
  stop: () => void;
}

const SILENT: ProgressBar = { update: () => undefined, stop: () => undefined };

/** A bar on stderr for work counted in bytes; shows nothing when stderr is no terminal. `label`: "loading the model". */
export function createProgressBar(label: string): ProgressBar {
  if (!process.stderr.isTTY) return SILENT;
  const bar = new SingleBar({
    format: `${label} [{bar}] {percentage} %  {done} of {all}`,
    stream: process.stderr,
    clearOnComplete: true,
    hideCursor: true,
    barCompleteChar: '#',
    barIncompleteChar: '.',
  });
  bar.start(1, 0, { done: formatBytes(0), all: '?' });
  let running = true;
  return {
    update(doneBytes, totalBytes) {
      bar.setTotal(totalBytes);
      bar.update(doneBytes, { done: formatBytes(doneBytes), all: formatBytes(totalBytes) });
    },
    stop() {
      if (running) bar.stop();
      running = false;
    },
  };
}
