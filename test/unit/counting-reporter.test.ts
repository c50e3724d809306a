import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { packageRoot } from '../../shared/base/files/package-root.js';

const FILE = `
it('is right', () => {});
it('is wrong', () => { throw new Error('seven is not eight'); });
it('is wrong, too', () => { throw new Error('nor nine'); });
it.skip('is left out', () => {});
`;

/** The counts that scripts/run-mocha.mjs reads and .ci/run prints at its end. */
interface Counts {
  passed: number;
  failed: number;
  skipped: number;
  failures: string[];
}

describe('the test reporter', () => {
  const directory = mkdtempSync(join(tmpdir(), 'odmoe-reporter-'));
  after(() => rmSync(directory, { recursive: true, force: true }));

  it('counts passed, failed and skipped tests, and names the failed ones', function () {
    this.timeout(30_000);
    const [file, counts] = [join(directory, 'sample.cjs'), join(directory, 'counts.json')];
    writeFileSync(file, FILE);
    const reporter = join(packageRoot(), 'scripts', 'counting-reporter.cjs');
    const mocha = join(packageRoot(), 'node_modules', 'mocha', 'bin', 'mocha.js');
    const environment = { ...process.env, ODMOE_TEST_COUNTS: counts };
    spawnSync(process.execPath, [mocha, '--no-config', '--reporter', reporter, file], {
      cwd: directory,
      env: environment,
    });
    const { passed, failed, skipped, failures } = JSON.parse(readFileSync(counts, 'utf8')) as Counts;
    assert.deepEqual([passed, failed, skipped], [1, 2, 1]);
    assert.deepEqual(
      failures.map((words) => /: (.*)\nError: (.*)\n/.exec(words)?.slice(1)),
      [
        ['is wrong', 'seven is not eight'],
        ['is wrong, too', 'nor nine'],
      ],
    );
  });
});
