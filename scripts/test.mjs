// `npm test [-- MOCHA_OPTIONS]`: set-up, then every test that needs no GPU and is not long. Units, simulations and commands that start no
// daemon come first, tests of daemons after them, because those measure waits: a whole machine that computes beside them is no help. Both
// run on all cores. The counts go to build/test-counts.json. `npm run test:long` (`--long`): what takes longest, with counts of its own.
import { rmSync, writeFileSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { join } from 'node:path';
import { filesBelow, packageRoot } from './build-state.mjs';
import { addCounts, runMocha } from './run-mocha.mjs';
import { afterSetUp } from './setup.mjs';

const LONG = process.argv.includes('--long');
const COUNTS_PATH = join(packageRoot, 'build', LONG ? 'long-test-counts.json' : 'test-counts.json');
/** Files that take longest begin first, so that nobody waits for them at the end. */
const LONGEST = [
  ...['simulation/seeds', 'simulation/determinism', 'unit/cuda-operators', 'unit/native-operators'],
  ...['simulation/batching', 'integration/simulate-command'],
  ...['integration/network/two-hosts', 'integration/demo-run', 'integration/fault-worker-processes'],
  ...['integration/worker-daemon', 'integration/cuda-cluster'],
];
/** Tests of commands that start no daemon. */
const WITHOUT_DAEMONS = /^dist\/test\/integration\/(generate-|plan-command|simulate-command)/;
const SLOWEST_SHOWN = 12;

function testFiles(...folders) {
  const files = folders.flatMap((folder) => filesBelow(`dist/test/${folder}`, (name) => name.endsWith('.test.js')));
  const isLong = (file) => LONGEST.some((name) => file === `dist/test/${name}.test.js`);
  return [...files.filter(isLong), ...files.filter((file) => !isLong(file))];
}

function report(runs) {
  const counts = addCounts(runs);
  writeFileSync(COUNTS_PATH, JSON.stringify(counts));
  const slowest = runs
    .flatMap(({ fileMs }) => Object.entries(fileMs))
    .sort(([, a], [, b]) => b - a)
    .slice(0, SLOWEST_SHOWN);
  process.stdout.write('the slowest files:\n');
  for (const [file, ms] of slowest) process.stdout.write(`${(ms / 1000).toFixed(1).padStart(8)} s  ${file}\n`);
  process.stdout.write(`all tests: ${counts.passed} passed, ${counts.failed} failed, ${counts.skipped} skipped\n`);
  if (counts.failed > 0 || counts.passed === 0) process.exitCode = 1;
}

afterSetUp('tests', () => {
  rmSync(COUNTS_PATH, { force: true });
  // With options such as --grep one of the runs may have nothing to do.
  const given = process.argv.slice(2).filter((argument) => argument !== '--long');
  const options = given.length > 0 ? ['--no-fail-zero', ...given] : [];
  const parallel = [...options, '--parallel', '--jobs', String(availableParallelism())];
  if (LONG) {
    report([runMocha(testFiles('long'), options)]);
    return;
  }
  const integration = testFiles('integration');
  const commands = integration.filter((file) => WITHOUT_DAEMONS.test(file));
  const daemons = integration.filter((file) => !WITHOUT_DAEMONS.test(file));
  report([runMocha([...testFiles('unit', 'simulation'), ...commands], parallel), runMocha(daemons, parallel)]);
});
