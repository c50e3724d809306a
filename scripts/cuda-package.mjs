// The CUDA library as a package of npm, for an odmoe that npm has installed.
import { spawnSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { runNpm } from './build-packages.mjs';
import { packageRoot } from './build-state.mjs';

/** Jetsons build theirs with JetPack's own toolkit: a library for graphics cards on ARM would not run there. */
const PROCESSOR = 'x64';

/**
 * The way to a CUDA library: {way: 'package', 'build' or 'none', why: in words, empty for the package}. Pure.
 * `gpu`: the file by which the machine shows a GPU, or undefined. `forced`: the user wants the library without a GPU, as for another machine's
 * image. `addonIsOwn`: the addon was built here, and looks for the library beside itself only.
 */
export function cudaPlan({ processor, gpu, forced, addonIsOwn }) {
  if (gpu === undefined && !forced) {
    const why =
      'this machine shows no NVIDIA GPU, so the CUDA library would be of no use; install the GPU and its driver, see that `nvidia-smi` works, ' +
      'and run `odmoe setup --cuda` again (ODMOE_CUDA=on gets the library all the same, as for the image of another machine)';
    return { way: 'none', why };
  }
  if (addonIsOwn) return { way: 'build', why: 'the native library was built here, so the CUDA library is, too' };
  if (processor !== PROCESSOR) {
    return { way: 'build', why: `on ${processor} the CUDA library is built with the nvcc of this machine` };
  }
  return { way: 'package', why: '' };
}

/** Installs the package of this version beside odmoe. False, with words, where npm has none. Throws BuildError. */
export function installCudaPackage(say) {
  const { version } = JSON.parse(readFileSync(join(packageRoot, 'package.json'), 'utf8'));
  const wanted = `@odmoe/linux-${PROCESSOR}-cuda@${version}`;
  const { status, stdout } = spawnSync('npm', ['view', wanted, 'version'], { encoding: 'utf8' });
  if (status !== 0 || stdout.trim() !== version) {
    for (const line of withoutPackage(version)) say(line);
    return false;
  }
  say(`installing ${wanted}`);
  runNpm(['install', ...placeOf(packageRoot), wanted]);
  return true;
}

/** What is said where npm has no package of that version: its file is quicker than a build. Pure. */
export function withoutPackage(version) {
  const files = ['', `linux-${PROCESSOR}-`, `linux-${PROCESSOR}-cuda-`].map((part) => `./odmoe-${part}${version}.tgz`);
  return [
    `npm has no @odmoe/linux-${PROCESSOR}-cuda@${version} or cannot be reached; with the files of a release nothing has to be built:`,
    `  npm install --global ${files.join(' ')}`,
    'building the CUDA library here',
  ];
}

/** The flags with which npm installs beside the odmoe in that directory: into a project, or for the whole machine. */
export function placeOf(directory) {
  const above = dirname(dirname(directory));
  if (existsSync(join(above, 'package.json')) || basename(above) !== 'lib') {
    return ['--global=false', '--prefix', above, '--save-optional', '--save-exact'];
  }
  return ['--global', '--prefix', dirname(above)];
}
