// Formats C++ and CUDA sources by .clang-format, as oxfmt formats TypeScript.
//   node scripts/format-native.mjs           rewrites the files
//   node scripts/format-native.mjs --check   only reports files whose format differs; if there are any, the exit status is 1
import { spawnSync } from 'node:child_process';
import { filesBelow, packageRoot } from './build-state.mjs';
import { CLANG_FORMAT_COMMANDS, findCommand } from './system-packages.mjs';

const NATIVE_SOURCE = /\.(cc|h|cu|cuh)$/;

function findClangFormat() {
  return CLANG_FORMAT_COMMANDS.find((command) => findCommand(command) !== undefined);
}

function main() {
  const unknown = process.argv.slice(2).filter((argument) => argument !== '--check');
  if (unknown.length > 0) return `unknown argument ${unknown.join(' ')}; the only one is --check`;
  const command = findClangFormat();
  if (command === undefined) {
    return 'clang-format is missing; install version 14 or newer (Debian, Ubuntu: apt-get install clang-format)';
  }
  const sources = filesBelow('native', (name) => NATIVE_SOURCE.test(name));
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
