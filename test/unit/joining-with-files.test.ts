import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { joinByToken } from '../../engine/trust/enrol.js';
import { keyToCertify, storeIdentity } from '../../engine/trust/identity-files.js';
import { openNodeTrust } from '../../engine/trust/open-node-trust.js';
import { GrpcTransport } from '../../shared/transport/grpc-transport.js';
import { identifyPeer } from '../../shared/transport/node-clients.js';
import { RUNTIME } from '../wall.js';
import { Lines } from './log-lines.js';
import { joinWithFiles, startNewMain, StoredMain } from './stored-main.js';

const TIMEOUT_MS = 5000;

describe('a machine that joins a cluster on disks', () => {
  let directory: string;
  let main: StoredMain;
  const home = (host: string): string => join(directory, host);
  const worker = () => ({ role: 'worker', id: 'jetson-2', cluster: 'home', stateDirectory: home('jetson') }) as const;

  beforeEach(async () => {
    directory = mkdtempSync(join(tmpdir(), 'odmoe-joining-'));
    main = await startNewMain(home('box'));
  });

  afterEach(async () => {
    await main.stop();
    rmSync(directory, { recursive: true, force: true });
  });

  async function askMain(): Promise<string> {
    const opened = await openNodeTrust(worker(), RUNTIME.wallMs(), new Lines());
    assert.ok(opened !== null, 'the machine has joined');
    const client = new GrpcTransport(RUNTIME, null, opened.trust);
    return (await identifyPeer(client, main.address, TIMEOUT_MS)).id;
  }

  it('is in it by a token, after restarts of both, until it is removed', async () => {
    const { text } = await main.desk.createToken({ role: 'worker', uses: 1, lifeMs: 60_000 });
    assert.equal(await openNodeTrust(worker(), RUNTIME.wallMs(), new Lines()), null);
    await joinWithFiles(main.address, text, worker());
    assert.equal(await askMain(), 'box');
    await main.stop();
    main = await StoredMain.start(home('box'));
    assert.equal(await askMain(), 'box');
    assert.deepEqual(
      main.desk.listTokens().map(({ state }) => state),
      ['used up'],
    );
    await main.desk.removeNode('jetson-2');
    await assert.rejects(askMain(), { code: 'TRUST_REFUSED', message: /node jetson-2 was removed from "home"/ });
    await main.stop();
    main = await StoredMain.start(home('box'));
    await assert.rejects(askMain(), { code: 'TRUST_REFUSED' });
  });

  it('costs one use, however often it repeats itself', async () => {
    const { text } = await main.desk.createToken({ role: 'worker', uses: 1, lifeMs: 60_000 });
    const { id, role, stateDirectory } = worker();
    const machine = { id, role, key: await keyToCertify(stateDirectory, id) };
    const first = await joinByToken(main.address, text, machine, { runtime: RUNTIME });
    // The reply was lost: nothing was stored, and main was started again.
    await main.stop();
    main = await StoredMain.start(home('box'));
    const second = await joinByToken(main.address, text, machine, { runtime: RUNTIME });
    assert.deepEqual(second.authority, first.authority);
    await storeIdentity(stateDirectory, id, second);
    assert.equal(await askMain(), 'box');
  });
});
