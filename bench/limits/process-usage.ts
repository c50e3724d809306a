/** A process's processor time and memory, from Linux's /proc. */
import { readFile, writeFile } from 'node:fs/promises';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';

/** Linux counts the time of a process in ticks of this length for every program (USER_HZ). */
const TICK_MS = 10;
/** Fields of /proc/PID/stat after the command's name: time in the program, and time in the system for it. */
const USER_TICKS = 11;
const SYSTEM_TICKS = 12;
const KIBIBYTE = 1024;
const NANOSECONDS_IN_MS = 1e6;
/** The value that makes Linux reset the peak of memory: https://docs.kernel.org/filesystems/proc.html, clear_refs. */
const FORGET_PEAK = '5';

export interface ProcessUsage {
  /** Processor time of all its threads since its start. */
  processorMs: number;
  residentBytes: number;
  /** Most memory so far. */
  peakBytes: number;
}

/** Throws USAGE if there is no such process, or no /proc. */
export async function readUsage(pid: number): Promise<ProcessUsage> {
  const [stat, status] = await Promise.all([readProc(pid, 'stat'), readProc(pid, 'status')]);
  return { processorMs: processorMsOfStat(stat), ...memoryOfStatus(status) };
}

/** Resets the peak of memory. Throws like readUsage. */
export async function forgetPeak(pid: number): Promise<void> {
  try {
    await writeFile(`/proc/${pid}/clear_refs`, FORGET_PEAK);
  } catch (thrown) {
    throw unreadable(pid, thrown);
  }
}

/** `stat`: the text of /proc/PID/stat. The command's name in it may hold brackets and spaces. Throws INTERNAL. */
export function processorMsOfStat(stat: string): number {
  const fields = stat.slice(stat.lastIndexOf(')') + 1).trim();
  const values = fields.split(' ');
  return (wholeNumber(values[USER_TICKS]) + wholeNumber(values[SYSTEM_TICKS])) * TICK_MS;
}

/** `schedstat`: the text of /proc/PID/task/TID/schedstat. Throws INTERNAL. */
export function busyMsOf(schedstat: string): number {
  return wholeNumber(schedstat.split(' ')[0]) / NANOSECONDS_IN_MS;
}

/** `status`: the text of /proc/PID/status. Throws INTERNAL. */
export function memoryOfStatus(status: string): Pick<ProcessUsage, 'residentBytes' | 'peakBytes'> {
  const sizeOf = (name: string): number =>
    wholeNumber(new RegExp(`^${name}:\\s*(\\d+) kB$`, 'm').exec(status)?.[1]) * KIBIBYTE;
  return { residentBytes: sizeOf('VmRSS'), peakBytes: sizeOf('VmHWM') };
}

function wholeNumber(text: string | undefined): number {
  if (text !== undefined && /^\d+$/.test(text)) return Number(text);
  throw new OdmoeError('INTERNAL', `Linux tells of a process "${text ?? ''}", where a whole number belongs`);
}

async function readProc(pid: number, name: string): Promise<string> {
  try {
    return await readFile(`/proc/${pid}/${name}`, 'utf8');
  } catch (thrown) {
    throw unreadable(pid, thrown);
  }
}

function unreadable(pid: number, cause: unknown): OdmoeError {
  const what = `/proc tells nothing of process ${pid}`;
  return new OdmoeError('USAGE', `${what}: it has ended, or this is no Linux; bench limits runs on Linux alone`, {
    cause,
  });
}
