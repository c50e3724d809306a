import assert from 'node:assert/strict';
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { keptIds } from '../../shared/settings/kept-ids.js';
import { defaultClusterConfig } from '../../shared/settings/load-cluster-config.js';
import { resolveNodeSettings } from '../../shared/settings/resolve-node-settings.js';
import type { RoleSetting } from '../../shared/settings/setting-choices.js';
import { isIdentifier } from '../../shared/base/text/identifier.js';

describe('the ids that hosts give their daemons', () => {
  let directory: string;
  let said: string[];

  beforeEach(() => {
    said = [];
    directory = mkdtempSync(join(tmpdir(), 'odmoe-ids-'));
  });

  afterEach(() => rmSync(directory, { recursive: true }));

  /** The id of a daemon on the box with this directory of states. All boxes have one name. */
  function idOn(box: string, role: RoleSetting, flags = {}, hostname = 'jetson'): string {
    const stateHome = join(directory, box);
    const ids = keptIds(stateHome, true, (line) => void said.push(line));
    const host = { hostname, addresses: [], processId: 42, stateHome, ids };
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

  it('have no mark where it cannot be kept', () => {
    writeFileSync(join(directory, 'file'), '');
    assert.equal(idOn('file', 'worker'), 'worker-jetson-7602');
    assert.deepEqual(said, []);
  });

  for (const damaged of ['', '../x\n', 'abc', null]) {
    it(`stay where the mark is ${damaged === null ? 'lost' : `damaged (${JSON.stringify(damaged)})`}: joined ids have it`, () => {
      const home = join(directory, 'a', 'odmoe');
      const path = join(home, '.host-mark');
      mkdirSync(join(home, 'lab', 'nodes', 'worker-jetson-8cbb3-7602'), { recursive: true });
      mkdirSync(join(home, 'home', 'nodes', 'shadow-jetson-k3f9a'), { recursive: true });
      utimesSync(join(home, 'lab', 'nodes', 'worker-jetson-8cbb3-7602'), 1000, 1000);
      mkdirSync(join(home, 'home', 'nodes', 'worker-other-aaaaa-7602'), { recursive: true });
      if (damaged !== null) writeFileSync(path, damaged);
      const ids = keptIds(join(directory, 'a'), false);
      const shadow = { name: 'jetson', idWith: (mark: string) => `shadow-jetson-${mark}` };
      assert.equal(ids.mark(shadow), 'k3f9a', 'it is read without being mended');
      assert.equal(damaged === null || readFileSync(path, 'utf8') === damaged, true);
      assert.equal(idOn('a', 'worker'), 'worker-jetson-8cbb3-7602', 'the id of this daemon counts before newer ones');
      assert.equal(readFileSync(path, 'utf8'), '8cbb3\n');
      assert.deepEqual(said, [
        `${path} is lost or damaged, and ids that have joined here have the mark 8cbb3: the file has it again`,
      ]);
      assert.equal(idOn('a', 'worker', { port: 7603 }), 'worker-jetson-8cbb3-7603');
      assert.equal(said.length, 1);
    });
  }

  it('have a new mark, which is said, where it is damaged and none has joined', () => {
    const path = join(directory, 'a', 'odmoe', '.host-mark');
    mkdirSync(dirname(path), { recursive: true });
    writeFileSync(path, '../x\n');
    const id = idOn('a', 'worker');
    assert.match(id, /^worker-jetson-[0-9a-z]{5}-7602$/);
    assert.deepEqual([idOn('a', 'worker'), said.length], [id, 1]);
    assert.match(said[0] ?? '', /\.host-mark was damaged, .* it has a new one, [0-9a-z]{5}$/);
  });

  it('are none on a full disk, which is said, and nothing is left there', () => {
    const home = join(directory, 'a', 'odmoe');
    const partial = join(home, `.host-mark.${process.pid}`);
    mkdirSync(home, { recursive: true });
    symlinkSync('/dev/full', partial);
    assert.throws(() => idOn('a', 'worker'), { code: 'STORAGE_FULL', message: /\.host-mark: .*free some space/ });
    assert.deepEqual(readdirSync(home), []);
    mkdirSync(join(home, 'home', 'nodes', 'worker-jetson-8cbb3-7602'), { recursive: true });
    symlinkSync('/dev/full', partial);
    assert.equal(idOn('a', 'worker'), 'worker-jetson-8cbb3-7602', 'a mark that is known needs no disk');
    assert.match(said.join(), /the mark 8cbb3, which goes on; the file stays as it is: .*free some space/);
  });

  it('are read without being made', () => {
    const daemon = { name: 'jetson', idWith: (mark: string) => mark };
    assert.equal(keptIds(join(directory, 'a'), false).mark(daemon), '');
    assert.ok(!existsSync(join(directory, 'a')));
    const made = keptIds(join(directory, 'a'), true).mark(daemon);
    assert.equal(keptIds(join(directory, 'a'), false).mark(daemon), made);
    assert.equal(readFileSync(join(directory, 'a', 'odmoe', '.host-mark'), 'utf8'), `${made}\n`);
  });
});
