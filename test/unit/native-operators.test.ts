/**
 * Reports each case of the C++ operator tests (native/test/) as a test of mocha. The program is built together with the addon.
 */
import { ok } from 'node:assert/strict';
import { execFile, execFileSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { packageRoot } from '../../shared/base/files/package-root.js';

const RUN_LIMIT_MS = 400_000;
const LIST_LIMIT_MS = 20_000;

const program = join(packageRoot(), 'build', 'Release', 'odmoe_native_tests');

/** Runs all cases and returns their lines, `pass NAME` or `fail NAME: why`. */
async function runCases(): Promise<string[]> {
  // The exit status adds nothing to the lines. After a crash some lines are missing.
  const { stdout, stderr } = await promisify(execFile)(program, { timeout: RUN_LIMIT_MS }).catch(
    (error: { stdout?: string; stderr?: string }) => ({ stdout: error.stdout ?? '', stderr: error.stderr ?? '' }),
  );
  process.stderr.write(stderr);
  return stdout.split('\n');
}

describe('native operators (C++)', () => {
  if (!existsSync(program)) {
    it('the test program of the native operators is built', () => {
      throw new Error(`${program} is missing; run \`npm run build:tests\``);
    });
    return;
  }
  const names = execFileSync(program, ['--list'], { timeout: LIST_LIMIT_MS, encoding: 'utf8' }).trim().split('\n');
  let lines: string[] = [];
  before(async function () {
    this.timeout(RUN_LIMIT_MS + LIST_LIMIT_MS);
    lines = await runCases();
  });
  for (const name of names) {
    it(`the native case '${name}' passes`, () => {
      const failure = lines.find((line) => line.startsWith(`fail ${name}: `));
      ok(failure === undefined, failure);
      ok(lines.includes(`pass ${name}`), 'the program ended before this case, or was stopped; its own output is above');
    });
  }
});
