import { spawn, type ChildProcess } from 'node:child_process';
import { setTimeout as sleep } from 'node:timers/promises';
import { isErrorCode, OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { ErrorCode } from '../../shared/base/errors/registry.js';

const READY_LIMIT_MS = 120_000;
const RUN_LIMIT_MS = 600_000;
/** How long a process gets to stop by itself before it is killed. */
const STOP_GRACE_MS = 5_000;
/** Once the comparison is interrupted: it keeps nothing that a process could save. */
const INTERRUPTED_GRACE_MS = 500;
const LOOK_AGAIN_MS = 100;
/** Of each of its outputs; figures stand at the end. */
const KEPT_CHARACTERS = 1024 * 1024;
const SHOWN_CHARACTERS = 2_000;

/**
 * A process of a comparison. Every wait ends at once when the process has ended, by itself or by a signal, and when the comparison is
 * interrupted.
 */
export class RunningProcess {
  private stdout = '';
  private stderr = '';
  private readonly child: ChildProcess;
  /** How it ended: "ended with status 1", "was ended by SIGKILL"; null while it runs. */
  private end: string | null = null;
  private readonly ended: Promise<void>;
  /** What it wrote has been read as well. */
  private readonly closed: Promise<void>;

  /** @param name what messages call it; @param interrupted of the whole comparison: it ends waits, not the process */
  constructor(
    private readonly name: string,
    [file, ...rest]: readonly [string, ...string[]],
    private readonly interrupted: AbortSignal,
  ) {
    this.child = spawn(file, rest, { stdio: ['ignore', 'pipe', 'pipe'] });
    this.child.stdout?.setEncoding('utf8').on('data', (text: string) => (this.stdout = kept(this.stdout + text)));
    this.child.stderr?.setEncoding('utf8').on('data', (text: string) => (this.stderr = kept(this.stderr + text)));
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
   * Waits until it is ready, by what it has printed so far or otherwise.
   * @throws TIMEOUT where it takes too long; where it ended first the error that it named, USAGE if none; AbortError
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
   * Waits until it has ended well, and gives what it printed.
   * @throws TIMEOUT where it takes too long; where it failed the error that it named, USAGE if none; AbortError
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

  /** SIGTERM, and SIGKILL after the grace time. Resolves when the process has ended. */
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

  /** False: so many milliseconds have passed first. @throws AbortError */
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

function kept(text: string): string {
  return text.slice(-KEPT_CHARACTERS);
}

/** The last code of the registry that stands in what a process of odmoe wrote: "message [CODE]". */
function codeNamedIn(stderr: string): ErrorCode | null {
  const codes = [...stderr.matchAll(/\[([A-Z_]+)\]/g)].map(([, code]) => code);
  return codes.filter(isErrorCode).at(-1) ?? null;
}
