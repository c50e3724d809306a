// Runs mocha in a separate process and returns its counts.
import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { packageRoot } from './build-state.mjs';

/** This module makes a test file fail if its tests leave living things behind. */
const LEFT_BEHIND = join('dist', 'test', 'left-behind.js');
/** The path has the process id, because another process may run other tests at the same time. */
const COUNTS_PATH = join(packageRoot, 'build', `test-counts.${process.pid}.json`);

/**
 * Returns {passed, failed, skipped, failures, fileMs}. A run that ends with an error status or a signal, and counts no failed test, counts as
 * one failure. `variables` are added to the environment.
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

/** The sum of the counts of several runs. */
export function addCounts(runs) {
  const sum = (name) => runs.reduce((total, run) => total + run[name], 0);
  const failures = runs.flatMap((run) => run.failures ?? []);
  return { passed: sum('passed'), failed: sum('failed'), skipped: sum('skipped'), failures };
}
