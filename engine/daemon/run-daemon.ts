import type { RunningNode } from './running-node.js';
import type { NodeSettings, RoleSetting } from '../../shared/settings/node-settings.js';
import { parseDaemonFlags } from '../../shared/settings/parse-daemon-flags.js';
import { OdmoeError, toOdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { dialAddress } from '../../shared/wire/addresses.js';
import { createLogger, type Logger } from '../../shared/base/log/logger.js';
import { endWithWords } from './last-words.js';
import { avoidMarkingPauses } from './collection-pauses.js';
import { WallRuntime } from '../../shared/base/runtime/wall-runtime.js';
import { standardError, standardOutput } from '../../shared/base/text/text-output.js';

/** How long a daemon may take to stop before its process ends anyway. */
export const STOP_TIMEOUT_MS = 5000;

/**
 * How long a start that is abandoned may take to give back what it holds. What is left then (memory, the lock of a process that is dead)
 * harms nobody.
 */
export const ABANDON_TIMEOUT_MS = 2000;

/** To be called by a node that cannot go on: its process stops it in order, and ends with the error's exit status. */
export type GiveUp = (error: OdmoeError) => void;

/**
 * What a daemon's start may end with: a handle, or an OdmoeError that says what to do. `abandoned` aborts when the daemon is to stop
 * before it has started: the start then gives back what it holds and rejects (requireWanted).
 */
export type StartNode = (
  settings: NodeSettings,
  log: Logger,
  giveUp: GiveUp,
  abandoned: AbortSignal,
) => Promise<RunningNode>;

/** What a daemon's process needs of the native library, which this room does not know. */
export interface NativeParts {
  /** @throws DEVICE_UNAVAILABLE where it cannot be used */
  requireAddon: () => void;
  exitWithParent: () => void;
}

/** Called between the steps of a start. Throws CANCELLED when nobody wants it any more. */
export function requireWanted(abandoned: AbortSignal): void {
  if (abandoned.aborted) throw new OdmoeError('CANCELLED', 'the daemon was stopped while it was starting');
}

/**
 * The life of a daemon's process: arguments, start, a line on stdout when it is ready (main: another one, with its URL), stop on SIGINT, SIGTERM or (with
 * --exit-with-parent) the end of stdin, also while it starts; a second signal ends it at once. Exit status: that of the error, else 0.
 */
export async function runDaemon(role: RoleSetting, start: StartNode, native: NativeParts): Promise<never> {
  avoidMarkingPauses();
  const request = orExit(role, () => parseDaemonFlags(role, process.argv.slice(2)));
  if (request.kind === 'help') {
    standardOutput.write(request.text);
    process.exit(0);
  }
  // Before anything is waited for: a worker may search main for hours.
  orExit(role, () => native.requireAddon());
  const { settings } = request;
  const log = createLogger(settings.log, { role, id: settings.id }, PROCESS);
  const ending = new Ending(role, log);
  // Whoever read it has gone; the node serves others.
  standardOutput.onError((error) => log.warn('standard output cannot be written', { reason: error.message }));
  standardError.onError(() => undefined);
  if (request.exitWithParent) {
    native.exitWithParent();
    process.stdin.on('end', () => {
      ending.begin('standard input ended', 0, 'atOnce');
    });
    process.stdin.on('error', () => {
      ending.begin('standard input failed', 0, 'atOnce');
    });
    process.stdin.resume();
  }
  try {
    const giveUp: GiveUp = (error) => {
      ending.giveUp(error);
    };
    const node = await start(settings, log, giveUp, ending.abandoned);
    if (ending.started(node)) standardOutput.write(readyText(`odmoe ${role} ${settings.id}`, node));
  } catch (thrown) {
    if (!ending.startFailed()) endWithWords(`odmoe ${role}`, thrown);
  }
  return new Promise<never>(() => undefined);
}

/** In one piece, so that who has read the first line has all of it. `name`: what each line begins with. */
function readyText(name: string, { address, httpAddress = null }: RunningNode): string {
  const served = httpAddress === null ? '' : `${name} serves HTTP at http://${dialAddress(httpAddress, OWN_HOST)}\n`;
  return `${name} listening on ${address}\n${served}`;
}

/** By this a machine reaches itself, whichever of its addresses are listened on. */
const OWN_HOST = '127.0.0.1';

function orExit<Result>(role: RoleSetting, work: () => Result): Result {
  try {
    return work();
  } catch (thrown) {
    endWithWords(`odmoe ${role}`, thrown);
  }
}

/** The clock of the process itself, beside that of the node in it. */
const PROCESS = new WallRuntime();

/** Stops the node once, whatever asks for it first, and ends the process in bounded time. */
class Ending {
  private node: RunningNode | null = null;
  private begun = false;
  private readonly abandon = new AbortController();
  /** Aborts when nothing that is under way is waited for any more. */
  private readonly cut = new AbortController();
  private settleStart: () => void = () => undefined;
  /** The start has ended, with or without a node. */
  private readonly startSettled = new Promise<void>((resolve) => (this.settleStart = resolve));

  constructor(
    private readonly role: RoleSetting,
    private readonly log: Logger,
  ) {
    for (const signal of ['SIGINT', 'SIGTERM'] as const) {
      process.on(signal, () => {
        if (this.begun) process.exit(1);
        this.begin(`${signal} received`, 0, 'drained');
      });
    }
    const fatal = (thrown: unknown): void => {
      const error = toOdmoeError(thrown);
      const stack = thrown instanceof Error ? thrown.stack : undefined;
      if (error.code !== 'INTERNAL') {
        this.log.debug('what ends the daemon came from here', { stack });
        this.giveUp(error);
        return;
      }
      this.log.error('a defect ends the daemon', { error, stack });
      this.begin('defect', error.kind.exitStatus, 'atOnce');
    };
    process.on('uncaughtException', fatal);
    process.on('unhandledRejection', fatal);
  }

  /** Aborts when the node is to stop before it has started. */
  get abandoned(): AbortSignal {
    return this.abandon.signal;
  }

  /** False when nobody wants the node any more; it is stopped then. */
  started(node: RunningNode): boolean {
    this.node = node;
    this.settleStart();
    return !this.begun;
  }

  /** True when the process is about to end anyway, with the status of what ended it. */
  startFailed(): boolean {
    this.settleStart();
    return this.begun;
  }

  giveUp(error: OdmoeError): void {
    this.cut.abort();
    if (this.begun) return;
    standardError.write(`odmoe ${this.role}: ${error.message} [${error.code}]\n`);
    this.begin(error.code, error.kind.exitStatus, 'atOnce');
  }

  /** `how`: what is under way ends first (drained), within the node's own bound, or is cut off. */
  begin(reason: string, exitStatus: number, how: 'drained' | 'atOnce'): void {
    if (how === 'atOnce') this.cut.abort();
    if (this.begun) return;
    this.begun = true;
    this.log.info('stopping', { reason });
    this.stopNode().then(
      () => process.exit(exitStatus),
      (thrown: unknown) => {
        this.log.error('stopping failed', { error: toOdmoeError(thrown) });
        process.exit(1);
      },
    );
  }

  private async stopNode(): Promise<void> {
    if (this.node === null) {
      this.abandon.abort();
      await Promise.race([this.startSettled, PROCESS.sleep(ABANDON_TIMEOUT_MS)]);
    }
    await this.node?.drain?.(this.cut.signal);
    const limit = PROCESS.after(STOP_TIMEOUT_MS, () => {
      standardError.write(`odmoe ${this.role}: did not stop within ${STOP_TIMEOUT_MS} ms; ending anyway\n`);
      process.exit(1);
    });
    limit.unref();
    await this.node?.stop();
  }
}
