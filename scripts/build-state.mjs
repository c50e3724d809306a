// Decides whether a step of the build was already done with the same inputs, and lets one of two builds at the same time wait.
// A file counts as changed if its size or time of change differs. This check takes milliseconds and starts no other program.
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readFileSync, readdirSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { dirname, join, relative, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';

export const packageRoot = dirname(dirname(fileURLToPath(import.meta.url)));
/** A clone has the settings of the compiler; what npm installs has not. */
export const isClone = existsSync(join(packageRoot, 'tsconfig.json'));

const LOCK_WAIT_MS = 15 * 60_000;
const LOCK_POLL_MS = 500;

/** An error that the user can fix; it is shown without a stack. */
export class BuildError extends Error {}

/** Sorted paths, relative to the package, of files below the folder whose name `keep` accepts; empty if the folder does not exist. */
export function filesBelow(folder, keep = () => true) {
  const path = join(packageRoot, folder);
  if (!existsSync(path)) return [];
  return readdirSync(path, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile() && keep(entry.name))
    .map((entry) => relative(packageRoot, join(entry.parentPath ?? entry.path, entry.name)))
    .sort();
}

/** A text that changes when the file is written; 'absent' if there is no file. `path`: absolute, or relative to the package. */
export function fileState(path) {
  const stats = statSync(resolve(packageRoot, path), { throwIfNoEntry: false });
  return stats === undefined ? 'absent' : `${stats.size}:${stats.mtimeMs}`;
}

/** One hash of the files' states and of `settings`. `settings` are all other things on which the step's result depends. */
export function inputState(paths, settings) {
  const hash = createHash('sha256');
  hash.update(JSON.stringify(settings));
  for (const path of paths) hash.update(`${path}\n${fileState(path)}\n`);
  return hash.digest('hex');
}

/** The installed version of an npm package; 'none' if it is not installed. */
export function installedVersion(name) {
  const path = join(packageRoot, 'node_modules', name, 'package.json');
  return existsSync(path) ? JSON.parse(readFileSync(path, 'utf8')).version : 'none';
}

export function isDone(statePath, state) {
  const path = join(packageRoot, statePath);
  return existsSync(path) && readFileSync(path, 'utf8') === state;
}

/** Runs the step, then writes its state. A step that fails leaves no state, so the next build runs it again. */
export function doStep(statePath, state, step) {
  const path = join(packageRoot, statePath);
  rmSync(path, { force: true });
  step();
  mkdirSync(dirname(path), { recursive: true });
  writeFileSync(path, state);
}

function isAlive(pid) {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return error.code === 'EPERM';
  }
}

/** Owner 0: the lock's owner has not written its process id yet, or the lock no longer exists. */
function readLock(lock) {
  try {
    return { owner: Number(readFileSync(lock, 'utf8')), ageMs: Date.now() - statSync(lock).mtimeMs };
  } catch (error) {
    if (error.code !== 'ENOENT') throw error;
    return { owner: 0, ageMs: 0 };
  }
}

/** Two builds at the same time would break each other's files, so the second one waits. The lock is in node_modules. */
export function withLock(name, task) {
  // npm may have put the packages of an installed odmoe beside it.
  mkdirSync(join(packageRoot, 'node_modules'), { recursive: true });
  const lock = join(packageRoot, 'node_modules', `.odmoe-${name}.lock`);
  const deadline = Date.now() + LOCK_WAIT_MS;
  for (;;) {
    try {
      writeFileSync(lock, String(process.pid), { flag: 'wx' });
      break;
    } catch (error) {
      if (error.code !== 'EEXIST') throw error;
    }
    const { owner, ageMs } = readLock(lock);
    if (owner > 0 ? !isAlive(owner) : ageMs > LOCK_POLL_MS) rmSync(lock, { force: true });
    if (Date.now() > deadline) throw new BuildError(`process ${owner} has been building for too long; remove ${lock}`);
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, LOCK_POLL_MS);
  }
  try {
    return task();
  } finally {
    rmSync(lock, { force: true });
  }
}

/** Runs `main`; a BuildError becomes one line on stderr and exit status 1. */
export function runBuild(name, main) {
  try {
    main();
  } catch (error) {
    if (!(error instanceof BuildError)) throw error;
    process.stderr.write(`${name}: ${error.message}\n`);
    process.exitCode = 1;
  }
}
