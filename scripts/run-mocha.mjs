// One run of mocha in a process of its own, and what it counted.
import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { packageRoot } from './build-state.mjs';

/** A file of tests fails by what its tests leave behind. */
const LEFT_BEHIND = join('dist', 'test', 'left-behind.js');
/** Of this process: another one may run other tests meanwhile. */
const COUNTS_PATH = join(packageRoot, 'build', `test-counts.${process.pid}.json`);

/**
 * {passed, failed, skipped, failures, fileMs}. A run that ended without counts, or badly without a failed test, is one failure more. `variables`
 * are added to the environment.
 */
export function runMocha(files, options, variables = {}) {
  mkdirSync(join(packageRoot, 'build'), { recursive: true });
  rmSync(COUNTS_PATH, { force: true });
  const { status } = spawnSync(
    process.execPath,
    [join('node_modules', 'mocha', 'bin', 'mocha.js'), '--require', LEFT_BEHIND, ...options, ...files],
    { cwd: packageRoot, stdio: 'inherit', env: { ...process.env, ...variables, ODMOE_TEST_COUNTS: COUNTS_PATH } },
  );
  const nothing = { passed: 0, failed: 0, skipped: 0, failures: [], fileMs: {} };
  const counts = existsSync(COUNTS_PATH) ? JSON.parse(readFileSync(COUNTS_PATH, 'utf8')) : nothing;
  rmSync(COUNTS_PATH, { force: true });
  if (status !== 0 && counts.failed === 0) {
    counts.failed = 1;
    counts.failures.push(
      `mocha ended with ${status === null ? 'a signal' : `status ${status}`}, without a failed test`,
    );
  }
  return counts;
}

/** The counts of several runs. */
export function addCounts(runs) {
  const sum = (name) => runs.reduce((total, run) => total + run[name], 0);
  const failures = runs.flatMap((run) => run.failures ?? []);
  return { passed: sum('passed'), failed: sum('failed'), skipped: sum('skipped'), failures };
}
