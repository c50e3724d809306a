import { arch, cpus, hostname } from 'node:os';
import { cudaStatus } from '../../native/index.js';

/** Longest description that a joining machine may send (engine/trust/enrolment-messages.ts). */
const LENGTH_LIMIT = 100;

export interface MachineParts {
  readonly host: string;
  readonly architecture: string;
  readonly processors: number;
  /** Names of its GPUs. */
  readonly gpus: readonly string[];
}

/** This machine in a few words, for the operator who lets it in. */
export function describeMachine(): string {
  const gpus = cudaStatus().devices.map(({ name }) => name);
  return machineWords({ host: hostname(), architecture: arch(), processors: cpus().length, gpus });
}

/** "jetson-2, arm64, 8 processors, Orin": printable characters of ASCII alone, at most 100. Pure. */
export function machineWords({ host, architecture, processors, gpus }: MachineParts): string {
  const words = [host, architecture, `${processors} ${processors === 1 ? 'processor' : 'processors'}`, ...gpus];
  return words
    .join(', ')
    .replaceAll(/[^ -~]/g, '?')
    .slice(0, LENGTH_LIMIT);
}
