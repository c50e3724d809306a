import assert from 'node:assert/strict';
import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { fetchWholePack } from '../../engine/fetching/fetch-whole-pack.js';
import { PackServer } from '../../packs/fetching/pack-server.js';
import { FETCH_LOCK_FILE } from '../../packs/format/pack-layout.js';
import { openServedPack } from '../../packs/open-served-pack.js';
import type { Pack } from '../../packs/format/open-pack.js';
import { testSettings } from '../integration/harness/test-settings.js';
import { ENVIRONMENT, RUNTIME } from '../wall.js';
import { FetchSetting, interruptedShare, type PackService, testPack } from './fetch-test-pack.js';
import { Lines } from './log-lines.js';
import { plainIdentity } from './plain-identity.js';
import { refusal } from './tiny-pack.js';

const CLUSTER = 'home';

describe('a shadow without a pack', function () {
  this.timeout(60_000);
  const setting = new FetchSetting();
  let pack: Pack;
  let packDigest: string;

  beforeEach(async () => {
    pack = await testPack();
    ({ packDigest } = pack);
  });

  /** A main that names and serves the pack. */
  const serve = (share: PackService = new PackServer(pack, RUNTIME)): Promise<string> =>
    setting.serve(share, {
      node: { identify: () => plainIdentity({ id: 'm', role: 'ROLE_MAIN', cluster: CLUSTER, packDigest }) },
    });

  const environment = () => ({ ...ENVIRONMENT, dataDirectory: setting.parent });

  function fetch(mainAddress: string, log = new Lines(), abandoned = new AbortController().signal): Promise<string> {
    const settings = testSettings('shadow', setting.directory, { cluster: CLUSTER, mainAddress, packDirectory: null });
    assert.equal(settings.modelPath, null);
    return fetchWholePack(settings, environment(), log, abandoned);
  }

  it("fetches main's whole pack, and finds it the next time", async () => {
    let pieces = 0;
    const share = interruptedShare(new PackServer(pack, RUNTIME), () => {
      pieces += 1;
    });
    const address = await serve(share);
    const directory = await fetch(address);
    assert.equal(directory, join(setting.parent, 'packs', pack.packDigest.slice(0, 16)));
    assert.equal((await openServedPack(directory)).packDigest, pack.packDigest);
    assert.ok(!existsSync(join(directory, FETCH_LOCK_FILE)));
    const before = pieces;
    assert.equal(await fetch(address), directory);
    assert.equal(pieces, before);
  });

  it('goes on where it was abandoned', async () => {
    const controller = new AbortController();
    let pieces = 0;
    const share = interruptedShare(new PackServer(pack, RUNTIME), () => {
      pieces += 1;
      if (pieces === 6) controller.abort();
    });
    const address = await serve(share);
    await assert.rejects(fetch(address, new Lines(), controller.signal), refusal('CANCELLED', /./));
    const [name = ''] = readdirSync(join(setting.parent, 'packs'));
    assert.ok(!existsSync(join(setting.parent, 'packs', name, 'manifest.json')));
    const directory = await fetch(address);
    assert.equal((await openServedPack(directory)).packDigest, pack.packDigest);
    assert.deepEqual(readdirSync(join(setting.parent, 'packs')), [name]);
  });

  it('ends in words when main comes back with another pack', async () => {
    const share = interruptedShare(new PackServer(pack, RUNTIME), () => {
      packDigest = 'e'.repeat(64);
      throw new Error('main is stopped');
    });
    const address = await serve(share);
    await assert.rejects(
      fetch(address),
      refusal('NODE_REFUSED', /main was restarted with another pack.*start this shadow again/),
    );
  });
});
