import { existsSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { z } from 'zod';
import { OdmoeError } from '../shared/base/errors/odmoe-error.js';
import type { Addon } from './addon.d.ts';
import { fromAddon } from './addon-errors.js';
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

const ROOT = packageRoot();
/** The variable ODMOE_ADDON names another build, such as one with sanitizers (scripts/test-sanitizers.mjs). */
const NAMED_PATH = process.env.ODMOE_ADDON ?? '';
const ADDON_PATH = NAMED_PATH === '' ? join(ROOT, 'build', 'Release', 'odmoe.node') : NAMED_PATH;
const BUILD = `run \`npm run build\` in ${ROOT} (or \`npm run setup\`, which also installs the compiler that it needs)`;
const BUILD_ADVICE = NAMED_PATH === '' ? BUILD : `correct or unset ODMOE_ADDON, which names that file, or ${BUILD}`;

let loadedAddon: Addon | null = null;

/** Loads the addon at its first use. Throws DEVICE_UNAVAILABLE, with the remedy, when the addon is missing or cannot be loaded. */
export function addon(): Addon {
  loadedAddon ??= load();
  return loadedAddon;
}

/**
 * Every command that will need the addon calls this first, before it waits for anything or does anything. @throws DEVICE_UNAVAILABLE, with
 * the remedy
 */
export function requireAddon(): void {
  addon();
}

function load(): Addon {
  if (!existsSync(ADDON_PATH)) {
    throw unavailable(`the native library ${ADDON_PATH} has not been built; ${BUILD_ADVICE}`);
  }
  let loaded: Partial<Addon>;
  try {
    const fault = process.platform === 'linux' ? libraryFault(ADDON_PATH, process.arch) : null;
    if (fault !== null) throw new Error(fault);
    loaded = createRequire(import.meta.url)(ADDON_PATH) as Partial<Addon>;
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error);
    throw unavailable(
      `the native library ${ADDON_PATH} cannot be loaded: ${why}; it may be damaged, or of another machine or Node version; ` +
        BUILD_ADVICE,
      error,
    );
  }
  const { version } = z
    .object({ version: z.string() })
    .parse(JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')));
  if (loaded.version !== version) {
    const which =
      loaded.version === undefined ? 'is none of odmoe' : `is of version ${loaded.version}, and odmoe of ${version}`;
    throw unavailable(`the native library ${ADDON_PATH} ${which}; ${BUILD_ADVICE}`);
  }
  const whole = loaded as Addon;
  whole.makeErrorsWith(fromAddon);
  return whole;
}

function unavailable(message: string, cause?: unknown): OdmoeError {
  return new OdmoeError('DEVICE_UNAVAILABLE', message, { cause });
}

/** Status for `odmoe doctor`; it never throws. */
export function nativeStatus(): NativeStatus {
  try {
    return { loaded: true, path: ADDON_PATH, reason: null, instructionSets: addon().instructionSets() };
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    return { loaded: false, path: ADDON_PATH, reason, instructionSets: [] };
  }
}
