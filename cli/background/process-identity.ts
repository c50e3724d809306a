import { execFile } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { promisify } from 'node:util';

/** Identifies a process, also against a later process with the same number. */
export interface ProcessIdentity {
  pid: number;
  /** The time of its start, in the system's own format. */
  startedAt: string;
  commandLine: string;
}

const PS_TIMEOUT_MS = 5_000;

/** The process that runs now under that number. Null if there is none, or if it has ended and its parent has not yet collected its status. */
export async function identifyProcess(pid: number): Promise<ProcessIdentity | null> {
  return process.platform === 'linux' ? identifyByProc(pid) : identifyByPs(pid);
}

/** Tells whether the recorded process still runs under its number. */
export async function isRunning(recorded: ProcessIdentity): Promise<boolean> {
  const present = await identifyProcess(recorded.pid);
  return present?.startedAt === recorded.startedAt && present.commandLine === recorded.commandLine;
}

async function identifyByProc(pid: number): Promise<ProcessIdentity | null> {
  try {
    const [stat, commandLine, bootId] = await Promise.all([
      readFile(`/proc/${pid}/stat`, 'utf8'),
      readFile(`/proc/${pid}/cmdline`, 'utf8'),
      readFile('/proc/sys/kernel/random/boot_id', 'utf8'),
    ]);
    // proc(5): the name in parentheses may hold anything; state follows it, and start time is the 20th field after the name.
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    const [state, startTicks] = [fields[0], fields[19]];
    if (state === 'Z' || state === 'X' || startTicks === undefined) return null;
    return {
      pid,
      startedAt: `${bootId.trim()}/${startTicks}`,
      commandLine: commandLine.replaceAll('\0', ' ').trim(),
    };
  } catch (error) {
    if (isGone(error)) return null;
    throw error;
  }
}

async function identifyByPs(pid: number): Promise<ProcessIdentity | null> {
  const options = { timeout: PS_TIMEOUT_MS, env: { ...process.env, LC_ALL: 'C' } };
  try {
    const columns = ['-o', 'stat=', '-o', 'lstart=', '-o', 'command=', '-p', String(pid)];
    const { stdout } = await promisify(execFile)('ps', columns, options);
    // "S  Thu Nov 20 20:13:21 2026 node …": state, a date of five words, the command.
    const match = /^(\S+)\s+((?:\S+\s+){4}\S+)\s+(.*)$/.exec(stdout.trim());
    if (match === null || match[1]?.startsWith('Z') === true) return null;
    return { pid, startedAt: match[2] ?? '', commandLine: match[3] ?? '' };
  } catch (error) {
    // ps ends with status 1 if it lists no process.
    if (typeof error === 'object' && error !== null && 'code' in error && error.code === 1) return null;
    throw error;
  }
}

/** ENOENT: no such process; ESRCH: it ended while its files were read. */
function isGone(error: unknown): boolean {
  return error instanceof Error && 'code' in error && (error.code === 'ENOENT' || error.code === 'ESRCH');
}
