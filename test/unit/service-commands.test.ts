import assert from 'node:assert/strict';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import {
  forgetUsedToken,
  installedRoles,
  installService,
  removeServices,
  serviceState,
  tidyToken,
} from '../../cli/service/change-services.js';
import {
  type MachineFacts,
  memoryBytes,
  planService,
  systemdVersionBelow,
  withAbsolutePaths,
} from '../../cli/service/plan-service.js';
import { type ServicePlace, systemPlace } from '../../cli/service/service-place.js';
import { identityDirectory } from '../../engine/trust/identity-files.js';
import { packageRoot } from '../../shared/base/files/package-root.js';

const READABLE = { mode: 0o755, isDirectory: () => true };
const FACTS: MachineFacts = {
  groups: ['root:x:0:', 'video:x:44:anna', 'renderers:x:107:'],
  programs: new Set(),
  statusOf: () => READABLE,
  workingDirectory: '/srv/odmoe',
  systemdVersion: null,
};
const WORKER = { role: 'worker', scope: 'system', flags: [], tokenPath: null, stateHome: '/nowhere' } as const;

describe('the plan of a service', () => {
  it('takes the flags of the daemon, with whole paths, and the Node and odmoe that run now', () => {
    const flags = ['--model', 'packs/demo', '--memory-budget', '2 GiB'];
    const { unit, settings } = planService({ ...WORKER, flags, tokenPath: '/etc/odmoe/join-worker.token' }, FACTS);
    assert.equal(unit.node, process.execPath);
    assert.equal(unit.program, join(packageRoot(), 'bin/odmoe'));
    assert.deepEqual(unit.flags, ['--model', '/srv/odmoe/packs/demo', '--memory-budget', '2 GiB']);
    assert.equal(unit.fetchesInto, '/srv/odmoe/packs/demo');
    assert.equal(unit.tokenPath, '/etc/odmoe/join-worker.token');
    assert.equal(settings.modelPath, '/srv/odmoe/packs/demo');
    assert.deepEqual(withAbsolutePaths('main', ['--model=a=b', '--id', 'model', '--api-keys', '/k'], '/x'), [
      '--model=/x/a=b',
      '--id',
      'model',
      '--api-keys',
      '/k',
    ]);
  });

  it('stops main after its grace and ten seconds', () => {
    const stopMs = (flags: string[]): number =>
      planService({ ...WORKER, role: 'main', flags: ['--model', '/srv/x', ...flags] }, FACTS).unit.stopMs;
    assert.equal(stopMs([]), 40_000);
    assert.equal(stopMs(['--stop-grace-ms', '120000']), 130_000);
  });

  it('bounds memory where the settings do', () => {
    const bound = (...flags: string[]): number | null => memoryBytes(planService({ ...WORKER, flags }, FACTS).settings);
    const gibibyte = 1024 ** 3;
    assert.equal(bound('--memory-budget', '4 GiB'), 5 * gibibyte);
    assert.equal(bound('--memory-budget', '4 GiB', '--host-memory', '8 GiB', '--cache', '1 GiB'), 13 * gibibyte);
    assert.equal(bound('--memory-budget', '4 GiB', '--host-memory', 'auto', '--cache', '1 GiB'), null);
    assert.equal(bound('--memory-budget', '0'), null);
  });

  it('finds the groups and the program by which GPUs are opened', () => {
    const { unit } = planService(WORKER, { ...FACTS, programs: new Set(['/usr/bin/nvidia-modprobe']) });
    assert.deepEqual([unit.deviceGroups, unit.gpuStarter], [['video'], '/usr/bin/nvidia-modprobe']);
    assert.equal(planService(WORKER, FACTS).unit.gpuStarter, null);
  });

  it('knows whether the pause before a restart may grow, by the library of systemd', () => {
    const steps = (systemdVersion: number | null): boolean =>
      planService(WORKER, { ...FACTS, systemdVersion }).unit.hasRestartSteps;
    assert.deepEqual([254, 253, null].map(steps), [true, false, false]);
    const root = mkdtempSync(join(tmpdir(), 'odmoe-systemd-'));
    assert.equal(systemdVersionBelow(root), null);
    for (const name of [
      'aarch64-linux-gnu/systemd/libsystemd-core-999.so',
      'systemd/libsystemd-shared-255.4-1ubuntu8.so',
    ]) {
      mkdirSync(join(root, 'usr/lib', name), { recursive: true });
    }
    assert.equal(systemdVersionBelow(root), 255);
    rmSync(root, { recursive: true });
  });

  it('is refused in words where the user of the service could not read something', () => {
    const closed = (path: string) => (path === '/home/anna' ? { ...READABLE, mode: 0o750 } : READABLE);
    const wanted = { ...WORKER, flags: ['--model', '/home/anna/packs/x'] };
    assert.throws(() => planService(wanted, { ...FACTS, statusOf: closed }), {
      code: 'CONFIG_INVALID',
      message: /the user "odmoe" of the service cannot read \/home\/anna\/packs\/x, because of \/home\/anna: .*--user$/,
    });
    assert.equal(planService(wanted, FACTS).unit.readsHomes, true);
    assert.equal(planService({ ...wanted, scope: 'user' }, { ...FACTS, statusOf: closed }).unit.scope, 'user');
    assert.equal(planService({ ...WORKER, flags: ['--model', '/homes/x'] }, FACTS).unit.readsHomes, false);
  });

  it('is refused with flags that fit no service, or that the daemon would refuse', () => {
    for (const [flags, code, message] of [
      [['--exit-with-parent'], 'USAGE', /no parent/],
      [['--join', 'odmoe1-abc'], 'USAGE', /give --join and --rejoin to odmoe service install itself/],
      [['--rejoin'], 'USAGE', /odmoe service install itself/],
      [['--help'], 'USAGE', /odmoe worker --help/],
      [['--slots', 'many'], 'USAGE', /slots/],
    ] as const) {
      assert.throws(() => planService({ ...WORKER, flags }, FACTS), { code, message }, flags.join(' '));
    }
    assert.throws(() => planService({ ...WORKER, role: 'main' }, FACTS), {
      code: 'CONFIG_INVALID',
      message: /no model/,
    });
  });
});

describe('services below a root', () => {
  let root: string;
  let place: ServicePlace;
  let ran: string[];
  const run = async (program: string, args: readonly string[]): Promise<string> => {
    ran.push([program, ...args].join(' '));
    return 'ActiveState=active\nSubState=running\nStatusText=listens on 0.0.0.0:7602; a=b\nNRestarts=2\n';
  };

  beforeEach(() => {
    root = mkdtempSync(join(tmpdir(), 'odmoe-services-'));
    place = systemPlace(root);
    ran = [];
  });

  afterEach(() => rmSync(root, { recursive: true }));

  const at = (path: string): string => join(root, path);
  const install = (role: 'worker' | 'shadow', token: string | null, rejoin = false): Promise<void> => {
    const flags = role === 'worker' ? ['--id', 'w1'] : ['--model', '/srv/x'];
    const { stateHome } = place;
    const wanted = { ...WORKER, role, flags, stateHome, tokenPath: token === null ? null : place.tokenPath(role) };
    return installService(planService(wanted, FACTS), { token, rejoin }, { place, run, userName: 'root' });
  };

  it('are files that nobody else may write, and a token that nobody else may read', async () => {
    await install('worker', 'odmoe1-secret');
    const unit = readFileSync(at('etc/systemd/system/odmoe-worker.service'), 'utf8');
    assert.match(unit, /^LoadCredential=join:\/etc\/odmoe\/join-worker\.token$/m);
    assert.doesNotMatch(unit, /odmoe1-secret/);
    assert.equal(readFileSync(at('etc/odmoe/join-worker.token'), 'utf8'), 'odmoe1-secret\n');
    const modeOf = (path: string): number => statSync(at(path)).mode & 0o777;
    assert.equal(modeOf('etc/odmoe/join-worker.token'), 0o600);
    assert.equal(modeOf('etc/systemd/system/odmoe-worker.service'), 0o644);
    assert.match(readFileSync(at('etc/sysusers.d/odmoe.conf'), 'utf8'), /^u odmoe /m);
    assert.deepEqual(ran, [
      `systemd-sysusers --root=${root} odmoe.conf`,
      `systemctl --root=${root} enable odmoe-worker.service`,
    ]);
  });

  /** What the worker has after it has joined. */
  function joined(): string {
    const identity = identityDirectory(at('var/lib/odmoe/home'), 'w1');
    mkdirSync(identity, { recursive: true });
    writeFileSync(join(identity, 'node.crt'), '');
    return identity;
  }

  it('lose a token that was left behind when somebody looks after them', async () => {
    const path = at('etc/odmoe/join-worker.token');
    assert.equal(await tidyToken('worker', place, true), 'none');
    await install('worker', 'odmoe1-secret');
    assert.equal(await tidyToken('worker', place, true), 'kept');
    joined();
    assert.equal(await tidyToken('worker', place, false), 'unread');
    assert.ok(existsSync(path));
    assert.equal(await tidyToken('worker', place, true), 'removed');
    assert.ok(!existsSync(path));
    // An installation without a token has no use for the one before.
    await install('worker', 'odmoe1-secret');
    await install('worker', null);
    assert.ok(!existsSync(path));
  });

  it('join anew by --rejoin alone', async () => {
    const identity = joined();
    await install('worker', 'odmoe1-secret');
    assert.ok(existsSync(identity));
    await install('worker', 'odmoe1-secret', true);
    assert.ok(!existsSync(identity));
    assert.equal(await forgetUsedToken({ role: 'worker', id: 'w1' }, place), false);
  });

  it('forget the token once the daemon has joined', async () => {
    await install('worker', 'odmoe1-secret');
    const worker = { role: 'worker', id: 'w1' } as const;
    assert.equal(await forgetUsedToken(worker, place), false);
    joined();
    assert.equal(await forgetUsedToken({ ...worker, id: 'w2' }, place), false);
    assert.equal(await forgetUsedToken(worker, place), true);
    assert.ok(!existsSync(at('etc/odmoe/join-worker.token')));
    assert.equal(await forgetUsedToken(worker, place), true);
  });

  it('are removed one by one, and what they have stored by --purge alone', async () => {
    await install('worker', 'odmoe1-secret');
    await install('shadow', null);
    mkdirSync(at('var/lib/odmoe/home'), { recursive: true });
    writeFileSync(at('etc/passwd'), 'root:x:0:0\nodmoe:x:999:999\n');
    assert.deepEqual(await installedRoles(place), ['shadow', 'worker']);
    ran = [];
    const host = { place, run, userName: 'root' };
    const gone = await removeServices(['worker'], true, host);
    assert.deepEqual(gone, [at('etc/systemd/system/odmoe-worker.service'), at('etc/odmoe/join-worker.token')]);
    assert.ok(existsSync(at('var/lib/odmoe/home')), 'the shadow still needs it');
    assert.deepEqual(await removeServices(['shadow'], false, host), [
      at('etc/systemd/system/odmoe-shadow.service'),
      at('etc/sysusers.d/odmoe.conf'),
    ]);
    assert.ok(existsSync(at('var/lib/odmoe/home')));
    await install('shadow', null);
    ran = [];
    await removeServices(['shadow'], true, host);
    assert.ok(!existsSync(at('var/lib/odmoe')));
    assert.deepEqual(ran, [`systemctl --root=${root} disable odmoe-shadow.service`, `userdel --root ${root} odmoe`]);
  });

  it('say what systemd and the daemon say', async () => {
    const host = { place: { ...place, scope: 'user' as const }, run, userName: 'anna' };
    assert.deepEqual(await serviceState('worker', host), {
      unit: 'odmoe-worker.service',
      state: 'active (running)',
      words: 'listens on 0.0.0.0:7602; a=b',
      restarts: 2,
      isActive: true,
      finalStatus: null,
    });
    assert.match(ran[0] ?? '', /^systemctl --user show .*odmoe-worker\.service$/);
  });

  it('say for which exit status systemd starts a daemon no more', async () => {
    const shown = async (state: string, status: number, code = 1): Promise<number | null> => {
      const text = `ActiveState=${state}\nSubState=x\nExecMainCode=${code}\nExecMainStatus=${status}\n`;
      const show = () => Promise.resolve(text);
      return (await serviceState('worker', { place, run: show, userName: 'root' })).finalStatus;
    };
    assert.deepEqual([await shown('failed', 4), await shown('failed', 2)], [4, 2]);
    // Ended by the signal 4, by a failure that may mend, started again, stopped.
    const others = [shown('failed', 4, 2), shown('failed', 3), shown('activating', 4), shown('inactive', 0)];
    assert.deepEqual(await Promise.all(others), [null, null, null, null]);
  });
});
