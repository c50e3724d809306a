import assert from 'node:assert/strict';
import { availableMemoryBytes, leftInGroup, ownGroups } from '../../shared/runtime/available-memory.js';

const MB = 1024 ** 2;
const STAT = `anon ${300 * MB}\nfile ${150 * MB}\nactive_file ${100 * MB}\ninactive_file ${40 * MB}\n`;

describe('memory that a process could take', () => {
  it('is what its control group leaves, whose file pages make room', () => {
    const group = { max: `${1000 * MB}\n`, current: `${460 * MB}\n`, stat: STAT };
    assert.equal(leftInGroup(group), 680 * MB);
    assert.equal(leftInGroup({ ...group, max: 'max\n' }), Infinity);
    assert.equal(leftInGroup({ ...group, max: `${100 * MB}` }), 0);
  });

  it('looks at the group and at all around it', () => {
    assert.deepEqual(ownGroups('1:cpu:/x\n0::/system.slice/odmoe.service\n'), [
      '/sys/fs/cgroup/system.slice/odmoe.service',
      '/sys/fs/cgroup/system.slice',
      '/sys/fs/cgroup',
    ]);
    assert.deepEqual(ownGroups('0::/\n'), ['/sys/fs/cgroup']);
    assert.deepEqual(ownGroups('4:memory:/old\n'), []);
  });

  it('is the least of what groups and the system leave', () => {
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
