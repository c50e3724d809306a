import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createAuthorityFiles } from '../../engine/trust/authority-files.js';
import { joinByToken } from '../../engine/trust/enrol.js';
import { keyToCertify, storeIdentity } from '../../engine/trust/identity-files.js';
import { type OpenTrust, openNodeTrust } from '../../engine/trust/open-node-trust.js';
import { firstRoster } from '../../engine/trust/roster-changes.js';
import { EMPTY_TOKEN_BOOK } from '../../engine/trust/token-book.js';
import { EnrolmentDesk } from '../../main-node/enrolment/enrolment-desk.js';
import { EnrolmentDoor } from '../../main-node/enrolment/enrolment-door.js';
import { StoredEnrolmentState } from '../../main-node/enrolment/stored-enrolment-state.js';
import { GrpcTransport } from '../../shared/transport/grpc-transport.js';
import { identifyPeer } from '../../shared/transport/node-clients.js';
import type { RpcServer } from '../../shared/transport/transport.js';
import { createAuthority } from '../../shared/transport/trust/certificate.js';
import { RUNTIME } from '../wall.js';
import { Lines } from './log-lines.js';
import { plainIdentity } from './plain-identity.js';

const NETWORK = { keepaliveIntervalMs: 500, keepaliveTimeoutMs: 700, executeTimeoutMs: 1000, reconnectDelayMs: 100 };
const TIMEOUT_MS = 5000;
const UPTIME_MS = 5000;

/** A main with the files of its host, as its start opens them. */
class StoredMain {
  private constructor(
    readonly desk: EnrolmentDesk,
    private readonly door: EnrolmentDoor,
    private readonly opened: OpenTrust,
    readonly server: RpcServer,
  ) {}

  static async start(stateDirectory: string): Promise<StoredMain> {
    const log = new Lines();
    const node = { role: 'main', id: 'box', cluster: 'home', stateDirectory } as const;
    const opened = await openNodeTrust(node, RUNTIME.wallMs(), log);
    assert.ok(opened !== null);
    assert.ok(opened.authority !== null);
    const state = new StoredEnrolmentState(opened.authority, stateDirectory, opened.trust, RUNTIME);
    const desk = new EnrolmentDesk(state, RUNTIME, () => UPTIME_MS);
    const door = new EnrolmentDoor(desk, RUNTIME, log);
    const server = await new GrpcTransport(RUNTIME, null, opened.trust).serve({
      host: '127.0.0.1',
      port: 0,
      network: NETWORK,
      log,
      node: { identify: () => plainIdentity({ id: 'box', role: 'ROLE_MAIN' }) },
      enrol: (socket) => door.take(socket),
    });
    return new StoredMain(desk, door, opened, server);
  }

  async stop(): Promise<void> {
    this.door.close();
    await this.server.stop();
    await this.opened.saved();
  }
}

describe('a machine that joins a cluster on disks', () => {
  let directory: string;
  let main: StoredMain;
  const home = (host: string): string => join(directory, host);
  const worker = () => ({ role: 'worker', id: 'jetson-2', cluster: 'home', stateDirectory: home('jetson') }) as const;

  beforeEach(async () => {
    directory = mkdtempSync(join(tmpdir(), 'odmoe-joining-'));
    const state = { authority: createAuthority('home'), roster: firstRoster('home'), tokens: EMPTY_TOKEN_BOOK };
    await createAuthorityFiles(home('box'), state);
    main = await StoredMain.start(home('box'));
  });

  afterEach(async () => {
    await main.stop();
    rmSync(directory, { recursive: true, force: true });
  });

  async function joinAs(token: string): Promise<void> {
    const { id, role, stateDirectory } = worker();
    const key = await keyToCertify(stateDirectory, id);
    const machine = { id, role, key };
    await storeIdentity(
      stateDirectory,
      id,
      await joinByToken(main.server.address, token, machine, { runtime: RUNTIME }),
    );
  }

  async function askMain(): Promise<string> {
    const opened = await openNodeTrust(worker(), RUNTIME.wallMs(), new Lines());
    assert.ok(opened !== null, 'the machine has joined');
    const client = new GrpcTransport(RUNTIME, null, opened.trust);
    return (await identifyPeer(client, main.server.address, TIMEOUT_MS)).id;
  }

  it('is in it by a token, after restarts of both, until it is removed', async () => {
    const { text } = await main.desk.createToken({ role: 'worker', uses: 1, lifeMs: 60_000 });
    assert.equal(await openNodeTrust(worker(), RUNTIME.wallMs(), new Lines()), null);
    await joinAs(text);
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
    const first = await joinByToken(main.server.address, text, machine, { runtime: RUNTIME });
    // The reply was lost: nothing was stored, and main was started again.
    await main.stop();
    main = await StoredMain.start(home('box'));
    const second = await joinByToken(main.server.address, text, machine, { runtime: RUNTIME });
    assert.deepEqual(second.authority, first.authority);
    await storeIdentity(stateDirectory, id, second);
    assert.equal(await askMain(), 'box');
  });
});
