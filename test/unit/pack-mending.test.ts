import { SLICES } from '../../packs/format/pack-layout.js';
import assert from 'node:assert/strict';
import { existsSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { PackMending } from '../../worker-node/fetching/pack-mending.js';
import { testSettings } from '../integration/harness/test-settings.js';
import { ENVIRONMENT } from '../wall.js';
import { FetchSetting, SILENT, testPack } from './fetch-test-pack.js';

describe('the directory for repaired experts', () => {
  const setting = new FetchSetting();

  it('is created for the next damaged expert where it could not be created for the first', async () => {
    const pack = await testPack();
    const environment = { ...ENVIRONMENT, dataDirectory: setting.parent };
    const mending = new PackMending(pack, testSettings('worker', pack.directory, {}), environment, SILENT);
    setting.users.push(mending);
    const mended = join(setting.parent, 'mended');
    writeFileSync(mended, 'a file where a directory belongs');
    await assert.rejects(mending.forget(0, 0, SLICES), {
      code: 'STORAGE_FAILED',
      message: /a file stands in this path.*remove it/,
    });
    rmSync(mended);
    await mending.forget(0, 1, SLICES);
    assert.ok(existsSync(mended));
  });
});
