import { existsSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { OdmoeError } from '../shared/errors/odmoe-error.js';
import type { Addon } from './addon.d.ts';

export interface NativeStatus {
  loaded: boolean;
  /** Where the addon is, or should be. */
  path: string;
  /** Why it could not be loaded, and what to do; null when it is. */
  reason: string | null;
  /** Usable on this processor, widest first; empty when not loaded. */
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

/** ODMOE_ADDON names another build, such as one with sanitizers (scripts/test-sanitizers.mjs). */
const ADDON_PATH = process.env.ODMOE_ADDON || join(packageRoot(), 'build', 'Release', 'odmoe.node');

let loadedAddon: Addon | null = null;

/** Loads the addon at its first use. Throws DEVICE_UNAVAILABLE, with the remedy, when it is not there or does not load. */
export function addon(): Addon {
  if (loadedAddon !== null) return loadedAddon;
  if (!existsSync(ADDON_PATH)) {
    throw new OdmoeError(
      'DEVICE_UNAVAILABLE',
      `the native library ${ADDON_PATH} has not been built; run \`npm run build\` (or \`npm run setup\`, which also installs what that needs)`,
    );
  }
  try {
    loadedAddon = createRequire(import.meta.url)(ADDON_PATH) as Addon;
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error);
    throw new OdmoeError(
      'DEVICE_UNAVAILABLE',
      `the native library ${ADDON_PATH} cannot be loaded: ${why}; it may be of another machine or Node version, ` +
        'so delete the folder build and run `npm run build`',
      { cause: error },
    );
  }
  return loadedAddon;
}

/** For `odmoe doctor`: never throws. */
export function nativeStatus(): NativeStatus {
  try {
    return { loaded: true, path: ADDON_PATH, reason: null, instructionSets: addon().instructionSets() };
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    return { loaded: false, path: ADDON_PATH, reason, instructionSets: [] };
  }
}
