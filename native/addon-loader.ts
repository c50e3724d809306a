import { existsSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { z } from 'zod';
import { requirePresent } from '../shared/base/errors/assert-invariant.js';
import { OdmoeError } from '../shared/base/errors/odmoe-error.js';
import type { Addon } from './addon.d.ts';
import { fromAddon } from './addon-errors.js';
import { buildAdvice, expectedPath, findAddons, findCudaLibrary, type Installation } from './addon-search.js';
import { libraryFault } from './library-file.js';

export interface NativeStatus {
  loaded: boolean;
  /** Path at which the addon is, or should be. */
  path: string;
  /** The reason why it could not be loaded, and what the user can do; null when it is loaded. */
  reason: string | null;
  /** Instruction sets that this processor can use, widest first; empty when the addon is not loaded. */
  instructionSets: string[];
}

/** The nearest directory above this file that has a package.json. */
function packageRoot(): string {
  let directory = dirname(fileURLToPath(import.meta.url));
  while (!existsSync(join(directory, 'package.json'))) {
    const parent = dirname(directory);
    if (parent === directory)
      throw new OdmoeError('INTERNAL', `no package.json above ${fileURLToPath(import.meta.url)}`);
    directory = parent;
  }
  return directory;
}

const INSTALLATION = thisInstallation();
const CUDA_LIBRARY_VARIABLE = 'ODMOE_CUDA_LIBRARY';

function thisInstallation(): Installation {
  const root = packageRoot();
  const { version } = z
    .object({ version: z.string() })
    .parse(JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')));
  return {
    root,
    version,
    platform: process.platform,
    processor: process.arch,
    glibc: runningGlibc,
    namedAddon: process.env.ODMOE_ADDON ?? '',
  };
}

/** Node's report takes some milliseconds, and more where it lists the network. */
function runningGlibc(): string | null {
  const report: NodeJS.ProcessReport & { excludeNetwork?: boolean } = process.report;
  report.excludeNetwork = true;
  const shape = z.object({ header: z.object({ glibcVersionRuntime: z.string().optional() }) });
  return shape.parse(report.getReport()).header.glibcVersionRuntime ?? null;
}

/** An addon, and the file that it came from. */
interface Loaded {
  addon: Addon;
  path: string;
}

let loaded: Loaded | null = null;

/** Loads the addon at its first use. Throws DEVICE_UNAVAILABLE, with the remedy, when the addon is missing or cannot be loaded. */
export function addon(): Addon {
  return loadedAddon().addon;
}

function loadedAddon(): Loaded {
  loaded ??= load();
  return loaded;
}

/**
 * Every command that will need the addon calls this first, before it waits for anything or does anything. @throws DEVICE_UNAVAILABLE, with
 * the remedy
 */
export function requireAddon(): void {
  addon();
}

/** The first addon that can be used, of those that are there; a clone's own build that is out of date gives way to a package that is not. */
function load(): Loaded {
  const { found, absence } = findAddons(INSTALLATION);
  if (found.length === 0) throw unavailable(absence);
  const faults: OdmoeError[] = [];
  for (const candidate of found) {
    try {
      const opened = openAddon(candidate.path);
      const cuda = findCudaLibrary(INSTALLATION, candidate);
      // The addon reads it when the first device is opened, and processes that this one starts open the same library.
      if (cuda !== null) process.env[CUDA_LIBRARY_VARIABLE] ||= cuda;
      return { addon: opened, path: candidate.path };
    } catch (error) {
      if (!(error instanceof OdmoeError)) throw error;
      faults.push(error);
    }
  }
  if (faults.length > 1) throw unavailable(faults.map(({ message }) => message).join('; '));
  throw requirePresent(faults[0], 'Each candidate is loaded or has a fault.');
}

function openAddon(path: string): Addon {
  const advice = buildAdvice(INSTALLATION);
  let opened: Partial<Addon>;
  try {
    const fault = process.platform === 'linux' ? libraryFault(path, process.arch) : null;
    if (fault !== null) throw new Error(fault);
    opened = createRequire(import.meta.url)(path) as Partial<Addon>;
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error);
    throw unavailable(
      `the native library ${path} cannot be loaded: ${why}; it may be damaged, or of another machine or Node version; ${advice}`,
      error,
    );
  }
  const { version } = INSTALLATION;
  if (opened.version !== version) {
    const which =
      opened.version === undefined ? 'is none of odmoe' : `is of version ${opened.version}, and odmoe of ${version}`;
    throw unavailable(`the native library ${path} ${which}; ${advice}`);
  }
  const whole = opened as Addon;
  whole.makeErrorsWith(fromAddon);
  return whole;
}

function unavailable(message: string, cause?: unknown): OdmoeError {
  return new OdmoeError('DEVICE_UNAVAILABLE', message, { cause });
}

/** Status for `odmoe doctor`; it never throws. */
export function nativeStatus(): NativeStatus {
  try {
    const { addon, path } = loadedAddon();
    return { loaded: true, path, reason: null, instructionSets: addon.instructionSets() };
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    return { loaded: false, path: expectedPath(INSTALLATION), reason, instructionSets: [] };
  }
}
