import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { packageRoot } from '../../shared/base/files/package-root.js';

interface Ended {
  status: number | null;
  stdout: string;
  stderr: string;
}

function odmoe(...args: string[]): Ended {
  const { status, stdout, stderr } = spawnSync(process.execPath, [join(packageRoot(), 'bin', 'odmoe'), ...args], {
    encoding: 'utf8',
    timeout: 60_000,
  });
  return { status, stdout, stderr };
}

/** All commands of the command line, from the sources: the table of what needs the native library names each. */
function commandNames(): string[][] {
  const source = readFileSync(join(packageRoot(), 'cli', 'client', 'run-command-line.ts'), 'utf8');
  const names = [...source.matchAll(/^ {2}'odmoe ([a-z ]+)':/gm)].map(([, name]) => name ?? '');
  return names.filter((name) => !name.startsWith('bench')).map((name) => name.split(' '));
}

describe('a command with --json that ends with an error', () => {
  it('prints an error object on stdout and words on stderr, also where the usage is wrong', function () {
    this.timeout(300_000);
    const withJson = commandNames().filter((name) => odmoe(...name, '--help').stdout.includes('--json'));
    const files = readdirSync(join(packageRoot(), 'cli', 'commands')).length;
    assert.ok(withJson.length >= files - 4, `only ${withJson.map((name) => name.join(' ')).join(', ')}`);
    for (const name of withJson) {
      const { status, stdout, stderr } = odmoe(...name, '--json', '--no-such-flag');
      assert.equal(status, 2, name.join(' '));
      const { error } = JSON.parse(stdout) as { error: { code: string; message: string; field: string | null } };
      assert.equal(error.code, 'USAGE', name.join(' '));
      assert.ok(error.message !== '' && stderr.includes(error.message), stderr);
    }
  });

  it('names the code of an error that is thrown later, with its own exit status', () => {
    const down = odmoe('down', '--config', '/nowhere/cluster.yaml', '--json');
    assert.equal(down.status, 2);
    const { error } = JSON.parse(down.stdout) as { error: { code: string; message: string } };
    assert.equal(error.code, 'CONFIG_INVALID');
    assert.match(down.stderr, /\/nowhere\/cluster\.yaml.*\[CONFIG_INVALID\]/);
    const inspected = odmoe('inspect', '/nowhere/pack', '--json');
    assert.equal(inspected.status, 3);
    assert.equal(
      (JSON.parse(inspected.stdout) as typeof down & { error: { code: string } }).error.code,
      'MODEL_NOT_FOUND',
    );
  });

  it('prints nothing on stdout without --json, or where --json is no flag', () => {
    assert.equal(odmoe('down', '--config', '/nowhere/cluster.yaml').stdout, '');
    assert.equal(odmoe('up', '--config', '/nowhere/cluster.yaml', '--json').stdout, '');
  });
});
