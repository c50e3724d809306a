import { spawn, type ChildProcess } from 'node:child_process';
import { setTimeout as sleep } from 'node:timers/promises';
import { isErrorCode, OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { ErrorCode } from '../../shared/base/errors/registry.js';

const READY_LIMIT_MS = 120_000;
const RUN_LIMIT_MS = 600_000;
/** Time that a process gets to stop by itself before it is killed. */
const STOP_GRACE_MS = 5_000;
/** The same time after an interruption of the comparison: no process has results to save. */
const INTERRUPTED_GRACE_MS = 500;
const LOOK_AGAIN_MS = 100;
/** Characters at the end of each output that are stored; figures come at the end. */
const TAIL_CHARACTERS = 1024 * 1024;
const SHOWN_CHARACTERS = 2_000;

/** A process of a comparison. Every wait ends at once when the process ends, by itself or by a signal, or when the comparison is interrupted. */
export class RunningProcess {
  private stdout = '';
  private stderr = '';
  private readonly child: ChildProcess;
  /** The way it ended: "ended with status 1", "was ended by SIGKILL"; null while it runs. */
  private end: string | null = null;
  private readonly ended: Promise<void>;
  /** Resolves when its output has been read completely, too. */
  private readonly closed: Promise<void>;

  /** @param name its name in messages; @param interrupted aborts with the whole comparison: it ends waits, not the process */
  constructor(
    private readonly name: string,
    [file, ...rest]: readonly [string, ...string[]],
    private readonly interrupted: AbortSignal,
  ) {
    this.child = spawn(file, rest, { stdio: ['ignore', 'pipe', 'pipe'] });
    this.child.stdout?.setEncoding('utf8').on('data', (text: string) => (this.stdout = tailOf(this.stdout + text)));
    this.child.stderr?.setEncoding('utf8').on('data', (text: string) => (this.stderr = tailOf(this.stderr + text)));
    this.ended = new Promise((settle) => {
      const endedSo = (how: string): void => {
        this.end ??= how;
        settle();
      };
      this.child.once('error', (error) => endedSo(`could not be started (${error.message})`));
      this.child.once('exit', (status, signal) => {
        endedSo(signal === null ? `ended with status ${status ?? 'unknown'}` : `was ended by ${signal}`);
      });
    });
    this.closed = new Promise((settle) => this.child.once('close', () => settle()));
  }

  /**
   * Waits until the process is ready, for example by its output so far.
   * @throws TIMEOUT if it takes too long; if the process ends first, the error that it printed, or USAGE; AbortError
   */
  async untilReady(isReady: (printed: string) => boolean): Promise<void> {
    for (let waitedMs = 0; waitedMs < READY_LIMIT_MS; waitedMs += LOOK_AGAIN_MS) {
      if (this.end !== null) throw await this.failure();
      if (isReady(this.stdout)) return;
      await this.happensWithin(this.ended, LOOK_AGAIN_MS);
    }
    throw new OdmoeError(
      'TIMEOUT',
      `${this.name} was not ready within ${READY_LIMIT_MS / 1000} s; see what it wrote: ${this.tail()}`,
    );
  }

  /**
   * Waits until the process has succeeded, and returns its output.
   * @throws TIMEOUT if it takes too long; if the process failed, the error that it printed, or USAGE; AbortError
   */
  async untilDone(): Promise<string> {
    if (!(await this.happensWithin(this.closed, RUN_LIMIT_MS))) {
      throw new OdmoeError(
        'TIMEOUT',
        `${this.name} did not end within ${RUN_LIMIT_MS / 1000} s; ask for fewer tokens (--tokens, --prompt-tokens), or take a smaller model`,
      );
    }
    if (this.child.exitCode !== 0) throw await this.failure();
    return this.stdout;
  }

  /** Sends SIGTERM, and SIGKILL after the grace time. Resolves when the process has ended. */
  async stop(graceMs = this.interrupted.aborted ? INTERRUPTED_GRACE_MS : STOP_GRACE_MS): Promise<void> {
    if (this.end !== null) return;
    this.child.kill('SIGTERM');
    const killer = setTimeout(() => this.child.kill('SIGKILL'), graceMs);
    await this.ended;
    clearTimeout(killer);
  }

  private async failure(): Promise<OdmoeError> {
    await this.happensWithin(this.closed, STOP_GRACE_MS);
    const wrote = this.tail();
    const why = wrote === '' ? 'it wrote nothing: try it alone' : `what it wrote says why: ${wrote}`;
    return new OdmoeError(codeNamedIn(this.stderr) ?? 'USAGE', `${this.name} ${this.end ?? 'still runs'}; ${why}`);
  }

  private tail(): string {
    return `${this.stdout}${this.stderr}`.slice(-SHOWN_CHARACTERS).trim();
  }

  /** Waits for the event; false: the time has passed first. @throws AbortError */
  private async happensWithin(event: Promise<void>, milliseconds: number): Promise<boolean> {
    const over = new AbortController();
    const signal = AbortSignal.any([this.interrupted, over.signal]);
    try {
      return await Promise.race([event.then(() => true), sleep(milliseconds, false, { signal })]);
    } finally {
      over.abort();
    }
  }
}

function tailOf(text: string): string {
  return text.slice(-TAIL_CHARACTERS);
}

/** The last error code in the output of an odmoe process: "message [CODE]". */
function codeNamedIn(stderr: string): ErrorCode | null {
  const codes = [...stderr.matchAll(/\[([A-Z_]+)\]/g)].map(([, code]) => code);
  return codes.filter(isErrorCode).at(-1) ?? null;
}
