import assert from 'node:assert/strict';
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { keptIds } from '../../shared/settings/kept-ids.js';
import { defaultClusterConfig } from '../../shared/settings/load-cluster-config.js';
import { resolveNodeSettings } from '../../shared/settings/resolve-node-settings.js';
import type { RoleSetting } from '../../shared/settings/setting-choices.js';
import { isIdentifier } from '../../shared/base/text/identifier.js';

describe('the ids that hosts give their daemons', () => {
  let directory: string;

  beforeEach(() => {
    directory = mkdtempSync(join(tmpdir(), 'odmoe-ids-'));
  });

  afterEach(() => rmSync(directory, { recursive: true }));

  /** The id of a daemon on the box with this directory of states. All boxes have one name. */
  function idOn(box: string, role: RoleSetting, flags = {}, hostname = 'jetson'): string {
    const stateHome = join(directory, box);
    const host = { hostname, addresses: [], processId: 42, stateHome, ids: keptIds(stateHome, true) };
    return resolveNodeSettings(role, defaultClusterConfig(), { model: 'p', ...flags }, host).id;
  }

  it('differ between two boxes of one name, and stay', () => {
    const [first, second] = ['a', 'b'].map((box) => idOn(box, 'worker'));
    assert.match(first ?? '', /^worker-jetson-[0-9a-z]{5}-7602$/);
    assert.notEqual(first, second);
    assert.equal(idOn('a', 'worker'), first);
    assert.equal(idOn('b', 'worker'), second);
    const mark = first?.split('-')[2] ?? '';
    assert.equal(idOn('a', 'shadow'), `shadow-jetson-${mark}`, 'the host has the mark, not the daemon');
    assert.equal(idOn('a', 'worker', { port: 7610 }), `worker-jetson-${mark}-7610`);
    assert.deepEqual(readdirSync(join(directory, 'a', 'odmoe')), ['.host-mark']);
  });

  it('are those that users give, and main, which is alone, needs no mark', () => {
    assert.equal(idOn('a', 'worker', { id: 'attic' }), 'attic');
    assert.equal(idOn('a', 'main'), 'main-jetson');
    assert.ok(!existsSync(join(directory, 'a')), 'nothing was made');
  });

  it('are names, however long that of the host is', () => {
    assert.ok(isIdentifier(idOn('a', 'worker', { port: 65535 }, 'x'.repeat(200))));
  });

  it('stay as they were for a daemon that has joined under one without a mark', () => {
    mkdirSync(join(directory, 'a', 'odmoe', 'home', 'nodes', 'worker-jetson-7602'), { recursive: true });
    assert.equal(idOn('a', 'worker'), 'worker-jetson-7602');
    assert.match(idOn('a', 'worker', { port: 7603 }), /^worker-jetson-[0-9a-z]{5}-7603$/);
  });

  it('have no mark where it cannot be kept, and a new one where it is damaged is not made', () => {
    writeFileSync(join(directory, 'file'), '');
    assert.equal(idOn('file', 'worker'), 'worker-jetson-7602');
    mkdirSync(join(directory, 'a', 'odmoe'), { recursive: true });
    writeFileSync(join(directory, 'a', 'odmoe', '.host-mark'), '../x\n');
    assert.equal(idOn('a', 'worker'), 'worker-jetson-7602');
  });

  it('are read without being made', () => {
    assert.equal(keptIds(join(directory, 'a'), false).mark(), '');
    assert.ok(!existsSync(join(directory, 'a')));
    const made = keptIds(join(directory, 'a'), true).mark();
    assert.equal(keptIds(join(directory, 'a'), false).mark(), made);
    assert.equal(readFileSync(join(directory, 'a', 'odmoe', '.host-mark'), 'utf8'), `${made}\n`);
  });
});
