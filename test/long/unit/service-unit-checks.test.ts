import assert from 'node:assert/strict';
import { execFile, spawnSync } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { type ServiceUnit, unitName, unitText } from '../../../cli/service/unit-text.js';
import { SERVICE_UNIT } from '../../unit/sample-service-unit.js';

const run = promisify(execFile);

/** The exposure 3.0, as --threshold counts it. */
const MOST_EXPOSURE = 30;

/** Programs and groups that are on every machine, so that the check is one of the unit. */
const HERE = { node: process.execPath, program: '/bin/true' };

const UNITS: Record<string, ServiceUnit> = {
  'a worker': { ...SERVICE_UNIT, ...HERE },
  'a worker with all that a unit can have': {
    ...SERVICE_UNIT,
    ...HERE,
    flags: ['--name', 'with "quotes", 100 % and $dollars'],
    readsHomes: true,
    fetchesInto: '/data/my packs',
    deviceGroups: ['video'],
    gpuStarter: '/bin/true',
    tokenPath: '/etc/odmoe/join.token',
    memoryBytes: 5_368_709_120,
  },
  'a main': { ...SERVICE_UNIT, ...HERE, role: 'main', flags: ['--lan'] },
};

function isMissing(command: string): boolean {
  return spawnSync(command, ['--version']).error !== undefined;
}

describe('systemd, offline, of the units that odmoe service install writes:', function () {
  this.timeout(60_000);
  let directory: string;

  before(async function () {
    if (isMissing('systemd-analyze')) {
      console.error('      skipped: systemd-analyze is not installed, so no unit is checked (apt-get install systemd)');
      this.skip();
    }
    directory = await mkdtemp(join(tmpdir(), 'odmoe-units-'));
  });

  after(() => (directory === undefined ? undefined : rm(directory, { recursive: true })));

  async function analyze(unit: ServiceUnit, ...options: string[]): Promise<string> {
    const path = join(directory, unitName(unit.role));
    await writeFile(path, unitText(unit));
    // The service manager of a user has its files there.
    const env = { ...process.env, XDG_RUNTIME_DIR: directory };
    const { stdout, stderr } = await run('systemd-analyze', [...options, path], { env });
    return stdout + stderr;
  }

  for (const [name, unit] of Object.entries(UNITS)) {
    it(`${name} verifies without a word`, async () => {
      assert.equal(await analyze(unit, 'verify'), '');
      assert.equal(await analyze({ ...unit, scope: 'user' }, '--user', 'verify'), '');
    });

    it(`${name} is exposed to 3.0 at most`, async () => {
      const words = await analyze(unit, 'security', '--offline=true', `--threshold=${MOST_EXPOSURE}`, '--no-pager');
      assert.match(words, /Overall exposure level for odmoe-\w+\.service: [0-2]\.\d/);
    });
  }

  it('a fault would be found', async () => {
    const wrong = unitText(SERVICE_UNIT).replace('Restart=on-failure', 'Restart=perhaps\nMisspelt=yes');
    const path = join(directory, 'odmoe-worker.service');
    await writeFile(path, wrong);
    const { stderr } = await run('systemd-analyze', ['verify', path]).catch((thrown: { stderr: string }) => thrown);
    assert.match(stderr, /Misspelt/);
    await writeFile(path, '[Service]\nExecStart=/bin/true\n');
    const loose = ['security', '--offline=true', `--threshold=${MOST_EXPOSURE}`, path];
    await assert.rejects(run('systemd-analyze', loose), { code: 1 });
  });
});
