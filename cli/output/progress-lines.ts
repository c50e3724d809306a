import { describeBytes, type ProgressBar } from '../../shared/base/text/progress-bar.js';

/** Time between two lines: the log of a night's download stays short. */
const LINE_MS = 60_000;

/** Progress in lines, for a log or a pipe in place of a terminal: one a minute, as long as something comes; work that takes less says nothing. */
export function progressLines(label: string, tell: (words: string) => void, nowMs: () => number): ProgressBar {
  let toldMs = nowMs();
  return {
    update: (done, total) => {
      if (nowMs() - toldMs < LINE_MS) return;
      toldMs = nowMs();
      const share = total > 0 ? ` (${Math.floor((done / total) * 100)} %)` : '';
      tell(`${label}: ${describeBytes(done, total)}${share}`);
    },
    stop: () => undefined,
  };
}
