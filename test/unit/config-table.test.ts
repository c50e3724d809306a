import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { packageRoot } from '../../shared/base/files/package-root.js';
import { parseDaemonFlags } from '../../engine/daemon/parse-daemon-flags.js';
import { ROLES } from '../../shared/settings/setting-choices.js';
import { flagName } from '../../shared/settings/setting.js';
import {
  rowsOf,
  rowsOfNodes,
  rowsOfSection,
  rowsWithFlag,
  SECTIONS,
  SETTINGS,
} from '../../shared/settings/settings-table.js';
import type { SettingsGroup } from '../../shared/settings/settings-table.js';

const GROUPS = Object.keys(SETTINGS) as SettingsGroup[];
const ALL = GROUPS.flatMap((group) => rowsOf(group).map(([name, row]) => ({ place: `${group}.${name}`, row })));

describe('the settings table', () => {
  it('is what cluster.yaml and docs/settings.md show', () => {
    const script = join(packageRoot(), 'scripts', 'generate-settings-reference.mjs');
    const { status, stderr } = spawnSync(process.execPath, [script, '--check'], { encoding: 'utf8' });
    assert.equal(status, 0, stderr);
    for (const name of ['cluster.yaml', join('docs', 'settings.md')]) {
      const shown = readFileSync(join(packageRoot(), name), 'utf8');
      assert.doesNotMatch(shown, /\[object |`(undefined|null|NaN)`/, name);
    }
  });

  it('has defaults that the file accepts as values', () => {
    for (const { place, row } of ALL) {
      if (row.default === null || row.default === undefined) continue;
      // A default that is more than a word or a number stands in the file as it is shown there.
      const written = typeof row.default === 'object' && row.shown !== undefined ? row.shown : row.default;
      const parsed = row.kind.schema.safeParse(written);
      assert.ok(parsed.success, place);
      assert.deepEqual(parsed.data, row.default, place);
    }
  });

  it('has each key once in a section and each flag once for a role', () => {
    const keysOf = [rowsOfNodes(), ...SECTIONS.map((section) => rowsOfSection(section))];
    const named = keysOf.map((rows) => rows.flatMap(({ key }) => (key === null ? [] : [key])));
    const flagged = ROLES.map((role) => rowsWithFlag(role).map(({ flag }) => flagName(flag?.usage ?? '')));
    for (const names of [...named, ...flagged]) assert.equal(new Set(names).size, names.length, names.join(' '));
  });

  it('names a place in the file or a flag in each row', () => {
    for (const { place, row } of ALL) assert.ok(row.key !== null || row.flag !== undefined, place);
  });

  it('gives each flag with a value a parser or choices', () => {
    for (const { place, row } of ALL) {
      if (row.flag?.usage.includes('<') !== true) continue;
      assert.ok(row.kind.choices !== undefined || row.kind.parseFlag !== undefined, place);
    }
  });

  it('gives --help of each role every flag that the role accepts', () => {
    for (const role of ROLES) {
      const request = parseDaemonFlags(role, ['--help']);
      assert.ok(request.kind === 'help');
      for (const { flag } of rowsWithFlag(role)) assert.ok(request.text.includes(`  ${flag?.usage} `), flag?.usage);
    }
  });
});
