import type { RunningNode } from './running-node.js';
import type { NodeSettings } from '../../shared/settings/node-settings.js';
import type { RoleSetting } from '../../shared/settings/setting-choices.js';
import { parseDaemonFlags } from './parse-daemon-flags.js';
import { OdmoeError, toOdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { dialAddress } from '../../shared/wire/addresses.js';
import { pageLink } from '../../shared/wire/page-link.js';
import { createLogger, type Logger } from '../../shared/base/log/logger.js';
import { DaemonReport } from './daemon-report.js';
import { serveHealth } from './health-socket.js';
import { sayMain } from './say-main.js';
import { sendNotices } from './service-notices.js';
import { endWithWords } from './last-words.js';
import { avoidMarkingPauses } from './collection-pauses.js';
import { WallRuntime } from '../../shared/base/runtime/wall-runtime.js';
import { standardError, standardOutput } from '../../shared/base/text/text-output.js';

/** Longest time for a daemon to stop before its process ends anyway. */
export const STOP_TIMEOUT_MS = 5000;

/**
 * Longest time for an abandoned start to give its resources back. Resources left after that do no harm: memory, and the lock of a process that
 * is dead.
 */
export const ABANDON_TIMEOUT_MS = 2000;

/** A node calls this when it cannot continue: its process stops it in order and ends with the error's exit status. */
export type GiveUp = (error: OdmoeError) => void;

/**
 * Starts a daemon: resolves to a handle, or rejects with an OdmoeError that tells the remedy. `abandoned` aborts when the daemon should stop
 * before it has started: then the start gives its resources back and rejects (requireWanted).
 */
export type StartNode = (
  settings: NodeSettings,
  log: Logger,
  giveUp: GiveUp,
  abandoned: AbortSignal,
  report: DaemonReport,
) => Promise<RunningNode>;

/** Functions of the native library that a daemon's process needs; this folder does not import that library. */
export interface NativeParts {
  /** @throws DEVICE_UNAVAILABLE when the library cannot be used */
  requireAddon: () => void;
  /** Left out: the daemon opens its device without waiting for anybody. @throws DEVICE_* when the GPU that the settings name cannot be used */
  requireDevice?: (settings: NodeSettings) => void;
  exitWithParent: () => void;
  leaveNoCore: () => void;
  /** Returns why the message could not be sent; null: it was. */
  sendServiceNotice: (address: string, message: string) => string | null;
}

/** Call between the steps of a start. Throws CANCELLED when the start is abandoned. */
export function requireWanted(abandoned: AbortSignal): void {
  if (abandoned.aborted) throw new OdmoeError('CANCELLED', 'the daemon was stopped while it was starting');
}

/**
 * Runs a daemon's process from its arguments to its end. It prints a line on stdout when the node is ready (main: a second line with its URL).
 * It stops on SIGINT, SIGTERM or (with --exit-with-parent) the end of stdin, also during the start; a second signal ends it at once. Exit
 * status: that of the error, otherwise 0.
 */
export async function runDaemon(role: RoleSetting, start: StartNode, native: NativeParts): Promise<never> {
  avoidMarkingPauses();
  const request = orExit(role, () => parseDaemonFlags(role, process.argv.slice(2)));
  if (request.kind === 'help') {
    standardOutput.write(request.text);
    process.exit(0);
  }
  // Check this before any wait: a worker may search for main for hours.
  orExit(role, () => native.requireAddon());
  orExit(role, () => native.leaveNoCore());
  const { settings } = request;
  orExit(role, () => native.requireDevice?.(settings));
  const log = createLogger(settings.log, { role, id: settings.id }, PROCESS);
  const report = new DaemonReport();
  const ending = new Ending(role, log, report);
  const { sendServiceNotice: send } = native;
  sendNotices({ variables: process.env, processId: process.pid, runtime: PROCESS, report, log, send });
  // One that belongs to its parent, as those of a demo do, is asked by its parent alone.
  if (!request.exitWithParent) answerHealth(settings, report, log);
  // The reader of stdout has gone; the node still serves others.
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
    const node = await start(settings, log, giveUp, ending.abandoned, report);
    if (ending.started(node)) {
      standardOutput.write(readyText(`odmoe ${role} ${settings.id}`, node, standardOutput.isTerminal));
      // The parent of a demo's daemon says it in its own words.
      if (!request.exitWithParent) sayMain(node, settings, PROCESS, (text) => say(role, text));
    }
  } catch (thrown) {
    if (!ending.startFailed()) endWithWords({ name: `odmoe ${role}`, wantsJson: false }, thrown);
  }
  return new Promise<never>(() => undefined);
}

function say(role: RoleSetting, text: string): void {
  standardError.write(`odmoe ${role}: ${text}\n`);
}

/** A daemon that `odmoe health` cannot ask serves all the same. */
function answerHealth(settings: NodeSettings, report: DaemonReport, log: Logger): void {
  serveHealth(settings, report).then(
    (close) => process.on('exit', close),
    (thrown: unknown) => log.info('odmoe health cannot ask this daemon', { reason: toOdmoeError(thrown).message }),
  );
}

/** All lines in one write, so that a reader of the first line has all of them. `name`: the start of each line. `isTerminal`: a person reads them. */
function readyText(name: string, node: RunningNode, isTerminal: boolean): string {
  const { address, httpAddress = null, notice } = node;
  const lines = [
    `listening on ${address}`,
    ...(httpAddress === null ? [] : httpLines(`http://${dialAddress(httpAddress, OWN_HOST)}`, node, isTerminal)),
    ...(notice === undefined ? [] : [notice]),
  ];
  return lines.map((line) => `${name} ${line}\n`).join('');
}

/** A key is for a person: in the log of a service others could read it. */
function httpLines(url: string, { ownKey = null }: RunningNode, isTerminal: boolean): string[] {
  const served = `serves HTTP at ${url}`;
  if (ownKey === null) return [served];
  return [
    served,
    isTerminal ? `has its page at ${pageLink(url, ownKey.text)}` : `has the key of its page in ${ownKey.path}`,
  ];
}

/** A machine reaches itself by this address, whichever of its addresses the daemon listens on. */
const OWN_HOST = '127.0.0.1';

function orExit<Result>(role: RoleSetting, work: () => Result): Result {
  try {
    return work();
  } catch (thrown) {
    endWithWords({ name: `odmoe ${role}`, wantsJson: false }, thrown);
  }
}

/** The clock of the process, which is separate from the node's clock. */
const PROCESS = new WallRuntime();

/** Stops the node once, on the first request to stop, and ends the process in bounded time. */
class Ending {
  private node: RunningNode | null = null;
  private begun = false;
  private readonly abandon = new AbortController();
  /** Aborts when the process no longer waits for work under way. */
  private readonly cut = new AbortController();
  private settleStart: () => void = () => undefined;
  /** The start has ended, with or without a node. */
  private readonly startSettled = new Promise<void>((resolve) => (this.settleStart = resolve));

  constructor(
    private readonly role: RoleSetting,
    private readonly log: Logger,
    private readonly report: DaemonReport,
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

  /** Aborts when the node should stop before it has started. */
  get abandoned(): AbortSignal {
    return this.abandon.signal;
  }

  /** False when the process is ending: then the caller must not use the node, which is being stopped. */
  started(node: RunningNode): boolean {
    this.node = node;
    this.settleStart();
    if (!this.begun) this.report.serving(node);
    return !this.begun;
  }

  /** True when the process is ending already; it keeps the exit status of the first reason. */
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

  /** `how`: work under way ends first, within the node's time limit (drained), or is cut off. */
  begin(reason: string, exitStatus: number, how: 'drained' | 'atOnce'): void {
    if (how === 'atOnce') this.cut.abort();
    if (this.begun) return;
    this.begun = true;
    this.log.info('stopping', { reason });
    this.report.stopping(`stops: ${reason}`);
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
