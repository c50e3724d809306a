// Lays out C++ and CUDA by .clang-format, as prettier does for TypeScript.
//   node scripts/format-native.mjs           rewrites the files
//   node scripts/format-native.mjs --check   only says what is laid out differently; then the exit status is 1
import { spawnSync } from 'node:child_process';
import { readdirSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const packageRoot = dirname(dirname(fileURLToPath(import.meta.url)));
const NATIVE_SOURCE = /\.(cc|h|cu|cuh)$/;

/** 14 to 19 are known to agree; a newer one may differ in details that .clang-format cannot set. */
const COMMANDS = ['clang-format', ...[19, 18, 17, 16, 15, 14].map((version) => `clang-format-${version}`)];

function findClangFormat() {
  return COMMANDS.find((command) => spawnSync(command, ['--version'], { stdio: 'ignore' }).status === 0);
}

function nativeSources() {
  return readdirSync(join(packageRoot, 'native'), { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile() && NATIVE_SOURCE.test(entry.name))
    .map((entry) => join(entry.parentPath ?? entry.path, entry.name))
    .sort();
}

function main() {
  const unknown = process.argv.slice(2).filter((argument) => argument !== '--check');
  if (unknown.length > 0) return `unknown argument ${unknown.join(' ')}; the only one is --check`;
  const command = findClangFormat();
  if (command === undefined) {
    return 'clang-format is missing; install version 14 or newer (Debian, Ubuntu: apt-get install clang-format)';
  }
  const sources = nativeSources();
  const mode = process.argv.includes('--check') ? ['--dry-run', '--Werror'] : ['-i'];
  const { status, error } = spawnSync(command, ['--style=file', ...mode, ...sources], {
    stdio: 'inherit',
    cwd: packageRoot,
  });
  if (error) return `${command} could not be run: ${error.message}`;
  if (status !== 0) return 'some C++ files are laid out differently (see above); `npm run format:native` rewrites them';
  return undefined;
}

const complaint = main();
if (complaint !== undefined) {
  process.stderr.write(`format: ${complaint}\n`);
  process.exitCode = 1;
}
