/** Says where the addon is, in the order in which the places are tried, and in words why it is at none of them. */
import { existsSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { z } from 'zod';

/** The facts on which the search depends: the machine, and the way in which odmoe was installed. */
export interface Installation {
  /** The directory of odmoe's package.json. */
  root: string;
  version: string;
  /** As Node names them. */
  platform: string;
  processor: string;
  /** The running version of glibc, as in "2.36"; null on a system without it. */
  glibc: () => string | null;
  /** Value of ODMOE_ADDON, which names another build, such as one with sanitizers; empty where it is not set. */
  namedAddon: string;
}

export interface AddonCandidate {
  path: string;
  origin: 'named' | 'built' | 'package';
}

/** `found` are the files that exist, in the order in which they are tried; `absence` says why there is no other, and what to do. */
export interface AddonSearch {
  found: readonly AddonCandidate[];
  absence: string;
}

/** The oldest glibc that the packages run on; `npm run release` fails where their addon asks for a newer one. */
const OLDEST_GLIBC = '2.34';
const CUDA_LIBRARY = 'libodmoe_cuda.so';
const PACKAGED_PROCESSORS = ['x64', 'arm64'];

/** A clone has the settings of the compiler; what npm installs has not. */
export function isClone(root: string): boolean {
  return existsSync(join(root, 'tsconfig.json'));
}

export function findAddons(installation: Installation): AddonSearch {
  const { root, namedAddon } = installation;
  if (namedAddon !== '') {
    const found: AddonCandidate[] = existsSync(namedAddon) ? [{ path: namedAddon, origin: 'named' }] : [];
    return { found, absence: notBuilt(namedAddon, buildAdvice(installation)) };
  }
  const built = builtPath(root);
  const found: AddonCandidate[] = existsSync(built) ? [{ path: built, origin: 'built' }] : [];
  const packaged = packagedAddon(installation);
  if (packaged.path !== null) found.push({ path: packaged.path, origin: 'package' });
  return { found, absence: isClone(root) ? notBuilt(built, buildAdvice(installation)) : packaged.absence };
}

/** The path of the addon that is named if none is found. */
export function expectedPath({ root, namedAddon }: Installation): string {
  return namedAddon === '' ? builtPath(root) : namedAddon;
}

/** The advice where an addon is of no use. */
export function buildAdvice({ root, namedAddon, version }: Installation): string {
  const build = isClone(root)
    ? `run \`npm run build\` in ${root} (or \`npm run setup\`, which also installs the compiler that it needs)`
    : `install odmoe ${version} again, or run \`odmoe setup\`, which builds it here`;
  return namedAddon === '' ? build : `correct or unset ODMOE_ADDON, which names that file, or ${build}`;
}

/** The CUDA library that is to be opened: null lets the addon look beside itself. */
export function findCudaLibrary({ root, version, processor }: Installation, addon: AddonCandidate): string | null {
  if (addon.origin !== 'package') return null;
  const built = join(root, 'build-cuda', 'Release', CUDA_LIBRARY);
  if (existsSync(built)) return built;
  const packaged = installedPackage(root, `${packageName(processor)}-cuda`);
  return packaged?.version === version ? join(packaged.folder, CUDA_LIBRARY) : null;
}

function builtPath(root: string): string {
  return join(root, 'build', 'Release', 'odmoe.node');
}

function notBuilt(path: string, advice: string): string {
  return `the native library ${path} has not been built; ${advice}`;
}

function packageName(processor: string): string {
  return `@odmoe/linux-${processor}`;
}

/** `absence` is empty where there is a path. */
function packagedAddon(installation: Installation): { path: string | null; absence: string } {
  const unfit = whyUnfit(installation);
  if (unfit !== null) return { path: null, absence: unfit };
  const { root, version, processor } = installation;
  const name = packageName(processor);
  const installed = installedPackage(root, name);
  const again =
    `install again with \`npm install --global --include=optional odmoe@${version}\` or, from the files of a release, ` +
    `give npm odmoe-linux-${processor}-${version}.tgz in the same call as odmoe-${version}.tgz; ` +
    'or run `odmoe setup`, which builds the library here';
  if (installed === null) {
    const why = 'npm leaves it out when told --omit=optional or --no-optional, and where it cannot find it';
    return {
      path: null,
      absence: `the package ${name}, which holds the native library, is not installed (${why}); ${again}`,
    };
  }
  if (installed.version !== version) {
    const absence = `the package ${name} is of version ${installed.version}, and odmoe of ${version}; ${again}`;
    return { path: null, absence };
  }
  const path = join(installed.folder, 'odmoe.node');
  if (existsSync(path)) return { path, absence: '' };
  return { path: null, absence: `the package ${name} is damaged: ${path} is missing; ${again}` };
}

/** The reason why no package fits this machine; null where one does. */
function whyUnfit({ platform, processor, glibc }: Installation): string | null {
  if (platform !== 'linux') {
    const instead =
      platform === 'win32'
        ? 'on Windows, install Node and odmoe inside WSL2 (`wsl --install`)'
        : 'run it on a Linux machine (a virtual one will do), and ask it from here over HTTP';
    return `odmoe runs on Linux, and this is ${platform}; ${instead}`;
  }
  const build = 'run `odmoe setup`, which builds the native library here';
  if (!PACKAGED_PROCESSORS.includes(processor)) {
    return `the native library comes as a package for ${PACKAGED_PROCESSORS.join(' and ')}, and this processor is ${processor}; ${build}`;
  }
  const running = glibc();
  if (running === null) {
    return `the package of the native library needs glibc ${OLDEST_GLIBC} or newer, and this system has none (as Alpine); ${build}`;
  }
  if (!isAtLeast(running, OLDEST_GLIBC)) {
    const systems = 'Ubuntu 22.04, Debian 12 and JetPack 6 have it';
    return `the package of the native library needs glibc ${OLDEST_GLIBC} or newer (${systems}), and this system has ${running}; ${build}`;
  }
  return null;
}

function isAtLeast(version: string, least: string): boolean {
  const [major = 0, minor = 0] = version.split('.').map(Number);
  const [leastMajor = 0, leastMinor = 0] = least.split('.').map(Number);
  return major > leastMajor || (major === leastMajor && minor >= leastMinor);
}

/** The package that Node finds from odmoe's own directory, beside it or above it. */
function installedPackage(root: string, name: string): { folder: string; version: string } | null {
  let manifest: string;
  try {
    manifest = createRequire(join(root, 'package.json')).resolve(`${name}/package.json`);
  } catch {
    return null;
  }
  const { version } = z.object({ version: z.string() }).parse(JSON.parse(readFileSync(manifest, 'utf8')));
  return { folder: join(manifest, '..'), version };
}
