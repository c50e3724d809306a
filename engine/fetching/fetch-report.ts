import type { FetchProgress } from '../../packs/fetching/expert-fetcher.js';
import { formatByteSize } from '../../shared/base/text/byte-size.js';
import type { Logger } from '../../shared/base/log/logger.js';
import type { Runtime } from '../../shared/base/runtime/runtime.js';
import { createProgressBar, type ProgressBar } from '../../shared/base/text/progress-bar.js';

/** Shortest time between two lines about a fetch. */
export const REPORT_INTERVAL_MS = 10_000;
const BAR_INTERVAL_MS = 200;

/** Shows the progress of a fetch: lines in the log, and a bar if stderr is a terminal. Returns a function that stops it. */
export function reportFetch(fetch: { readonly progress: FetchProgress }, runtime: Runtime, log: Logger): () => void {
  const report = new FetchReport(log);
  let bar: ProgressBar | null = null;
  const tick = (): void => {
    const { progress } = fetch;
    report.take(progress, runtime.nowMs());
    if (progress.ready) {
      bar?.stop();
      bar = null;
    } else {
      bar ??= createProgressBar('fetching experts');
      bar.update(progress.heldBytes, progress.neededBytes);
    }
  };
  const timer = runtime.every(BAR_INTERVAL_MS, tick);
  timer.unref();
  return () => {
    timer.cancel();
    bar?.stop();
  };
}

/** Chooses the log lines of a fetch: its progress from time to time, a problem that hinders it, and its end. */
export class FetchReport {
  private saidMs = -Infinity;
  private said = '';
  private problem = '';
  private wasReady = true;

  constructor(private readonly log: Logger) {}

  take({ neededBytes, heldBytes, ready, problem }: FetchProgress, nowMs: number): void {
    if (problem !== '' && problem !== this.problem) this.log.warn('fetching experts is held up', { reason: problem });
    this.problem = problem;
    const text = `${formatByteSize(heldBytes)} of ${formatByteSize(neededBytes)}`;
    if (ready) {
      if (!this.wasReady) this.log.info('all experts that are needed are here', { bytes: neededBytes });
      this.saidMs = -Infinity;
    } else if (text !== this.said && nowMs - this.saidMs >= REPORT_INTERVAL_MS) {
      this.log.info('fetching experts', { done: text, percent: Math.floor((100 * heldBytes) / neededBytes) });
      this.said = text;
      this.saidMs = nowMs;
    }
    this.wasReady = ready;
  }
}
