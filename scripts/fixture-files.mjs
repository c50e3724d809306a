// Weights of test/fixtures are stored compressed, in the same folders below test/fixtures-compressed, so that a clone stays small. The build
// of benchmarks and tests unpacks those that are missing in test/fixtures, or are older than their compressed form.
//   node scripts/fixture-files.mjs           unpacks
//   node scripts/fixture-files.mjs --store   compresses all that are new or have changed
import { existsSync, mkdirSync, readFileSync, renameSync, statSync, writeFileSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { brotliCompressSync, brotliDecompressSync, constants } from 'node:zlib';
import { BuildError, filesBelow, packageRoot, runBuild } from './build-state.mjs';

const PLAIN = join('test', 'fixtures');
const STORED = join('test', 'fixtures-compressed');
/** Git ignores these files of test/fixtures. */
const WEIGHTS = /\.(safetensors|bin)$/;
const END = '.br';

const at = (path) => join(packageRoot, path);
const plainOf = (stored) => join(PLAIN, relative(STORED, stored).slice(0, -END.length));
const storedOf = (plain) => join(STORED, `${relative(PLAIN, plain)}${END}`);

/** Another process that reads the file at the same time sees all of it or nothing. */
function write(path, bytes) {
  const written = `${at(path)}.${process.pid}`;
  mkdirSync(dirname(written), { recursive: true });
  writeFileSync(written, bytes);
  renameSync(written, at(path));
}

export function unpackFixtures() {
  for (const stored of filesBelow(STORED, (name) => name.endsWith(END))) {
    const plain = plainOf(stored);
    if (existsSync(at(plain)) && statSync(at(plain)).mtimeMs >= statSync(at(stored)).mtimeMs) continue;
    write(plain, brotliDecompressSync(readFileSync(at(stored))));
  }
}

function store() {
  for (const plain of filesBelow(PLAIN, (name) => WEIGHTS.test(name))) {
    const bytes = readFileSync(at(plain));
    const stored = storedOf(plain);
    if (existsSync(at(stored)) && brotliDecompressSync(readFileSync(at(stored))).equals(bytes)) continue;
    const params = { [constants.BROTLI_PARAM_LGWIN]: constants.BROTLI_MAX_WINDOW_BITS };
    write(stored, brotliCompressSync(bytes, { params }));
    process.stdout.write(`${stored}\n`);
  }
}

function main() {
  const [flag, ...others] = process.argv.slice(2);
  if (others.length > 0 || (flag ?? '--store') !== '--store') throw new BuildError('the only argument is --store');
  if (flag === undefined) unpackFixtures();
  else store();
}

if (process.argv[1] === fileURLToPath(import.meta.url)) runBuild('fixtures', main);
