import { spawn, type ChildProcess } from 'node:child_process';
import { constants } from 'node:fs';
import { stat, rename, type FileHandle } from 'node:fs/promises';
import type { RoleSetting } from '../../shared/settings/setting-choices.js';
import { OdmoeError, toOdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { openCounted } from '../../shared/base/files/counted-file.js';
import { makeDirectories } from '../../shared/base/files/make-directories.js';
import {
  codeOfEnd,
  daemonName,
  listeningAddress,
  memoryAdvice,
  odmoeCommand,
  servedUrl,
} from '../demo/daemon-process.js';
import { identifyProcess, isRunning } from './process-identity.js';
import { logPath, removeRecord, writeRecord, type ProcessRecord } from './process-records.js';
import { runtime } from '../client/process-runtime.js';
import { withPeerDeadline } from '../../shared/base/runtime/peer-wait.js';

/** Size above which a log is moved to ID.log.1 when its daemon starts. */
export const LOG_LIMIT_BYTES = 16 * 1024 * 1024;

const LOG_POLL_MS = 25;

/** Bytes of a log's end that are shown when a daemon fails to start. */
const LOG_TAIL_BYTES = 4_096;

/** Most warnings that are shown of one daemon's start. */
const WARNINGS_LIMIT = 8;

export interface NodeToStart {
  role: RoleSetting;
  id: string;
}

export type StartOutcome =
  /** `url`: the URL for HTTP clients; null: none. `warnings`: the first warning lines of its log. */
  | { kind: 'started'; id: string; address: string; url: string | null; warnings: string[]; pid: number }
  | { kind: 'alreadyRunning'; id: string; pid: number }
  /** The daemon is still starting. */
  | { kind: 'late'; id: string; error: OdmoeError }
  /** The whole start has failed, so this daemon is no longer awaited. */
  | { kind: 'notAwaited'; id: string }
  | { kind: 'failed'; id: string; error: OdmoeError };

export interface BackgroundOptions {
  directory: string;
  /** cluster.yaml, as an absolute path. */
  configPath: string;
  /** Further flags of every daemon. */
  flags: readonly string[];
  /** The variables of every daemon. */
  variables: NodeJS.ProcessEnv;
  timeoutMs: number;
  /** Called with each line that a daemon tells its user while it starts, such as the code by which it joins. */
  onNotice: (line: string) => void;
  /** Aborts when the daemons are no longer awaited. */
  unwanted: AbortSignal;
  /** Called at once with each launched process, so that the caller can stop it if the start is cancelled. */
  onLaunch: (record: ProcessRecord) => void;
  /** A daemon that was ready has ended; called at most once for each. */
  onEnd: (error: OdmoeError) => void;
}

/** Starts one configured daemon, which outlives this process, and waits until it is ready. Does nothing if it already runs. */
export async function startInBackground(
  node: NodeToStart,
  record: ProcessRecord | undefined,
  options: BackgroundOptions,
): Promise<StartOutcome> {
  const { id } = node;
  try {
    if (record !== undefined && (await isRunning(identityOf(record)))) {
      return { kind: 'alreadyRunning', id, pid: record.pid };
    }
    if (options.unwanted.aborted) return { kind: 'notAwaited', id };
    const launched = await launch(node, options);
    return launched === null ? { kind: 'notAwaited', id } : { kind: 'started', id, ...launched };
  } catch (thrown) {
    const error = toOdmoeError(thrown);
    return { kind: error.code === 'TIMEOUT' ? 'late' : 'failed', id, error };
  }
}

export function identityOf(record: ProcessRecord): { pid: number; startedAt: string; commandLine: string } {
  return { pid: record.pid, startedAt: record.started_at, commandLine: record.command_line };
}

/** The data that a daemon prints when it is ready. */
interface Ready {
  address: string;
  url: string | null;
  warnings: string[];
}

/** Null: the daemon is no longer awaited. */
async function launch(node: NodeToStart, options: BackgroundOptions): Promise<(Ready & { pid: number }) | null> {
  const log = await openLog(options.directory, node.id);
  try {
    const from = (await log.stat()).size;
    const { configPath, flags, variables: env } = options;
    const [executable, ...rest] = odmoeCommand([node.role, '--config', configPath, '--id', node.id, ...flags]);
    const child = spawn(executable, rest, { detached: true, stdio: ['ignore', log.fd, log.fd], env });
    const pid = child.pid;
    const launched = { pid, end: endOf(child) };
    const identity = pid === undefined ? null : await identifyProcess(pid);
    if (pid !== undefined && identity !== null) {
      const { startedAt, commandLine } = identity;
      const record = { id: node.id, role: node.role, pid, started_at: startedAt, command_line: commandLine };
      options.onLaunch(record);
      await writeRecord(options.directory, record);
    }
    const ready = await listening(log, from, launched, node, options);
    const path = logPath(options.directory, node.id);
    const tellEnd = (): void => options.onEnd(endedError(node, launched.end.reason ?? 'ended', '', path));
    if (launched.end.reason === null) child.once('exit', tellEnd);
    else tellEnd();
    child.unref();
    return ready === null ? null : { ...ready, pid: pid ?? 0 };
  } finally {
    await log.close();
  }
}

function endedError(node: NodeToStart, reason: string, written: string, path: string): OdmoeError {
  const tail = written.slice(-LOG_TAIL_BYTES).trim();
  const said = tail === '' ? '' : `; its log says:\n${tail}`;
  const text = `${daemonName(node)} ${reason}${said}\n(${path})${memoryAdvice(reason, tail)}`;
  return new OdmoeError(codeOfEnd(node.role, tail), text);
}

async function openLog(directory: string, id: string): Promise<FileHandle> {
  const path = logPath(directory, id);
  try {
    await makeDirectories(directory, 0o700);
    const size = await stat(path).then(
      (found) => found.size,
      () => 0,
    );
    if (size > LOG_LIMIT_BYTES) await rename(path, `${path}.1`);
    return await openCounted(path, constants.O_RDWR | constants.O_CREAT | constants.O_APPEND, 0o600);
  } catch (error) {
    throw new OdmoeError('STORAGE_FAILED', `cannot write the log ${path}: ${toOdmoeError(error).message}`);
  }
}

function endOf(child: ChildProcess): { reason: string | null } {
  const end: { reason: string | null } = { reason: null };
  child.once('error', (error) => (end.reason = `could not be started: ${error.message}`));
  child.once(
    'exit',
    (status, signal) => (end.reason = signal === null ? `ended with status ${status}` : `got ${signal}`),
  );
  return end;
}

function listening(
  log: FileHandle,
  from: number,
  { pid, end }: { pid: number | undefined; end: { reason: string | null } },
  node: NodeToStart,
  options: BackgroundOptions,
): Promise<Ready | null> {
  const path = logPath(options.directory, node.id);
  let noticed = 0;
  return withPeerDeadline(runtime, options.timeoutMs, async (hasPassed) => {
    for (;;) {
      // Read the log after `end.reason`, so that the last output of an ended daemon is included.
      const { reason } = end;
      const written = await readFrom(log, from);
      const notices = noticesIn(written, node.role);
      for (const line of notices.slice(noticed)) options.onNotice(`${daemonName(node)}: ${line}`);
      noticed = notices.length;
      const address = listeningAddress(written);
      if (address !== null) return { address, url: servedUrl(written), warnings: warningsIn(written) };
      if (reason !== null) {
        if (pid !== undefined) await removeRecord(options.directory, node.id, pid);
        throw endedError(node, reason, written, path);
      }
      if (options.unwanted.aborted) return null;
      if (hasPassed()) {
        const seconds = options.timeoutMs / 1000;
        throw new OdmoeError(
          'TIMEOUT',
          `${daemonName(node)} is not ready after ${seconds} s; it goes on starting${saidLast(written)} (${path})`,
        );
      }
      await runtime.sleep(LOG_POLL_MS);
    }
  });
}

/** Most lines that are shown of what a daemon tells its user while it starts. */
const NOTICES_LIMIT = 32;

/** The whole lines that a daemon has told its user (engine/daemon/enter-cluster.ts), without its name. The last words of one that fails are left out. */
export function noticesIn(written: string, role: RoleSetting): string[] {
  const start = `odmoe ${role}: `;
  const lines = written.split('\n').slice(0, -1);
  const told = lines.filter((line) => line.startsWith(start) && !/ \[[A-Z_]+\]$/.test(line));
  return told.slice(0, NOTICES_LIMIT).map((line) => line.slice(start.length));
}

/** Finds the warnings in a log; lines may have either format. */
function warningsIn(written: string): string[] {
  const warnings = written.split('\n').filter((line) => /^\S+ warn |"level":"warn"/.test(line));
  return warnings.slice(0, WARNINGS_LIMIT);
}

function saidLast(written: string): string {
  const last = written.trim().split('\n').at(-1) ?? '';
  return last === '' ? '' : `; its log ends with: ${last}`;
}

async function readFrom(log: FileHandle, from: number): Promise<string> {
  const { size } = await log.stat();
  const length = Math.max(0, Math.min(size - from, 64 * 1024));
  const buffer = Buffer.alloc(length);
  const { bytesRead } = await log.read(buffer, 0, length, from);
  return buffer.toString('utf8', 0, bytesRead);
}
