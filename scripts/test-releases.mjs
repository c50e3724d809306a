// `npm run test:releases` runs the set-up. Then clusters of real daemons of this release and of earlier ones answer, each of which it has built
// once from its commit, in build/releases/VERSION. Not part of .ci/run: a build takes minutes, and needs npm's registry and the history of Git.
import { spawnSync } from 'node:child_process';
import { mkdirSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { BuildError, doStep, filesBelow, isDone, packageRoot, runBuild, withLock } from './build-state.mjs';
import { runMocha } from './run-mocha.mjs';
import { afterSetUp } from './setup.mjs';

const FOLDER = join('build', 'releases');
const RELEASES = JSON.parse(readFileSync(join(packageRoot, 'test', 'releases', 'releases.json'), 'utf8'));
const TIME_LIMIT_MS = 600_000;

function run(command, args, cwd, input) {
  // Clusters of the tests use processors alone.
  const env = { ...process.env, ODMOE_CUDA: 'off' };
  const { status, error } = spawnSync(command, args, { cwd, env, input, stdio: [input ? 'pipe' : 'ignore', 2, 2] });
  if (error) throw new BuildError(`${command} could not be run: ${error.message}`);
  if (status !== 0) throw new BuildError(`${command} ${args.join(' ')} failed in ${cwd} (see above)`);
}

/** The files of a commit, as an archive of tar. */
function filesOf(commit) {
  const options = { cwd: packageRoot, maxBuffer: 1024 ** 3, stdio: ['ignore', 'pipe', 2] };
  const { status, stdout } = spawnSync('git', ['archive', commit], options);
  if (status === 0) return stdout;
  throw new BuildError(`commit ${commit} is not in this clone: get the whole history by git fetch --unshallow`);
}

/** Builds a release, if that has not been done. */
export function buildRelease({ release, commit }) {
  const folder = join(packageRoot, FOLDER, release);
  const statePath = join(FOLDER, `${release}.built`);
  const state = `${commit} ${process.version}`;
  if (isDone(statePath, state)) return;
  const archive = filesOf(commit);
  doStep(statePath, state, () => {
    process.stderr.write(`releases: building ${release}\n`);
    rmSync(folder, { recursive: true, force: true });
    mkdirSync(folder, { recursive: true });
    run('tar', ['-x'], folder, archive);
    run('npm', ['ci', '--no-audit', '--no-fund'], folder);
    run(process.execPath, ['scripts/build-typescript.mjs'], folder);
    run(process.execPath, ['scripts/build-native.mjs'], folder);
  });
}

function testReleases() {
  withLock('releases', () => RELEASES.forEach(buildRelease));
  const files = filesBelow(join('dist', 'test', 'releases'), (name) => name.endsWith('.test.js'));
  const given = process.argv.slice(2);
  const { passed, failed } = runMocha(files, ['--timeout', String(TIME_LIMIT_MS), ...given]);
  process.stdout.write(`${passed} passed, ${failed} failed\n`);
  if (failed > 0 || passed === 0) process.exitCode = 1;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  afterSetUp('tests', () => runBuild('releases', testReleases));
}
