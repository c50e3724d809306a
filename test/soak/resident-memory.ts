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
  /** The figure of the first and of the last third of the samples. */
  firstBytes: number;
  lastBytes: number;
  growthBytes: number;
}

/**
 * How much more a process holds at the end. The least of each third counts: what is waiting for the garbage collector comes and goes, what
 * has leaked stays. Throws for fewer than three samples.
 */
export function growthOf(samplesBytes: readonly number[]): Growth {
  return growthBetween(samplesBytes, (third) => Math.min(...third));
}

/** The same by the medians, for samples after a collection of garbage: a page that lost its connection holds less for a while. */
export function growthOfMedians(samplesBytes: readonly number[]): Growth {
  return growthBetween(samplesBytes, (third) => third.toSorted((one, other) => one - other)[third.length >> 1] ?? 0);
}

function growthBetween(samplesBytes: readonly number[], figureOf: (third: readonly number[]) => number): Growth {
  const third = Math.floor(samplesBytes.length / 3);
  if (third === 0)
    throw new Error(`${samplesBytes.length} samples of memory are too few: 3 at least; give the soak more minutes`);
  const firstBytes = figureOf(samplesBytes.slice(0, third));
  const lastBytes = figureOf(samplesBytes.slice(-third));
  return { firstBytes, lastBytes, growthBytes: lastBytes - firstBytes };
}
