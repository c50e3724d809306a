import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir, userInfo } from 'node:os';
import { dirname, join } from 'node:path';
import {
  forgetUsedToken,
  installedRoles,
  installService,
  removeServices,
  serviceState,
  tidyToken,
} from '../../cli/service/change-services.js';
import {
  factsOfMachine,
  type MachineFacts,
  memoryBytes,
  planService,
  systemdVersionBelow,
  withAbsolutePaths,
} from '../../cli/service/plan-service.js';
import { type ServicePlace, systemPlace } from '../../cli/service/service-place.js';
import { installCommand } from '../../cli/commands/service.js';
import { installedFlags, purgeFetchedPacks } from '../../cli/service/purge-services.js';
import { serveHealth } from '../../engine/daemon/health-socket.js';
import { DaemonReport } from '../../engine/daemon/daemon-report.js';
import { identityDirectory } from '../../engine/trust/identity-files.js';
import { packageRoot } from '../../shared/base/files/package-root.js';

const READABLE = { mode: 0o755, isDirectory: () => true };
const FACTS: MachineFacts = {
  root: '/',
  groups: ['root:x:0:', 'video:x:44:anna', 'renderers:x:107:'],
  programs: new Set(),
  statusOf: () => READABLE,
  workingDirectory: '/srv/odmoe',
  node: '/opt/node/bin/node',
  program: '/opt/odmoe/bin/odmoe',
  systemdVersion: null,
};
const WORKER = { role: 'worker', scope: 'system', flags: [], tokenPath: null, stateHome: '/nowhere' } as const;

describe('the plan of a service', () => {
  it('takes the flags of the daemon, with whole paths, and the Node and odmoe that run now', () => {
    const flags = ['--model', 'packs/demo', '--memory-budget', '2 GiB'];
    const { unit, settings } = planService({ ...WORKER, flags, tokenPath: '/etc/odmoe/join-worker.token' }, FACTS);
    assert.deepEqual([unit.node, unit.program], [FACTS.node, FACTS.program]);
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

  it('has the configuration below the root and not that of this machine', () => {
    const root = mkdtempSync(join(tmpdir(), 'odmoe-image-'));
    chmodSync(root, 0o755);
    const put = (path: string, text: string): void => {
      mkdirSync(dirname(join(root, path)), { recursive: true });
      writeFileSync(join(root, path), text);
    };
    put('usr/bin/node', '');
    put('usr/lib/node_modules/odmoe/bin/odmoe', '');
    // A file of this machine has the path, too, and is no configuration.
    const own = '/etc/passwd';
    put(own, 'cluster: there\nmodel: pack\n');
    const plan = (path: string): ReturnType<typeof planService> =>
      planService({ ...WORKER, flags: ['--config', path] }, factsOfMachine(root));
    const { unit, settings } = plan(own);
    assert.deepEqual([settings.cluster, settings.modelPath], ['there', '/etc/pack']);
    assert.deepEqual(unit.flags, ['--config', own], 'the service itself has no such root');
    put('etc/odmoe/wrong.yaml', 'cluster: [1]\n');
    assert.throws(() => plan('/etc/odmoe/wrong.yaml'), {
      code: 'CONFIG_INVALID',
      message: /etc\/odmoe\/wrong\.yaml:1/,
    });
    assert.throws(() => plan('/etc/odmoe/none.yaml'), {
      code: 'CONFIG_INVALID',
      message: /cannot read the configuration \/etc\/odmoe\/none\.yaml of the system in .*odmoe-image-/,
    });
    const outside = mkdtempSync(join(tmpdir(), 'odmoe-outside-'));
    writeFileSync(join(outside, 'cluster.yaml'), 'cluster: here\n');
    symlinkSync(join(outside, 'cluster.yaml'), join(root, 'etc/odmoe/linked.yaml'));
    assert.throws(() => plan('/etc/odmoe/linked.yaml'), {
      code: 'CONFIG_INVALID',
      message: /a link leads to .*odmoe-outside-.*, which is not of that system/,
    });
    for (const directory of [root, outside]) rmSync(directory, { recursive: true });
  });

  it('is one of the system below the root, with its groups, its Node and its odmoe', () => {
    const root = mkdtempSync(join(tmpdir(), 'odmoe-image-'));
    chmodSync(root, 0o755);
    const put = (path: string, text: string): void => {
      mkdirSync(dirname(join(root, path)), { recursive: true });
      writeFileSync(join(root, path), text);
    };
    assert.throws(() => planService(WORKER, factsOfMachine(root)), {
      code: 'CONFIG_INVALID',
      message: /has no Node at (?!.*( \/\S+node),.*\1[,:]).*: install it there first: .*docs\/packages\.md/,
    });
    put('usr/local/bin/node', '');
    assert.throws(() => planService(WORKER, factsOfMachine(root)), {
      code: 'CONFIG_INVALID',
      message: /has no odmoe at/,
    });
    put('usr/lib/node_modules/odmoe/bin/odmoe', '');
    put('usr/bin/nvidia-modprobe', '');
    put('etc/group', 'render:x:4711:\n');
    const { unit } = planService(WORKER, factsOfMachine(root));
    assert.deepEqual([unit.node, unit.program], ['/usr/local/bin/node', '/usr/lib/node_modules/odmoe/bin/odmoe']);
    assert.deepEqual([unit.deviceGroups, unit.gpuStarter], [['render'], '/usr/bin/nvidia-modprobe']);
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

  it('is refused in words with paths that the service could not use', () => {
    const plan = (flags: string[], facts: Partial<MachineFacts> = {}, scope: 'system' | 'user' = 'system') =>
      planService({ ...WORKER, scope, flags }, { ...FACTS, ...facts }).unit;
    for (const path of ['/tmp/x', '/var/tmp/x']) {
      const message = new RegExp(`^${path}: a service of the system has a /tmp and a /var/tmp of its own`);
      assert.throws(() => plan(['--model', path]), { code: 'CONFIG_INVALID', message });
      assert.equal(plan(['--model', path], {}, 'user').fetchesInto, path);
    }
    const has = (...paths: string[]) => ({ statusOf: (at: string) => (paths.includes(at) ? READABLE : null) });
    assert.equal(plan(['--model', '/home/new'], has('/home')).readsHomes, true);
    assert.throws(() => plan(['--model', '/srv/typo/new'], has('/srv')), {
      code: 'CONFIG_INVALID',
      message: '/srv/typo/new: /srv/typo does not exist: make it, or correct --model',
    });
    const closed = (path: string) => (path === '/srv' ? { ...READABLE, mode: 0o750 } : null);
    assert.throws(() => plan(['--model', '/srv/new'], { statusOf: closed }), { message: /because of \/srv:/ });
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

describe('odmoe service install', function () {
  this.timeout(60_000);
  const printed = (...words: string[]): string =>
    execFileSync(
      process.execPath,
      [join(packageRoot(), 'bin/odmoe'), 'service', 'install', '--user', '--dry-run', ...words],
      {
        encoding: 'utf8',
        stdio: ['ignore', 'pipe', 'pipe'],
      },
    );

  it('takes flags without a role for a worker', () => {
    assert.match(printed('--', '--cluster', 'home'), /^ExecStart=.* worker --cluster home$/m);
    assert.match(
      printed('shadow', '--', '--cluster', 'home', '--model', '/srv/x'),
      /^ExecStart=.* shadow --cluster home --model/m,
    );
    assert.throws(() => printed('drone'), /Allowed choices are main, shadow, worker/);
  });
});

describe('the command by which a service was installed', () => {
  const system = { scope: 'system' } as const;

  it('is one that a shell takes with the same flags', () => {
    const flags = [
      '--cluster',
      'home',
      '--memory-budget',
      '8 GiB',
      '--model',
      "/srv/anna's pack",
      '--quality',
      'sliced(8,4)',
    ];
    const command = installCommand('worker', flags, system);
    assert.match(command, /^sudo odmoe service install worker -- --cluster home --memory-budget '8 GiB' --model /);
    const words = execFileSync('sh', ['-c', `printf '%s\\n' ${command}`], { encoding: 'utf8' });
    assert.deepEqual(words.trimEnd().split('\n'), ['sudo', 'odmoe', 'service', 'install', 'worker', '--', ...flags]);
    assert.equal(installCommand('main', [], { scope: 'user' }), 'odmoe service install --user main');
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
    assert.deepEqual(await installedFlags('worker', place), ['--id', 'w1']);
    assert.deepEqual(await installedFlags('shadow', place), []);
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

  it('have a new directory to fetch into, of the user of the services', async () => {
    const wanted = { ...WORKER, flags: ['--model', '/srv/new'] };
    mkdirSync(at('etc'));
    const { uid, gid } = userInfo();
    // Only root may give files to somebody else.
    const owner = uid === 0 ? [4711, 4712] : [uid, gid];
    writeFileSync(
      at('etc/passwd'),
      `root:x:0:0\nodmoe:x:${owner.join(':')}:odmoe daemons:/var/lib/odmoe:/usr/sbin/nologin\n`,
    );
    const joining = { token: null, rejoin: false };
    const host = { place, run, userName: 'root' };
    await installService(planService(wanted, FACTS), joining, host);
    const ownerOf = (path: string): number[] => [statSync(at(path)).uid, statSync(at(path)).gid];
    assert.deepEqual(ownerOf('srv/new'), owner);
    mkdirSync(at('srv/old'));
    writeFileSync(at('srv/old/manifest.json'), '');
    await installService(planService({ ...WORKER, flags: ['--model', '/srv/old'] }, FACTS), joining, host);
    assert.deepEqual(ownerOf('srv/old'), [uid, gid]);
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
    const gone = await removeServices(['worker'], 'own', host);
    assert.deepEqual(gone, [at('etc/systemd/system/odmoe-worker.service'), at('etc/odmoe/join-worker.token')]);
    assert.ok(existsSync(at('var/lib/odmoe/home')), 'the shadow still needs it');
    assert.deepEqual(await removeServices(['shadow'], 'nothing', host), [
      at('etc/systemd/system/odmoe-shadow.service'),
      at('etc/sysusers.d/odmoe.conf'),
    ]);
    assert.ok(existsSync(at('var/lib/odmoe/home')));
    await install('shadow', null);
    ran = [];
    mkdirSync(at('var/lib/odmoe/home/authority'));
    await assert.rejects(removeServices(['shadow'], 'own', host), {
      code: 'USAGE',
      message: /authority of cluster "home".*--everything/,
    });
    assert.deepEqual([ran, await installedRoles(place)], [[], ['shadow']]);
    await removeServices(['shadow'], 'everything', host);
    assert.ok(!existsSync(at('var/lib/odmoe')));
    assert.deepEqual(ran, [`systemctl --root=${root} disable odmoe-shadow.service`, `userdel --root ${root} odmoe`]);
  });

  it('of a user take what is theirs alone with them, and everything when asked twice', async () => {
    const [stateHome, dataDirectory] = [at('state'), at('share/odmoe')];
    const ownDirectories = [join(stateHome, 'odmoe'), dataDirectory];
    const unitDirectory = at('systemd/user');
    const tokenPath = (role: string): string => at(`credentials/${role}/join`);
    const user: ServicePlace = {
      scope: 'user',
      root: '/',
      unitDirectory,
      sysusersPath: null,
      ownDirectories,
      stateHome,
      dataDirectory,
      tokenPath,
    };
    const host = { place: user, run, userName: 'anna' };
    const wanted = { ...WORKER, scope: 'user', flags: ['--id', 'w1'], stateHome } as const;
    await installService(planService(wanted, FACTS), { token: null, rejoin: false }, host);
    for (const name of ['authority', 'nodes/w1', 'nodes/w2'])
      mkdirSync(join(stateHome, 'odmoe/home', name), { recursive: true });
    for (const id of ['w1', 'w2']) writeFileSync(join(stateHome, 'odmoe/home/nodes', id, 'node.crt'), '');
    const packs = ['0123456789abcdef', '0123456789abcdef-2', 'owner--model--0123456789ab', 'demo'];
    for (const name of packs) mkdirSync(join(dataDirectory, 'packs', name), { recursive: true });
    mkdirSync(join(stateHome, 'odmoe/home/prefix-store'));
    const gone = await removeServices(['worker'], 'own', host);
    assert.deepEqual(gone, [
      join(unitDirectory, 'odmoe-worker.service'),
      join(stateHome, 'odmoe/home/nodes/w1'),
      join(stateHome, 'odmoe/home/prefix-store'),
      join(dataDirectory, 'packs/0123456789abcdef'),
      join(dataDirectory, 'packs/0123456789abcdef-2'),
    ]);
    const isThere = (path: string): boolean => existsSync(path);
    assert.deepEqual(gone.filter(isThere), []);
    assert.ok(['authority', 'nodes/w2'].every((name) => isThere(join(stateHome, 'odmoe/home', name))));
    assert.ok(packs.slice(2).every((name) => isThere(join(dataDirectory, 'packs', name))));
    await removeServices([], 'everything', host);
    assert.deepEqual(ownDirectories.map(isThere), [false, false]);
  });

  it('of a user leave fetched packs to a daemon that still runs', async () => {
    const place: ServicePlace = { ...systemPlace(root), scope: 'user', root: '/' };
    const pack = at('var/lib/odmoe/packs/0123456789abcdef');
    mkdirSync(pack, { recursive: true });
    const daemon = { id: 'w2', role: 'worker', stateDirectory: at('var/lib/odmoe/home') } as const;
    const stop = await serveHealth(daemon, new DaemonReport());
    assert.deepEqual(await purgeFetchedPacks(place), []);
    stop();
    assert.deepEqual(await purgeFetchedPacks(place), [pack]);
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
