import { spawn, type ChildProcessByStdio } from 'node:child_process';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import type { Readable, Writable } from 'node:stream';
import { packageRoot } from '../../shared/base/files/package-root.js';
import type { RoleSetting } from '../../shared/settings/setting-choices.js';
import { isErrorCode, OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { ErrorCode } from '../../shared/base/errors/registry.js';
import { runtime } from '../client/process-runtime.js';
import { waitForPeer } from '../../shared/base/runtime/peer-wait.js';

/** Bytes at the end of a daemon's stderr that are stored, to be shown if it fails. */
export const STDERR_TAIL_BYTES = 16 * 1024;

/** Time that daemons get to stop by themselves before they are killed. Main also gets its own grace time, to end the running answers. */
export const STOP_GRACE_MS = 5_000;

/** The error code for the loss of a daemon, by its role, as in all other places. */
export const LOST_CODES: Record<RoleSetting, ErrorCode> = {
  main: 'NO_MAIN',
  shadow: 'SHADOW_LOST',
  worker: 'WORKER_LOST',
};

/** The line that a daemon prints when it is ready; engine/daemon writes it. */
const LISTENING = /^odmoe (?:main|shadow|worker) \S+ listening on (\S+)$/m;

/** The address at which a daemon listens, from its output so far; null: not printed yet. */
export function listeningAddress(printed: string): string | null {
  return LISTENING.exec(printed)?.[1] ?? null;
}

/** The line that main prints after it; engine/daemon writes it. */
const SERVING = /^odmoe main \S+ serves HTTP at (\S+)$/m;

/** The URL at which main says that it serves HTTP clients; null: it does not serve them. */
export function servedUrl(printed: string): string | null {
  return SERVING.exec(printed)?.[1] ?? null;
}

/** For example "worker-3", or "worker bench" if the id does not contain the role. */
export function daemonName({ role, id }: { role: RoleSetting; id: string }): string {
  return id.startsWith(role) ? id : `${role} ${id}`;
}

/** The code in the last line of a daemon, "odmoe worker: message [CODE]"; without one, the code for the loss of a daemon of its role. */
export function codeOfEnd(role: RoleSetting, said: string): ErrorCode {
  const code = /\[([A-Z_]+)\]$/.exec(said.trimEnd())?.[1];
  return isErrorCode(code) ? code : LOST_CODES[role];
}

/** The command line of `odmoe ARGUMENTS`, for spawning. */
export function odmoeCommand(commandArguments: readonly string[]): [executable: string, ...rest: string[]] {
  return [process.execPath, join(packageRoot(), 'bin', 'odmoe'), ...commandArguments];
}

/** Messages with which Node or C++ end a process that is short of memory. They do not help users. */
const OUT_OF_MEMORY = /heap out of memory|Fatal process (?:OOM|out of memory)|std::bad_alloc/;

/** Advice about a daemon that ended because memory was short; empty for any other end. `said`: its last output. */
export function memoryAdvice(end: string, said: string): string {
  if (OUT_OF_MEMORY.test(said)) {
    return '\nIt had too little memory: raise `ulimit -v`, the limit of its container or --max-old-space-size in NODE_OPTIONS';
  }
  if (!end.includes('SIGKILL')) return '';
  return '\nWhere nobody has killed it, the system has, for want of memory: `dmesg` says so';
}

/** One daemon as a child process. It ends when this process ends for any reason, because the pipe to its stdin then closes. */
export class DaemonProcess {
  /** The "host:port" at which it listens; rejects if the daemon ends before. */
  readonly listening: Promise<string>;
  /** The reason of its end, as an error; resolves when it has ended. */
  readonly ended: Promise<OdmoeError>;
  private readonly child: ChildProcessByStdio<Writable, Readable, Readable>;
  private stderrTail = '';
  private running = true;

  constructor(
    readonly role: RoleSetting,
    readonly id: string,
    flags: readonly string[],
    onLine: (line: string) => void = () => undefined,
  ) {
    const [executable, ...rest] = odmoeCommand([role, '--id', id, ...flags, '--exit-with-parent']);
    // The child is in a process group of its own: only the command gets Ctrl-C, and then stops its daemons in order.
    this.child = spawn(executable, rest, { stdio: ['pipe', 'pipe', 'pipe'], detached: true });
    this.child.stdin.on('error', () => undefined);
    this.child.stderr.setEncoding('utf8').on('data', (text: string) => {
      this.stderrTail = (this.stderrTail + text).slice(-STDERR_TAIL_BYTES);
    });
    createInterface({ input: this.child.stderr }).on('line', onLine);
    this.ended = this.watchEnd();
    this.listening = this.watchListening();
    // Both promises report a failure. A caller that awaits only `ended` must not cause an unhandled rejection.
    this.listening.catch(() => undefined);
  }

  get pid(): number | undefined {
    return this.child.pid;
  }

  /** Sends SIGTERM, and SIGKILL after the grace time. Resolves when the process has ended. */
  async stop(graceMs: number = STOP_GRACE_MS): Promise<void> {
    if (this.running) this.child.kill('SIGTERM');
    const timer = waitForPeer(runtime, graceMs, () => this.child.kill('SIGKILL'));
    await this.ended;
    timer.cancel();
  }

  private watchEnd(): Promise<OdmoeError> {
    return new Promise((resolve) => {
      this.child.once('error', (error) => {
        this.running = false;
        resolve(this.failure(`could not be started (${error.message})`));
      });
      this.child.once('close', (status, signal) => {
        this.running = false;
        resolve(this.failure(signal === null ? `ended with status ${status ?? 'unknown'}` : `was ended by ${signal}`));
      });
    });
  }

  private watchListening(): Promise<string> {
    return new Promise((resolve, reject) => {
      let printed = '';
      this.child.stdout.setEncoding('utf8').on('data', (text: string) => {
        // Only the beginning is needed. The rest is read, too, so that the daemon never blocks on its output.
        if (printed.length < STDERR_TAIL_BYTES) printed += text;
        const address = listeningAddress(printed);
        if (address !== null) resolve(address);
      });
      void this.ended.then(reject);
    });
  }

  private failure(what: string): OdmoeError {
    const said = this.stderrTail.trim();
    const rest = said === '' ? '; it wrote nothing to stderr' : `; it wrote:\n${said}`;
    return new OdmoeError(codeOfEnd(this.role, said), `${daemonName(this)} ${what}${rest}${memoryAdvice(what, said)}`);
  }
}
