import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { cpSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { packageRoot } from '../../shared/base/files/package-root.js';

/** The linter's answer as far as the tests read it. */
interface LintAnswer {
  diagnostics: { code: string; filename: string }[];
}

describe("the linter's own rules", function () {
  this.timeout(60_000);
  let folder: string;

  before(() => {
    folder = mkdtempSync(join(tmpdir(), 'odmoe-lint-'));
    for (const path of ['.oxlintrc.json', 'scripts/lint-rules.mjs']) {
      cpSync(join(packageRoot(), path), join(folder, path));
    }
  });

  after(() => rmSync(folder, { recursive: true, force: true }));

  /** The rules that the text breaks if it stands at `path`, one entry for each place. */
  function broken(path: string, text: string): string[] {
    const file = join(folder, path);
    mkdirSync(dirname(file), { recursive: true });
    writeFileSync(file, text);
    const linter = join(packageRoot(), 'node_modules', 'oxlint', 'bin', 'oxlint');
    const { stdout } = spawnSync(process.execPath, [linter, '--format', 'json', path], {
      cwd: folder,
      encoding: 'utf8',
    });
    const { diagnostics } = JSON.parse(stdout) as LintAnswer;
    return diagnostics.map(({ code }) => code).filter((code) => code.startsWith('odmoe'));
  }

  it('find a literal that is spread into another one', () => {
    const found = broken('cli/spread.ts', 'export const a = { ...{ b: 1 } };\nexport const c = [...[1]];\n');
    assert.deepEqual(found, ['odmoe(spread-literals)', 'odmoe(spread-literals)']);
    assert.deepEqual(
      broken('cli/other.ts', 'const b = { c: 1 };\nexport const a = { ...b, d: [...[], 1] };\n').length,
      1,
    );
    assert.deepEqual(broken('cli/whole.ts', 'const b = { c: 1 };\nexport const a = { ...b };\n'), []);
  });

  it('find arithmetic whose bits no standard pins, where answers and decisions are made', () => {
    const text =
      "export const f = (n: number): number => Math.log(n) + Math['exp'](n) + 2 ** n + Math.sqrt(n) + n ** 2;\n";
    assert.deepEqual(broken('shared/base/bits.ts', text), Array(3).fill('odmoe(pinned-arithmetic)'));
    assert.deepEqual(broken('bench/bits.ts', text), []);
  });
});
