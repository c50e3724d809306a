/** The mark that a host keeps so that its daemons have ids of their own, also beside a host of the same name. */
import {
  closeSync,
  existsSync,
  fsyncSync,
  linkSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeSync,
} from 'node:fs';
import { join } from 'node:path';
import { systemErrorCode } from '../base/errors/system-failure.js';
import { WallRuntime } from '../base/runtime/wall-runtime.js';

export interface KeptIds {
  /** Some characters that other hosts do not have, made once; empty: they cannot be kept. */
  mark(): string;
  /** True if a daemon of this id has joined a cluster on this host. */
  hasJoined(id: string): boolean;
}

const MARK_FILE = '.host-mark';
const MARK = /^[0-9a-z]{5}$/;
const MARK_CHARACTERS = 5;

/**
 * The ids of the host with this directory of states. An id of the machine would not do: freshly flashed boxes have the same. `makes`: the mark is
 * made where it is missing.
 */
export function keptIds(stateHome: string, makes: boolean): KeptIds {
  const directory = join(stateHome, 'odmoe');
  return {
    mark: () => readMark(directory) ?? (makes ? makeMark(directory) : ''),
    hasJoined: (id) => namesIn(directory).some((cluster) => existsSync(join(directory, cluster, 'nodes', id))),
  };
}

/** Null: there is none yet. */
function readMark(directory: string): string | null {
  try {
    const text = readFileSync(join(directory, MARK_FILE), 'utf8').trim();
    return MARK.test(text) ? text : null;
  } catch {
    // A mark that cannot be read cannot be used, whatever the reason.
    return null;
  }
}

/** Two daemons that start together get the same mark: the file appears whole, and the first one stays. */
function makeMark(directory: string): string {
  const path = join(directory, MARK_FILE);
  const partial = `${path}.${process.pid}`;
  try {
    mkdirSync(directory, { recursive: true, mode: 0o700 });
    const file = openSync(partial, 'w', 0o644);
    try {
      writeSync(file, `${new WallRuntime().randomId().slice(0, MARK_CHARACTERS)}\n`);
      fsyncSync(file);
    } finally {
      closeSync(file);
    }
    try {
      linkSync(partial, path);
    } finally {
      rmSync(partial, { force: true });
    }
  } catch (thrown) {
    // Another daemon was faster, or nothing can be kept there.
    if (systemErrorCode(thrown) !== 'EEXIST') return '';
  }
  return readMark(directory) ?? '';
}

function namesIn(directory: string): string[] {
  try {
    return readdirSync(directory);
  } catch {
    return [];
  }
}
