/** The notices of a daemon to the service manager that has started it (sd_notify): it is ready, its state in words, and it is not stuck. */
import type { Logger } from '../../shared/base/log/logger.js';
import type { Runtime } from '../../shared/base/runtime/runtime.js';
import { printableLine } from '../../shared/base/text/printable-text.js';
import type { DaemonReport } from './daemon-report.js';

/** Interval of notices where the watchdog asks for none, or for fewer. */
const NOTICE_INTERVAL_MS = 10_000;
/** A start may take this much longer from each notice on. Only an event loop that runs sends notices. */
const EXTENSION_US = 60_000_000;
/** Longest status line. systemctl cuts longer ones. */
const STATUS_CHARACTERS = 200;

export interface NoticeOptions {
  /** Those of the process: NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID. */
  readonly variables: NodeJS.ProcessEnv;
  readonly processId: number;
  readonly runtime: Pick<Runtime, 'every'>;
  readonly report: DaemonReport;
  readonly log: Logger;
  /** Returns why the message could not be sent; null: it was. */
  readonly send: (address: string, message: string) => string | null;
}

/** Sends notices from now on, to the end of the process. Does nothing where no service manager asks for them. */
export function sendNotices(options: NoticeOptions): void {
  const address = options.variables['NOTIFY_SOCKET'] ?? '';
  if (address === '') return;
  const notices = new Notices(options, address);
  options.report.watch(() => notices.send());
  const interval = Math.min(NOTICE_INTERVAL_MS, watchdogIntervalMs(options) ?? NOTICE_INTERVAL_MS);
  // The watchdog is fed by the event loop, so that it finds a loop that is stuck.
  options.runtime.every(interval, () => notices.send()).unref();
  notices.send();
}

/** Half of the time after which the watchdog ends the process; null: it does not watch this process. */
function watchdogIntervalMs({ variables, processId }: NoticeOptions): number | null {
  const periodUs = Number(variables['WATCHDOG_USEC'] ?? NaN);
  const watched = variables['WATCHDOG_PID'] ?? String(processId);
  return periodUs > 0 && watched === String(processId) ? periodUs / 2000 : null;
}

class Notices {
  private isReady = false;
  private isStopping = false;
  private status = '';
  private isFailing = false;

  constructor(
    private readonly options: NoticeOptions,
    private readonly address: string,
  ) {}

  send(): void {
    const { report, send, log } = this.options;
    const reason = send(this.address, this.lines(report).join('\n'));
    if (reason !== null && !this.isFailing) {
      log.warn('the service manager cannot be told what this daemon does', { socket: this.address, reason });
    }
    this.isFailing = reason !== null;
  }

  /** A daemon that waits for main is as ready as it can be: a boot does not wait for it. */
  private lines({ phase, words }: DaemonReport): string[] {
    const lines = ['WATCHDOG=1'];
    const status = printableLine(words).slice(0, STATUS_CHARACTERS);
    if (status !== this.status) lines.push(`STATUS=${status}`);
    if (phase === 'stopping' && !this.isStopping) lines.push('STOPPING=1');
    if ((phase === 'waiting' || phase === 'serving') && !this.isReady) lines.push('READY=1');
    if (phase === 'starting') lines.push(`EXTEND_TIMEOUT_USEC=${EXTENSION_US}`);
    this.isStopping ||= phase === 'stopping';
    this.isReady ||= phase === 'waiting' || phase === 'serving';
    this.status = status;
    return lines;
  }
}
