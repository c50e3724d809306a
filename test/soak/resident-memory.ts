import { readFile } from 'node:fs/promises';

const BYTES_PER_KIB = 1024;

/** Resident memory of a process, in bytes. Linux only. */
export async function residentBytes(pid: number): Promise<number> {
  const status = await readFile(`/proc/${pid}/status`, 'utf8');
  const kib = /^VmRSS:\s+(\d+) kB$/m.exec(status)?.[1];
  if (kib === undefined) throw new Error(`/proc/${pid}/status tells no VmRSS: process ${pid} has ended`);
  return Number(kib) * BYTES_PER_KIB;
}

export interface Growth {
  /** The least that was resident in the first and in the last third of the samples. */
  firstBytes: number;
  lastBytes: number;
  growthBytes: number;
}

/**
 * How much more a process holds at the end. The least of each third counts: what is waiting for the garbage collector comes and goes, what
 * has leaked stays. Throws for fewer than three samples.
 */
export function growthOf(samplesBytes: readonly number[]): Growth {
  const third = Math.floor(samplesBytes.length / 3);
  if (third === 0)
    throw new Error(`${samplesBytes.length} samples of memory are too few: 3 at least; give the soak more minutes`);
  const firstBytes = Math.min(...samplesBytes.slice(0, third));
  const lastBytes = Math.min(...samplesBytes.slice(-third));
  return { firstBytes, lastBytes, growthBytes: lastBytes - firstBytes };
}
