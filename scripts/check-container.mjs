// Checks the Dockerfile where there is no container engine.
//   node scripts/check-container.mjs                  reads it: stages, user, health check, and that what it copies is there
//   node scripts/check-container.mjs --run FOLDER     runs its steps in chroots of Debian below FOLDER, and asks the result for an answer
// --run needs root, debootstrap and the network (apt and npm). A chroot of Debian 12 with this machine's Node and npm stands for node:20-bookworm-slim.
// FOLDER/base is made once and used again.
import { spawnSync } from 'node:child_process';
import { cpSync, existsSync, mkdirSync, readFileSync, rmSync } from 'node:fs';
import { dirname, join, posix, relative, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { BuildError, packageRoot, runBuild } from './build-state.mjs';
import { copyParts, dockerfileProblems, ignoredPaths, isIgnored, stagesOf } from './dockerfile.mjs';
import { findCommand } from './system-packages.mjs';

const DEBIAN = 'bookworm';
const MIRROR = 'http://deb.debian.org/debian';
/** The programs that an image of Node has beside Debian. */
const NODE_FILES = ['/usr/lib/node_modules/npm'];
/** Files of this machine by which its programs reach registries. */
const CLIENT_FILES = ['/etc/resolv.conf', '/etc/ssl/certs/ca-certificates.crt', '/root/.npmrc', '/etc/npmrc'];
const PROMPT = 'Tell me a story about a fox.';

function say(text) {
  process.stderr.write(`container: ${text}\n`);
}

function run(command, args, options = {}) {
  const { status, error } = spawnSync(command, args, { stdio: ['ignore', 2, 2], ...options });
  if (error) throw new BuildError(`${command} could not be run: ${error.message}`);
  if (status !== 0) throw new BuildError(`${command} ${args.join(' ')} failed (see above)`);
}

function readStages() {
  const text = readFileSync(join(packageRoot, 'Dockerfile'), 'utf8');
  const ignored = ignoredPaths(readFileSync(join(packageRoot, '.dockerignore'), 'utf8'));
  const exists = (path) => existsSync(join(packageRoot, path));
  const problems = dockerfileProblems(text, { exists, ignored });
  if (problems.length > 0) throw new BuildError(`Dockerfile: ${problems.join('; ')}`);
  return { stages: stagesOf(text), ignored };
}

/** Debian with this machine's Node and npm. */
function makeBase(base) {
  if (!existsSync(join(base, 'usr/bin/apt-get'))) {
    say(`making ${base} by debootstrap`);
    run('debootstrap', ['--variant=minbase', '--include=ca-certificates', DEBIAN, base, MIRROR]);
  }
  for (const path of [...NODE_FILES, ...CLIENT_FILES].filter((path) => existsSync(path))) {
    rmSync(join(base, path), { recursive: true, force: true });
    mkdirSync(dirname(join(base, path)), { recursive: true });
    cpSync(path, join(base, path), { recursive: true, dereference: true });
  }
  cpSync(process.execPath, join(base, 'usr/local/bin/node'));
  run('ln', ['-sf', '/usr/lib/node_modules/npm/bin/npm-cli.js', join(base, 'usr/local/bin/npm')]);
}

/** Runs a command in a root, with its own mounts, which go when it ends. `user` "uid:gid". */
function runIn(root, command, { user, folder, environment, output = 2 }) {
  const mounts = ['proc', 'dev', 'sys'].map((name) => `mount --rbind /${name} "$0/${name}"`).join(' && ');
  const script = `mount --make-rprivate / && ${mounts} && exec chroot --userspec=${user} "$0" /bin/sh -c 'cd "$0" && exec "$@"' "$@"`;
  const args = ['--mount', 'sh', '-c', script, root, folder, ...command];
  const path = '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin';
  const certificates = process.env.NODE_EXTRA_CA_CERTS === undefined ? {} : { NODE_EXTRA_CA_CERTS: CLIENT_FILES[1] };
  const env = { PATH: path, HOME: '/root', LC_ALL: 'C.UTF-8', ...certificates, ...environment };
  run('unshare', args, { env, stdio: ['ignore', output, 2] });
}

function copyInto(root, folder, instruction, { ignored, roots }) {
  const { sources, target } = copyParts(instruction);
  const destination = join(root, posix.resolve(folder, target));
  const from = instruction.options.from === undefined ? packageRoot : roots.get(instruction.options.from);
  const filter = (path) => from !== packageRoot || !isIgnored(relative(packageRoot, path), ignored);
  for (const source of sources) {
    const isInto = sources.length > 1 || target.endsWith('/');
    const place = isInto ? join(destination, posix.basename(source)) : destination;
    mkdirSync(dirname(place), { recursive: true });
    cpSync(join(from, source), place, { recursive: true, verbatimSymlinks: true, filter });
  }
}

/** Carries out a stage's instructions in a fresh copy of the base. Returns how commands are run in the result. */
function runStage(stage, root, base, context) {
  rmSync(root, { recursive: true, force: true });
  run('cp', ['-a', base, root]);
  const state = { user: '0:0', folder: '/', environment: {} };
  for (const { number, word, options, rest } of stage.instructions) {
    const [, name, value] = /^([A-Z_]+)=(.*)$/.exec(rest) ?? [];
    if (word === 'RUN') {
      say(`line ${number}: RUN ${rest.replaceAll(/\s+/g, ' ').slice(0, 100)}`);
      runIn(root, ['/bin/sh', '-c', rest], state);
    } else if (word === 'WORKDIR') {
      state.folder = rest;
      mkdirSync(join(root, rest), { recursive: true });
    } else if (word === 'COPY') copyInto(root, state.folder, { options, rest }, context);
    else if (word === 'USER') state.user = rest;
    else if (word === 'ENV' || word === 'ARG') state.environment[name] = value;
  }
  return state;
}

/** The image answers: a cluster of its own, as its own user. */
function askDemo(root, stage, state) {
  const entry = JSON.parse(stage.instructions.findLast(({ word }) => word === 'ENTRYPOINT').rest);
  const asked = ['demo', PROMPT, '--workers', '2', '--max-tokens', '8', '--json'];
  say(`asking ${[...entry, ...asked].join(' ')} as user ${state.user}`);
  runIn(root, [...entry, ...asked], { ...state, output: 1 });
}

function runSteps(folder) {
  if (process.getuid() !== 0) throw new BuildError('--run needs root, for chroot');
  for (const program of ['debootstrap', 'unshare', 'chroot'])
    if (findCommand(program) === undefined) throw new BuildError(`${program} is missing: apt-get install ${program}`);
  const { stages, ignored } = readStages();
  const base = join(folder, 'base');
  mkdirSync(folder, { recursive: true });
  makeBase(base);
  const roots = new Map();
  let last = null;
  for (const [index, stage] of stages.entries()) {
    const root = join(folder, stage.name ?? `stage-${index}`);
    roots.set(stage.name ?? String(index), root);
    last = { root, stage, state: runStage(stage, root, base, { ignored, roots }) };
  }
  askDemo(last.root, last.stage, last.state);
}

function main() {
  const [flag, folder, ...others] = process.argv.slice(2);
  if (flag === undefined) {
    readStages();
    return;
  }
  if (flag !== '--run' || folder === undefined || others.length > 0)
    throw new BuildError('give nothing, or --run FOLDER');
  runSteps(resolve(folder));
}

if (process.argv[1] === fileURLToPath(import.meta.url)) runBuild('container', main);
