// Runs the demo and the tests of the native library under other versions of Node, which npm has as packages:
//   npm run test:nodes             Node 20, 22 and 24
//   npm run test:nodes -- 22       these only
// They lie in build/nodes afterwards. Not part of .ci/run, because each takes 50 MB from npm's registry.
import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { BuildError, packageRoot, runBuild } from './build-state.mjs';

const VERSIONS = ['20', '22', '24'];
const FOLDER = join(packageRoot, 'build', 'nodes');
const MOCHA = ['node_modules/mocha/bin/mocha.js', '--require', 'dist/test/left-behind.js', '--reporter', 'dot'];

function run(command, args, cwd = packageRoot) {
  const { status, error } = spawnSync(command, args, { cwd, stdio: ['ignore', 2, 2] });
  if (error) throw new BuildError(`${command} could not be run: ${error.message}`);
  if (status !== 0) throw new BuildError(`${command} ${args.join(' ')} failed (see above)`);
}

/** The path of a Node of that major version, which npm gets where it is not there yet. */
function nodeOf(major) {
  const folder = join(FOLDER, major);
  const node = join(folder, 'bin', 'node');
  if (existsSync(node)) return node;
  mkdirSync(folder, { recursive: true });
  run('npm', ['pack', '--silent', `node-linux-${process.arch}@${major}`], folder);
  const tarball = readdirSync(folder).find((name) => name.endsWith('.tgz'));
  if (tarball === undefined) throw new BuildError(`npm has made no tarball of Node ${major} in ${folder}`);
  run('tar', ['-xzf', tarball, '--strip-components=1'], folder);
  return node;
}

function main() {
  const asked = process.argv.slice(2);
  if (!asked.every((major) => /^\d+$/.test(major))) throw new BuildError('only major versions of Node may be given');
  // The C++ operator tests are a program of their own, which no Node runs.
  const isOfAddon = (name) => /^native-(?!operators\.).*\.test\.js$/.test(name);
  const tests = readdirSync(join(packageRoot, 'dist/test/unit')).filter(isOfAddon);
  for (const major of asked.length > 0 ? asked : VERSIONS) {
    const node = nodeOf(major);
    process.stderr.write(`nodes: Node ${major}\n`);
    run(node, ['bin/odmoe', 'demo', '--workers', '1', '--max-tokens', '4']);
    run(node, [...MOCHA, ...tests.map((name) => join('dist/test/unit', name))]);
  }
}

if (process.argv[1] === fileURLToPath(import.meta.url)) runBuild('nodes', main);
