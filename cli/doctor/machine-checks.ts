/** Checks of this machine: Node, the native library, memory, disk, limits, environment. */
import { existsSync, readFileSync, statfsSync } from 'node:fs';
import { freemem, totalmem } from 'node:os';
import { dirname, join } from 'node:path';
import { nativeStatus, type CudaStatus } from '../../native/index.js';
import type { ClusterConfig } from '../../shared/settings/cluster-config.js';
import { WORKER_BUDGET_DEFAULT_BYTES } from '../../shared/settings/setting-limits.js';
import { formatByteSize } from '../../shared/base/text/byte-size.js';
import { nodesOfThisHost } from '../../shared/settings/resolve-node-settings.js';
import { readProcessLimits } from '../../engine/daemon/process-limits.js';
import { packageRoot } from '../../shared/base/files/package-root.js';
import { fail, ok, warn, type Check } from './check.js';
import { checkCuda, signOfGpu } from './cuda-check.js';
import { checkEnvironment } from './environment-check.js';

const DISK_FREE_WARN_BYTES = 1024 ** 3;
const OPEN_FILES_WARN = 1024;

/** `cuda`: null if the native library cannot be loaded. */
export function checkMachine(config: ClusterConfig, cuda: CudaStatus | null): Check[] {
  return [
    checkNodeVersion(process.versions.node, requiredNodeVersion()),
    checkNativeLibrary(),
    ...(cuda === null ? [] : [checkCuda(cuda, signOfGpu())]),
    checkMemory(config, { totalBytes: usableMemoryBytes(), freeBytes: freemem() }),
    checkDisk(config),
    checkOpenFiles(),
    ...checkEnvironment(process.env),
  ];
}

function requiredNodeVersion(): string {
  const manifest = JSON.parse(readFileSync(join(packageRoot(), 'package.json'), 'utf8')) as {
    engines: { node: string };
  };
  return manifest.engines.node.replace('>=', '');
}

export function checkNodeVersion(version: string, required: string): Check {
  const numbers = (text: string): number[] => text.split('.').map(Number);
  const [major = 0, minor = 0] = numbers(version);
  const [requiredMajor = 0, requiredMinor = 0] = numbers(required);
  const enough = major > requiredMajor || (major === requiredMajor && minor >= requiredMinor);
  if (enough) return ok('node version', version);
  return fail('node version', version, `install Node ${required} or newer`);
}

function checkNativeLibrary(): Check {
  const { loaded, path, reason, instructionSets } = nativeStatus();
  if (!loaded) return fail('native library', reason ?? `${path} cannot be loaded`, 'run `odmoe setup`');
  return ok('native library', `${path}; cpu with ${instructionSets.join(', ')}`);
}

function usableMemoryBytes(): number {
  const constrained = process.constrainedMemory();
  return constrained > 0 ? Math.min(constrained, totalmem()) : totalmem();
}

export function checkMemory(config: ClusterConfig, memory: { totalBytes: number; freeBytes: number }): Check {
  const found = `${formatByteSize(memory.freeBytes)} free of ${formatByteSize(memory.totalBytes)}`;
  const budgets = nodesOfThisHost(config).map(
    (node) =>
      node.memory_budget ?? (node.role === 'worker' ? (config.worker.memory_budget ?? WORKER_BUDGET_DEFAULT_BYTES) : 0),
  );
  const promisedBytes = budgets.reduce((sum, bytes) => sum + bytes, 0);
  const promised = `the nodes of this host may take ${formatByteSize(promisedBytes)}`;
  if (promisedBytes > memory.totalBytes) {
    return fail('memory', `${found}; ${promised}`, 'lower memory_budget, or run fewer nodes here');
  }
  if (promisedBytes > memory.freeBytes) {
    return warn('memory', `${found}; ${promised}`, 'end what else takes memory, or lower memory_budget');
  }
  return ok('memory', promisedBytes === 0 ? found : `${found}; ${promised}`);
}

/** Checks the free space at the model's directory (or the nearest existing parent). */
function checkDisk(config: ClusterConfig): Check {
  const base = config.path === null ? process.cwd() : dirname(config.path);
  let directory = config.model === undefined ? base : join(base, config.model);
  if (config.model?.startsWith('/') === true) directory = config.model;
  while (!existsSync(directory)) directory = dirname(directory);
  const { bavail, bsize } = statfsSync(directory);
  const freeBytes = bavail * bsize;
  const found = `${formatByteSize(freeBytes)} free at ${directory}`;
  if (freeBytes >= DISK_FREE_WARN_BYTES) return ok('disk', found);
  return warn('disk', found, 'free some space: packs and logs need it');
}

function checkOpenFiles(): Check {
  const { openFiles } = readProcessLimits();
  if (openFiles === null) return ok('open files', 'without a limit, or this system does not tell it');
  if (openFiles >= OPEN_FILES_WARN) return ok('open files', `${openFiles} allowed`);
  return warn('open files', `${openFiles} allowed`, `raise the limit to ${OPEN_FILES_WARN} or more: \`ulimit -n\``);
}
