import assert from 'node:assert/strict';
import { availableMemoryBytes, leftInGroup, ownGroups } from '../../shared/base/runtime/available-memory.js';

const MB = 1024 ** 2;
const STAT = `anon ${300 * MB}\nfile ${150 * MB}\nactive_file ${100 * MB}\ninactive_file ${40 * MB}\n`;

describe('the memory available to a process', () => {
  it('is the rest of its control group, which counts file pages as free', () => {
    const group = { max: `${1000 * MB}\n`, current: `${460 * MB}\n`, stat: STAT };
    assert.equal(leftInGroup(group, 'v2'), 680 * MB);
    assert.equal(leftInGroup({ ...group, max: 'max\n' }, 'v2'), Infinity);
    assert.equal(leftInGroup({ ...group, max: `${100 * MB}` }, 'v2'), 0);
  });

  it('is bounded by its own control group and by all groups around it', () => {
    const folders = (text: string): string[] => ownGroups(text).map(({ folder, version }) => `${version} ${folder}`);
    assert.deepEqual(folders('1:cpu:/x\n0::/system.slice/odmoe.service\n'), [
      'v2 /sys/fs/cgroup/system.slice/odmoe.service',
      'v2 /sys/fs/cgroup/system.slice',
      'v2 /sys/fs/cgroup',
    ]);
    assert.deepEqual(folders('0::/\n'), ['v2 /sys/fs/cgroup']);
    assert.deepEqual(folders('3:cpu,cpuacct:/x\n'), []);
  });

  it('is read from control groups of version 1, alone or beside version 2', () => {
    const folders = (text: string): string[] => ownGroups(text).map(({ folder, version }) => `${version} ${folder}`);
    assert.deepEqual(folders('4:memory:/old\n'), ['v1 /sys/fs/cgroup/memory/old', 'v1 /sys/fs/cgroup/memory']);
    assert.deepEqual(folders('4:hugetlb,memory:/\n0::/\n'), ['v2 /sys/fs/cgroup', 'v1 /sys/fs/cgroup/memory']);
    const stat = `active_file 1\ninactive_file 1\ntotal_active_file ${20 * MB}\ntotal_inactive_file ${10 * MB}\n`;
    const files: Record<string, string> = {
      '/proc/self/cgroup': '7:memory:/docker/x\n',
      '/sys/fs/cgroup/memory/memory.limit_in_bytes': '9223372036854771712\n',
      '/sys/fs/cgroup/memory/memory.usage_in_bytes': `${900 * MB}\n`,
      '/sys/fs/cgroup/memory/memory.stat': stat,
      '/sys/fs/cgroup/memory/docker/x/memory.limit_in_bytes': `${300 * MB}\n`,
      '/sys/fs/cgroup/memory/docker/x/memory.usage_in_bytes': `${290 * MB}\n`,
      '/sys/fs/cgroup/memory/docker/x/memory.stat': stat,
    };
    assert.equal(
      availableMemoryBytes(
        (path) => files[path] ?? null,
        () => 800 * MB,
      ),
      40 * MB,
    );
  });

  it('is the smallest of the limits of its groups and of the system', () => {
    const files: Record<string, string> = {
      '/proc/self/cgroup': '0::/a/b\n',
      '/sys/fs/cgroup/a/memory.max': `${500 * MB}`,
      '/sys/fs/cgroup/a/memory.current': `${499 * MB}`,
      '/sys/fs/cgroup/a/memory.stat': 'active_file 0\n',
      '/sys/fs/cgroup/a/b/memory.max': 'max',
      '/sys/fs/cgroup/a/b/memory.current': '5',
      '/sys/fs/cgroup/a/b/memory.stat': '',
    };
    assert.equal(
      availableMemoryBytes(
        (path) => files[path] ?? null,
        () => 2 * MB,
      ),
      MB,
    );
    assert.equal(
      availableMemoryBytes(
        () => null,
        () => 2 * MB,
      ),
      2 * MB,
    );
  });
});
