// The CUDA library as a package of npm, for an odmoe that npm has installed.
import { spawnSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { runNpm } from './build-packages.mjs';
import { packageRoot } from './build-state.mjs';

/** Jetsons build theirs with JetPack's own toolkit: a library for graphics cards on ARM would not run there. */
const PROCESSOR = 'x64';

/** Installs the package of this version beside odmoe. False, with words, where npm has none for this machine. Throws BuildError. */
export function installCudaPackage(say) {
  if (process.arch !== PROCESSOR) return false;
  const { version } = JSON.parse(readFileSync(join(packageRoot, 'package.json'), 'utf8'));
  const wanted = `@odmoe/linux-${PROCESSOR}-cuda@${version}`;
  const { status, stdout } = spawnSync('npm', ['view', wanted, 'version'], { encoding: 'utf8' });
  if (status !== 0 || stdout.trim() !== version) {
    say(`npm has no ${wanted} or cannot be reached; building the CUDA library here`);
    return false;
  }
  say(`installing ${wanted}`);
  runNpm(['install', ...placeOf(packageRoot), wanted]);
  return true;
}

/** The flags with which npm installs beside the odmoe in that directory: into a project, or for the whole machine. */
export function placeOf(directory) {
  const above = dirname(dirname(directory));
  if (existsSync(join(above, 'package.json')) || basename(above) !== 'lib') {
    return ['--global=false', '--prefix', above, '--save-optional', '--save-exact'];
  }
  return ['--global', '--prefix', dirname(above)];
}
