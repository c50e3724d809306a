// `npm test [-- MOCHA_OPTIONS]` runs the set-up, then every test that needs no GPU and is not long. `npm run test:long` (`--long`) runs the
// tests in test/long. Tests of units, simulations and others that measure no wait run first, on all cores. Tests of daemons run after them,
// because they measure waits, which other work on the machine would lengthen. The counts go to build/test-counts.json, or with --long to
// build/long-test-counts.json. The end of the output shows where the time went.
import { rmSync, writeFileSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { join } from 'node:path';
import { filesBelow, packageRoot } from './build-state.mjs';
import { addCounts, runMocha } from './run-mocha.mjs';
import { afterSetUp } from './setup.mjs';
import { stageLines, timed, timeLines } from './stage-times.mjs';

const LONG = process.argv.includes('--long');
const COUNTS_PATH = join(packageRoot, 'build', LONG ? 'long-test-counts.json' : 'test-counts.json');
const TESTS = join('dist', 'test', LONG ? 'long' : '');
/** The slowest files begin first, so that the run does not wait for them at its end. */
const LONGEST = LONG
  ? [
      'simulation/seeds',
      'simulation/long-run',
      'integration/page-heap',
      'unit/pack-families',
      'simulation/family-clusters',
      'unit/cuda-memory',
      'integration/release-install',
      'unit/cuda-operators',
      'unit/expert-fetcher',
      'unit/pack-every-codec',
      'unit/output-format-schemas',
      'simulation/determinism',
      'integration/http-thinking',
      'integration/http-abuse',
      'integration/fault-main-processes',
    ]
  : [
      // Its threads wait for one another, so it begins beside tests of one thread.
      'unit/native-operators',
      'unit/output-format-schemas',
      'integration/http-sdks',
      'integration/http-recorded-clients',
      'integration/http-response-clients',
      'simulation/sliced-cache',
      'simulation/family-clusters',
      'simulation/seeds',
      'simulation/format-clusters',
      'unit/cuda-operators',
      'integration/demo-run',
      'integration/fault-worker-processes',
      'integration/worker-daemon',
      'integration/cuda-cluster',
    ];
/** Tests of commands that start no daemon, of what is installed, and of answers over HTTP: they measure no wait. */
const COMPUTING =
  /\/integration\/(generate-|plan-command|simulate-command|missing-addon|release-install|http-(sdks|recorded-clients|response-clients|reply-forms|openai|anthropic|ollama))/;
const SLOWEST_SHOWN = 15;

function testFiles(...folders) {
  const files = folders.flatMap((folder) => filesBelow(join(TESTS, folder), (name) => name.endsWith('.test.js')));
  const first = LONGEST.map((name) => join(TESTS, `${name}.test.js`)).filter((file) => files.includes(file));
  return [...first, ...files.filter((file) => !first.includes(file))];
}

function report(runs) {
  const counts = addCounts(runs);
  writeFileSync(COUNTS_PATH, JSON.stringify(counts));
  const slowest = runs
    .flatMap(({ fileMs }) => Object.entries(fileMs))
    .sort(([, a], [, b]) => b - a)
    .slice(0, SLOWEST_SHOWN);
  process.stdout.write(`the slowest files:\n${timeLines(slowest)}the stages:\n${stageLines()}`);
  process.stdout.write(`all tests: ${counts.passed} passed, ${counts.failed} failed, ${counts.skipped} skipped\n`);
  if (counts.failed > 0 || counts.passed === 0) process.exitCode = 1;
}

afterSetUp('tests', () => {
  rmSync(COUNTS_PATH, { force: true });
  // With options such as --grep, one of the runs may have no tests.
  const given = process.argv.slice(2).filter((argument) => argument !== '--long');
  const options = given.length > 0 ? ['--no-fail-zero', ...given] : [];
  const parallel = [...options, '--parallel', '--jobs', String(availableParallelism())];
  const integration = testFiles('integration');
  const commands = integration.filter((file) => COMPUTING.test(file));
  const daemons = integration.filter((file) => !COMPUTING.test(file));
  const computing = [...testFiles('unit', 'simulation'), ...commands];
  report([
    timed('tests of units, simulations, commands and answers', () => runMocha(computing, parallel)),
    timed('tests of daemons', () => runMocha(daemons, parallel)),
  ]);
});
