// `npm run test:sanitizers` runs the native core under AddressSanitizer and UndefinedBehaviorSanitizer. It runs the C++ tests, and beside
// them the tests of the addon's door inside Node and then seeds of the simulated cluster. The counts go to build/sanitizer-counts.json.
// It leaves out the CUDA kernels on their stand-in, for two reasons: every build compiles them with checks of alignment and bounds, and
// their fibers change stacks in ways that AddressSanitizer does not follow.
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, existsSync, mkdirSync, openSync, readFileSync, writeFileSync } from 'node:fs';
import { isAbsolute, join } from 'node:path';
import { filesBelow, packageRoot } from './build-state.mjs';
import { addCounts, runMocha } from './run-mocha.mjs';
import { afterSetUp } from './setup.mjs';
import { stageLines, timed } from './stage-times.mjs';

const BUILT = join(packageRoot, 'build-sanitize', 'Release');
/**
 * The C++ tests take 4 to 20 minutes of one core: kernels with sanitizers leave wide registers in use, after which the references' fused multiply-add is slow on some
 * processors. The limit is longer because a busy machine is slower.
 */
const NATIVE_LIMIT_MS = 2_400_000;
const SEEDS_LIMIT_MS = 600_000;
const SEEDS = 20;
/** Tests of the addon. native-operators is left out, because it runs the C++ tests, which have run already. */
const ADDON_TESTS = /^native-(?!operators).*\.test\.js$/;
const UNDEFINED_BEHAVIOR = { UBSAN_OPTIONS: 'halt_on_error=1:print_stacktrace=1' };

function say(text) {
  process.stdout.write(`sanitizers: ${text}\n`);
}

/** Begins the C++ tests. Their output goes to a file, because the tests of the addon keep this process from reading a pipe. */
function startNativeTests() {
  const output = join(packageRoot, 'build-sanitize', 'native-tests.log');
  const file = openSync(output, 'w');
  const child = spawn(join(BUILT, 'odmoe_native_tests'), {
    stdio: ['ignore', file, 'inherit'],
    timeout: NATIVE_LIMIT_MS,
    env: { ...process.env, ...UNDEFINED_BEHAVIOR },
  });
  closeSync(file);
  return { output, ended: once(child, 'close') };
}

/** The program prints "pass NAME" and "fail NAME: why". If it ends badly without a failed case, that counts as a failure, too. */
async function nativeCounts({ output, ended }) {
  const [status, signal] = await ended;
  const lines = readFileSync(output, 'utf8').split('\n');
  const failures = lines.filter((line) => line.startsWith('fail '));
  for (const line of failures) say(line);
  const passed = lines.filter((line) => line.startsWith('pass ')).length;
  const endedBadly = status !== 0 && failures.length === 0;
  if (endedBadly) say(`the C++ tests ended with ${signal ?? `status ${status}`} after ${passed} cases`);
  return { passed, failed: failures.length + (endedBadly ? 1 : 0), skipped: 0, failures };
}

/** Environment of a Node process that loads the addon with sanitizers; undefined if the compiler has no library to preload. */
function addonEnvironment() {
  const cache = readFileSync(join(packageRoot, 'build-sanitize', 'CMakeCache.txt'), 'utf8');
  const compiler = /^CMAKE_CXX_COMPILER:[A-Z]+=(.*)$/m.exec(cache)?.[1] ?? 'c++';
  const library = spawnSync(compiler, ['-print-file-name=libasan.so'], { encoding: 'utf8' }).stdout?.trim() ?? '';
  if (!isAbsolute(library)) return undefined;
  return {
    ...UNDEFINED_BEHAVIOR,
    LD_PRELOAD: library,
    // Node does not free all its memory before the process ends.
    ASAN_OPTIONS: 'detect_leaks=0',
    ODMOE_ADDON: join(BUILT, 'odmoe.node'),
  };
}

/** Runs the fault simulations of all seeds. Together they count as one test. */
function seeds(environment) {
  const command = [join(packageRoot, 'bin', 'odmoe'), 'bench', 'faults', '--seeds', String(SEEDS), '--json'];
  const { status } = spawnSync(process.execPath, command, {
    stdio: ['ignore', 'inherit', 'inherit'],
    timeout: SEEDS_LIMIT_MS,
    env: { ...process.env, ...environment },
  });
  say(`${SEEDS} seeds ended with ${status === null ? 'a signal' : `status ${status}`}`);
  return { passed: status === 0 ? 1 : 0, failed: status === 0 ? 0 : 1, skipped: 0 };
}

function addonTests() {
  const environment = addonEnvironment();
  if (environment === undefined) {
    say('the compiler has no libasan.so that Node could preload (GCC has): the addon is not tested');
    return [{ passed: 0, failed: 0, skipped: 1 }];
  }
  const files = filesBelow('dist/test/unit', (name) => ADDON_TESTS.test(name));
  const runs = [timed('tests of the addon', () => runMocha(files, [], environment))];
  if (existsSync(join(packageRoot, 'dist', 'bench', 'faults'))) runs.push(timed('seeds', () => seeds(environment)));
  return runs;
}

async function runAll() {
  const native = startNativeTests();
  const addon = addonTests();
  const counts = addCounts([await nativeCounts(native), ...addon]);
  mkdirSync(join(packageRoot, 'build'), { recursive: true });
  writeFileSync(join(packageRoot, 'build', 'sanitizer-counts.json'), JSON.stringify(counts));
  process.stdout.write(`the stages:\n${stageLines()}`);
  say(`${counts.passed} passed, ${counts.failed} failed, ${counts.skipped} skipped`);
  if (counts.failed > 0 || counts.passed === 0) process.exitCode = 1;
}

await afterSetUp('sanitize', runAll);
