// Checks that a library of a release runs on the oldest systems that odmoe promises: it asks for no newer symbols than these have, and for
// no library that they may lack.
import { spawnSync } from 'node:child_process';
import { BuildError } from './build-state.mjs';

/** Ubuntu 22.04 and JetPack 6 have these, Debian 12 newer ones. */
const NEWEST_SYMBOLS = { GLIBC: '2.34', GLIBCXX: '3.4.30', CXXABI: '1.3.13' };
/** Every system with such a glibc has these. */
const SYSTEM_LIBRARIES = /^(libc|libm|libdl|librt|libpthread|libgcc_s|libstdc\+\+|ld-linux-[a-z0-9-]+)\.so\.\d+$/;

/** `tables`: what `objdump -p` prints of a library. The faults in words; none if it may be released. Pure. */
export function releaseFaults(tables) {
  const needed = [...tables.matchAll(/^ +NEEDED +(\S+)$/gm)].map(([, name]) => name);
  if (needed.length === 0) return ['objdump does not list the libraries that it needs'];
  const foreign = needed.filter((name) => !SYSTEM_LIBRARIES.test(name));
  const symbols = [...tables.matchAll(/\b(GLIBC|GLIBCXX|CXXABI)_([0-9]+(?:\.[0-9]+)+)$/gm)];
  const newer = symbols.filter(([, family, version]) => isNewer(version, NEWEST_SYMBOLS[family]));
  return [
    ...foreign.map((name) => `it needs ${name}, which other systems may lack: link it statically`),
    ...new Set(
      newer.map(([name, family]) => `it needs ${name}, and ${family}_${NEWEST_SYMBOLS[family]} is the newest allowed`),
    ),
  ];
}

function isNewer(version, limit) {
  const [numbers, limits] = [version, limit].map((text) => text.split('.').map(Number));
  const at = numbers.findIndex((number, index) => number !== (limits[index] ?? 0));
  return at !== -1 && numbers[at] > (limits[at] ?? 0);
}

/** Throws BuildError with every fault. `objdump`: the command, which for another processor's library may be the cross compiler's. */
export function requireReleasable(path, objdump = 'objdump') {
  const { status, stdout, stderr, error } = spawnSync(objdump, ['-p', path], { encoding: 'utf8' });
  if (error) throw new BuildError(`${objdump} could not be run: ${error.message}; install binutils`);
  if (status !== 0) throw new BuildError(`${objdump} -p ${path} failed: ${stderr.trim()}`);
  const faults = releaseFaults(stdout);
  if (faults.length > 0) throw new BuildError(`${path} cannot be released:\n  ${faults.join('\n  ')}`);
}
