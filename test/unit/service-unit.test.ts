import assert from 'node:assert/strict';
import { SERVICE_UNIT as UNIT } from './sample-service-unit.js';
import { ERROR_KINDS, type ErrorKind } from '../../shared/base/errors/registry.js';
import {
  flagsOfUnit,
  quotedWord,
  type ServiceUnit,
  SYSUSERS_TEXT,
  unitName,
  unitText,
} from '../../cli/service/unit-text.js';

function valuesOf(unit: Partial<ServiceUnit>, key: string): string[] {
  const lines = unitText({ ...UNIT, ...unit }).split('\n');
  return lines.filter((line) => line.startsWith(`${key}=`)).map((line) => line.slice(key.length + 1));
}

describe('the text of a service', () => {
  it('starts the daemon with its flags, and tells systemd when it is ready', () => {
    const program = '/usr/bin/node /usr/lib/node_modules/odmoe/bin/odmoe';
    assert.deepEqual(valuesOf({}, 'ExecStart'), [`${program} worker --memory-budget "4 GiB"`]);
    assert.deepEqual(valuesOf({ role: 'main', flags: [] }, 'ExecStart'), [`${program} main`]);
    assert.deepEqual(valuesOf({}, 'Type'), ['notify']);
    assert.deepEqual(valuesOf({ role: 'shadow' }, 'Description'), ['odmoe shadow']);
    assert.equal(unitName('shadow'), 'odmoe-shadow.service');
  });

  it('restarts after failures for ever, and never after bad configuration or a removal', () => {
    assert.deepEqual(valuesOf({}, 'Restart'), ['on-failure']);
    const { USAGE, CONFIG_INVALID, JOIN_TOKEN_INVALID, NODE_REMOVED, PORT_UNAVAILABLE, INTERNAL } = ERROR_KINDS;
    const [finals = ''] = valuesOf({}, 'RestartPreventExitStatus');
    const isFinal = ({ exitStatus }: ErrorKind): boolean => finals.split(' ').includes(String(exitStatus));
    assert.deepEqual([USAGE, CONFIG_INVALID, JOIN_TOKEN_INVALID, NODE_REMOVED].map(isFinal), [true, true, true, true]);
    assert.deepEqual([PORT_UNAVAILABLE, INTERNAL].map(isFinal), [false, false]);
    assert.equal(finals, '2 4');
    assert.deepEqual(valuesOf({}, 'StartLimitIntervalSec'), ['0']);
  });

  it('is not started where Node or odmoe is not there any more: a start would be tried for ever', () => {
    const installed = ['/usr/bin/node', '/usr/lib/node_modules/odmoe/bin/odmoe'];
    for (const scope of ['system', 'user'] as const) {
      assert.deepEqual(valuesOf({ scope }, 'ConditionPathExists'), installed);
    }
    assert.deepEqual(valuesOf({ node: '/opt/my 5%/node' }, 'ConditionPathExists')[0], '/opt/my 5%%/node');
  });

  it('waits longer and longer between restarts, where systemd can', () => {
    assert.deepEqual(valuesOf({}, 'RestartSec'), ['5']);
    for (const key of ['RestartSteps', 'RestartMaxDelaySec']) assert.deepEqual(valuesOf({}, key), [], key);
    assert.deepEqual(valuesOf({ hasRestartSteps: true }, 'RestartSteps'), ['5']);
    assert.deepEqual(valuesOf({ hasRestartSteps: true }, 'RestartMaxDelaySec'), ['60']);
  });

  it('gives the stop its time, and the memory its bound', () => {
    assert.deepEqual(valuesOf({ stopMs: 40_001 }, 'TimeoutStopSec'), ['41']);
    assert.deepEqual(valuesOf({}, 'MemoryMax'), []);
    assert.deepEqual(valuesOf({ memoryBytes: 5_368_709_120 }, 'MemoryMax'), ['5368709120']);
  });

  it('has nothing that kills Node, hides GPUs or waits for a lease', () => {
    for (const scope of ['system', 'user'] as const) {
      const text = unitText({ ...UNIT, scope, deviceGroups: ['video'], gpuStarter: '/usr/bin/nvidia-modprobe' });
      const lethal =
        /MemoryDenyWriteExecute|PrivateDevices|ProtectClock|DeviceAllow|DevicePolicy|ProcSubset|network-online/;
      assert.doesNotMatch(text, lethal);
      assert.doesNotMatch(text, /PrivateNetwork|~@resources/);
      assert.match(text, /RestrictAddressFamilies=.*AF_NETLINK/);
      assert.match(text, /SystemCallFilter=@system-service io_uring_setup/);
    }
  });

  it('reads home directories only where something of the daemon lies there', () => {
    assert.deepEqual(valuesOf({}, 'ProtectHome'), ['yes']);
    assert.deepEqual(valuesOf({ readsHomes: true }, 'ProtectHome'), ['read-only']);
  });

  it('may write into the directory into which it fetches', () => {
    assert.deepEqual(valuesOf({}, 'ReadWritePaths'), []);
    assert.deepEqual(valuesOf({ fetchesInto: '/data/my packs' }, 'ReadWritePaths'), ['"-/data/my packs"']);
  });

  it('opens GPUs by their groups, and has their files made', () => {
    assert.deepEqual(valuesOf({ deviceGroups: ['video', 'render'] }, 'SupplementaryGroups'), ['video render']);
    assert.deepEqual(valuesOf({}, 'SupplementaryGroups'), []);
    const gpuStarter = '/usr/bin/nvidia-modprobe';
    assert.deepEqual(valuesOf({ gpuStarter }, 'ExecStartPre'), ['-+/usr/bin/nvidia-modprobe -u -c 0']);
    assert.deepEqual(valuesOf({ gpuStarter, scope: 'user' }, 'ExecStartPre'), []);
  });

  it('hands the token over as a credential, which may be gone after joining', () => {
    assert.deepEqual(valuesOf({}, 'LoadCredential'), []);
    const tokenPath = '/etc/odmoe/join.token';
    assert.deepEqual(valuesOf({ tokenPath }, 'LoadCredential'), ['join:/etc/odmoe/join.token']);
    assert.deepEqual(valuesOf({ tokenPath }, 'SetCredential'), ['join:used']);
  });

  it('of one user has no user, no directories of the system, and starts with the session of that user', () => {
    assert.deepEqual(valuesOf({}, 'User'), ['odmoe']);
    assert.deepEqual(valuesOf({}, 'WantedBy'), ['multi-user.target']);
    const user = { scope: 'user' } as const;
    for (const key of ['User', 'Group', 'StateDirectory', 'Environment', 'ProtectSystem', 'CapabilityBoundingSet']) {
      assert.deepEqual(valuesOf(user, key), [], key);
    }
    assert.deepEqual(valuesOf(user, 'WantedBy'), ['default.target']);
    assert.deepEqual(valuesOf(user, 'NoNewPrivileges'), ['yes']);
  });

  it('quotes words as systemd reads them', () => {
    for (const [word, quoted] of [
      ['--id', '--id'],
      ['/packs/my model', '"/packs/my model"'],
      ['50%', '"50%%"'],
      ['$HOME', '"$$HOME"'],
      ['a"b\\c', '"a\\"b\\\\c"'],
      ["it's", `"it's"`],
      ['', '""'],
      ['a;b', '"a;b"'],
      ['two\nlines', '"two\\nlines"'],
    ] as const) {
      assert.equal(quotedWord(word), quoted);
    }
  });

  it('has the flags that it was made with', () => {
    for (const flags of [[], ['--id', 'w1'], ['--name', 'a "b" \\ 100 % $x $$ %% \n\t;', '', "it's", 'C:\\new']]) {
      assert.deepEqual(flagsOfUnit(unitText({ ...UNIT, flags })), flags);
    }
    assert.deepEqual(flagsOfUnit('[Service]\n'), []);
  });

  it('comes with the user that it runs as', () => {
    assert.match(SYSUSERS_TEXT, /^u odmoe - "odmoe daemons" \/var\/lib\/odmoe$/m);
  });
});
