// The npm packages with which the native core is built. A clone has them among its development dependencies. What npm installs leaves these
// out, so `odmoe setup` gets them, in the same versions, into a folder of their own.
import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { BuildError, isClone, packageRoot } from './build-state.mjs';

const NAMES = ['cmake-js', 'node-addon-api', 'node-api-headers'];
const OWN_FOLDER = join(packageRoot, 'build-packages');
const FOLDER = isClone ? packageRoot : OWN_FOLDER;

/** The folder of one of the packages, whether it is there or not. */
export function buildPackage(name) {
  return join(FOLDER, 'node_modules', name);
}

/** The installed versions; 'none' for a package that is missing. */
export function buildPackageVersions() {
  return NAMES.map((name) => {
    const path = join(buildPackage(name), 'package.json');
    return existsSync(path) ? JSON.parse(readFileSync(path, 'utf8')).version : 'none';
  });
}

/** For an odmoe that npm has installed: gets what is missing or of another version. Throws BuildError. */
export function installBuildPackages(say) {
  const { devDependencies } = JSON.parse(readFileSync(join(packageRoot, 'package.json'), 'utf8'));
  const versions = NAMES.map((name) => devDependencies[name]);
  if (buildPackageVersions().join() === versions.join()) return;
  say(`getting ${NAMES.join(', ')} from npm`);
  mkdirSync(OWN_FOLDER, { recursive: true });
  const wanted = NAMES.map((name, index) => `${name}@${versions[index]}`);
  runNpm(['install', '--global=false', '--prefix', OWN_FOLDER, '--no-save', '--ignore-scripts', ...wanted]);
}

/** npm's output is progress and goes to stderr. stdout belongs to the command of the user. Throws BuildError. */
export function runNpm(args, options = {}) {
  const all = [...args, '--no-audit', '--no-fund'];
  const { status, error } = spawnSync('npm', all, { cwd: packageRoot, stdio: ['ignore', 2, 2], ...options });
  if (error) throw new BuildError(`npm could not be run: ${error.message}`);
  if (status !== 0) throw new BuildError(`npm ${all.join(' ')} failed (see above)`);
}
