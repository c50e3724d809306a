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
  renameSync,
  rmSync,
  statSync,
  writeSync,
} from 'node:fs';
import { join } from 'node:path';
import { fileFailure, systemErrorCode } from '../base/errors/system-failure.js';
import { writeFailure } from '../base/files/storage-error.js';
import { WallRuntime } from '../base/runtime/wall-runtime.js';
import { standardError } from '../base/text/text-output.js';

/** A daemon whose id is to have the mark of its host. */
export interface MarkedDaemon {
  /** The name of the host, as ids have it: letters, digits and dashes. */
  readonly name: string;
  readonly idWith: (mark: string) => string;
}

export interface KeptIds {
  /**
   * Some characters that other hosts do not have, made once; empty: they cannot be kept. A mark that was lost or damaged is taken from the ids that
   * have joined here, as its daemons would have to join again under others. Throws STORAGE_FULL.
   */
  mark(daemon: MarkedDaemon): string;
  /** True if a daemon of this id has joined a cluster on this host. */
  hasJoined(id: string): boolean;
}

const MARK_FILE = '.host-mark';
const MARK = /^[0-9a-z]{5}$/;
const MARK_CHARACTERS = 5;

/**
 * The ids of the host with this directory of states. An id of the machine would not do: freshly flashed boxes have the same. `makes`: the mark is
 * made where it is missing, and mended. `say`: tells the user one line.
 */
export function keptIds(
  stateHome: string,
  makes: boolean,
  say = (line: string): void => standardError.write(`odmoe: ${line}\n`),
): KeptIds {
  const directory = join(stateHome, 'odmoe');
  const hasJoined = (id: string): boolean => joinedDirectories(directory).some((nodes) => existsSync(join(nodes, id)));
  const mark = (daemon: MarkedDaemon): string => {
    const kept = readMark(directory);
    if (kept !== null) return kept;
    const joined = marksOfJoined(directory, daemon.name);
    const known = joined.find((each) => hasJoined(daemon.idWith(each))) ?? joined[0];
    if (known !== undefined) {
      if (makes) say(mended(directory, known));
      return known;
    }
    return makes ? makeMark(directory, say) : '';
  };
  return { mark, hasJoined };
}

/** Null: there is none that can be used. */
function readMark(directory: string): string | null {
  try {
    const text = readFileSync(join(directory, MARK_FILE), 'utf8').trim();
    return MARK.test(text) ? text : null;
  } catch {
    // A mark that cannot be read cannot be used, whatever the reason.
    return null;
  }
}

/**
 * The mark in an id that a daemon on the host of this name makes for itself; empty: the id has none. Null: the id is another host's, or was chosen
 * by a person.
 */
export function markInId(id: string, name: string): string | null {
  const end = `-${name}(?:-([0-9a-z]{5}))?`;
  const found = new RegExp(`^(?:worker${end}-p?\\d+|shadow${end})$`).exec(id);
  return found === null ? null : (found[1] ?? found[2] ?? '');
}

/** The marks in the ids under which daemons of this host have joined, that of the newest one first. */
function marksOfJoined(directory: string, name: string): string[] {
  const found = joinedDirectories(directory).flatMap((nodes) =>
    namesIn(nodes).flatMap((id) => {
      const mark = markInId(id, name);
      return mark === null || mark === '' ? [] : [{ mark, timeMs: changeMs(join(nodes, id)) }];
    }),
  );
  return found.sort((one, other) => other.timeMs - one.timeMs).map(({ mark }) => mark);
}

function changeMs(path: string): number {
  return statSync(path, { throwIfNoEntry: false })?.mtimeMs ?? 0;
}

/** Writes the mark that joined ids have. A daemon starts with it, whether or not it can be written. Returns what happened. */
function mended(directory: string, mark: string): string {
  const path = join(directory, MARK_FILE);
  const what = `${path} is lost or damaged, and ids that have joined here have the mark ${mark}`;
  try {
    writeMark(directory, mark, renameSync);
    return `${what}: the file has it again`;
  } catch (thrown) {
    return `${what}, which goes on; the file stays as it is: ${writeFailure(thrown, path, null).message}`;
  }
}

/** Two daemons that start together get the same mark: the file appears whole, and the first one stays. Throws STORAGE_FULL. */
function makeMark(directory: string, say: (line: string) => void): string {
  const path = join(directory, MARK_FILE);
  const isDamaged = existsSync(path);
  try {
    const mark = new WallRuntime().randomId().slice(0, MARK_CHARACTERS);
    writeMark(directory, mark, isDamaged ? renameSync : linkSync);
  } catch (thrown) {
    if (fileFailure(thrown)?.code === 'STORAGE_FULL') throw writeFailure(thrown, path, null);
    // Another daemon was faster, or nothing can be kept there.
    if (systemErrorCode(thrown) !== 'EEXIST') return '';
  }
  const mark = readMark(directory) ?? '';
  if (isDamaged) say(`${path} was damaged, and no id that has joined here has a mark: it has a new one, ${mark}`);
  return mark;
}

/** `put`: makes the file that is written a file of this name. */
function writeMark(directory: string, mark: string, put: (partial: string, path: string) => void): void {
  const path = join(directory, MARK_FILE);
  const partial = `${path}.${process.pid}`;
  mkdirSync(directory, { recursive: true, mode: 0o700 });
  try {
    const file = openSync(partial, 'w', 0o644);
    try {
      writeSync(file, `${mark}\n`);
      fsyncSync(file);
    } finally {
      closeSync(file);
    }
    put(partial, path);
  } finally {
    rmSync(partial, { force: true });
  }
}

/** The directories with a directory for each daemon that has joined. */
function joinedDirectories(directory: string): string[] {
  return namesIn(directory).map((cluster) => join(directory, cluster, 'nodes'));
}

function namesIn(directory: string): string[] {
  try {
    return readdirSync(directory);
  } catch {
    return [];
  }
}
