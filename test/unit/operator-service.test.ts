import { socketAddress } from '../../shared/wire/addresses.js';
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pairWithMain } from '../../engine/trust/enrol.js';
import { keyToCertify } from '../../engine/trust/identity-files.js';
import { openNodeTrust } from '../../engine/trust/open-node-trust.js';
import { OperatorService } from '../../main-node/enrolment/operator-service.js';
import { operatorSocketPath } from '../../shared/base/files/state-directory.js';
import { GrpcTransport } from '../../shared/transport/grpc-transport.js';
import { type CallMethod, METHODS } from '../../shared/transport/methods.js';
import { RUNTIME } from '../wall.js';
import { Lines } from './log-lines.js';
import { joinWithFiles, NOT_CONNECTED, operatorServices, startNewMain, type StoredMain } from './stored-main.js';
import { TrustedServers } from './trusted-servers.js';

const LIMITS = { timeoutMs: 5000 };
const HOUR_MS = 3_600_000;
const DEVICE = 'cuda sm_87';

describe("the operator's service", () => {
  let directory: string;
  let main: StoredMain;
  let log: Lines;
  const home = (host: string): string => join(directory, host);
  const jetson = () => ({ id: 'jetson-2', role: 'worker', stateDirectory: home('jetson') }) as const;
  const { operator } = METHODS;

  beforeEach(async () => {
    directory = mkdtempSync(join(tmpdir(), 'odmoe-operator-'));
    log = new Lines();
    main = await startNewMain(home('box'), 'home', operatorServices(home('box'), log));
  });

  afterEach(async () => {
    await main.stop();
    rmSync(directory, { recursive: true, force: true });
  });

  function ask<Request, Reply>(method: CallMethod<Request, Reply>, request: Request): Promise<Reply> {
    return new GrpcTransport(RUNTIME).call(socketAddress(operatorSocketPath(home('box'))), method, request, LIMITS);
  }

  const token = (changes: object = {}) =>
    ask(operator.createToken, { role: 'worker', name: '', uses: 2, lifeMs: HOUR_MS, ...changes });

  /** The code of a machine that waits, and what became of it. */
  async function waitingMachine(): Promise<{ code: string; joined: Promise<{ words: string }> }> {
    const { id, role, stateDirectory } = jetson();
    const machine = { id, role, device: DEVICE, key: await keyToCertify(stateDirectory, id) };
    return new Promise((resolve, reject) => {
      const joined = pairWithMain(main.address, machine, (code) => resolve({ code, joined }), { runtime: RUNTIME });
      joined.catch(reject);
    });
  }

  it('has a socket that its owner alone can open', () => {
    assert.equal(statSync(operatorSocketPath(home('box'))).mode & 0o777, 0o600);
  });

  it('lets the machine in that shows the code, and logs it', async () => {
    const { code, joined } = await waitingMachine();
    const before = await ask(operator.listNodes, {});
    assert.deepEqual(
      before.waiting.map(({ id, device, address }) => ({ id, device, address })),
      [{ id: 'jetson-2', device: DEVICE, address: '127.0.0.1' }],
    );
    const typed = `${code.slice(0, 3)} ${code.slice(3)}`;
    const accepted = await ask(operator.accept, { code: typed });
    assert.deepEqual(accepted, {
      id: 'jetson-2',
      role: 'worker',
      device: DEVICE,
      address: '127.0.0.1',
      cluster: 'home',
      words: main.desk.words,
    });
    assert.equal((await joined).words, main.desk.words);
    const after = await ask(operator.listNodes, {});
    assert.deepEqual(after.waiting, []);
    assert.deepEqual(
      after.nodes.map(({ id, role, removedMs }) => ({ id, role, removedMs })),
      [
        { id: 'box', role: 'main', removedMs: null },
        { id: 'jetson-2', role: 'worker', removedMs: null },
      ],
    );
    assert.equal(after.authorityDigest, main.desk.digest);
    assert.ok(log.all.some((line) => /^an operator let a machine in .*"by":"local".*jetson-2/.test(line)));
  });

  it('tells an operator of a wrong code, and the machine waits on', async () => {
    const { code, joined } = await waitingMachine();
    const wrong = code === '000000' ? '000001' : '000000';
    await assert.rejects(ask(operator.accept, { code: wrong }), {
      code: 'JOIN_TOKEN_INVALID',
      message: /no machine with the code .* waits/,
    });
    await ask(operator.accept, { code });
    await joined;
  });

  it('makes, lists and revokes tokens without their secrets in any list or log', async () => {
    const { text, id, cluster, words } = await token();
    assert.deepEqual({ cluster, words }, { cluster: 'home', words: main.desk.words });
    await joinWithFiles(main.address, text, jetson());
    const [line, ...others] = (await ask(operator.listTokens, {})).tokens;
    assert.deepEqual(others, []);
    assert.ok(line !== undefined);
    const { leftMs, createdMs, ...rest } = line;
    const stays = { id, role: 'worker', name: '', state: 'valid', usesLeft: 1, usedBy: ['jetson-2'] };
    assert.deepEqual(rest, stays);
    assert.ok(leftMs !== null && leftMs > HOUR_MS / 2 && createdMs > 0);
    await ask(operator.revokeToken, { id });
    assert.equal((await ask(operator.listTokens, {})).tokens[0]?.state, 'revoked');
    const [, , , secret = ''] = text.split('-');
    assert.equal(secret.length, 26);
    assert.ok(!log.all.join('\n').includes(secret));
    assert.ok(log.all.some((made) => made.includes(id)));
  });

  it('makes tokens for any number of machines, and for one name alone', async () => {
    const { id } = await token({ uses: 0, name: 'jetson-2' });
    const [line] = (await ask(operator.listTokens, {})).tokens;
    assert.deepEqual(
      { id: line?.id, name: line?.name, usesLeft: line?.usesLeft },
      { id, name: 'jetson-2', usesLeft: null },
    );
  });

  it('refuses tokens and ids that there cannot be', async () => {
    await assert.rejects(token({ role: 'queen' }), { code: 'USAGE', message: /"queen" is no role/ });
    await assert.rejects(token({ role: 'main' }), { code: 'USAGE', message: /nobody joins as main/ });
    await assert.rejects(ask(operator.revokeToken, { id: 'aaaaaaaa' }), { code: 'USAGE' });
    await assert.rejects(ask(operator.removeNode, { id: 'nobody' }), { code: 'USAGE', message: /has no node nobody/ });
    await assert.rejects(ask(operator.removeNode, { id: 'box' }), { code: 'USAGE', message: /main itself/ });
  });

  it('removes a node and counts the connections that end with it', async () => {
    const { text } = await token();
    await joinWithFiles(main.address, text, jetson());
    const { stateDirectory, ...node } = jetson();
    const opened = await openNodeTrust({ ...node, cluster: 'home', stateDirectory }, RUNTIME.wallMs(), new Lines());
    const transport = new GrpcTransport(RUNTIME, null, opened?.trust);
    const connections = [1, 2].map(() => transport.connect(main.address, METHODS.node.identify));
    try {
      for (const connection of connections) await connection.call(METHODS.node.identify, {}, LIMITS);
      assert.deepEqual(await ask(operator.removeNode, { id: 'jetson-2' }), { connections: 2 });
      await assert.rejects(transport.call(main.address, METHODS.node.identify, {}, LIMITS), { code: 'TRUST_REFUSED' });
    } finally {
      for (const connection of connections) connection.close();
    }
    const node2 = (await ask(operator.listNodes, {})).nodes.at(-1);
    assert.ok(node2?.id === 'jetson-2' && node2.removedMs !== null);
    assert.ok(log.all.some((line) => /^an operator removed a node .*jetson-2.*"connections":2/.test(line)));
  });

  it('serves operators from elsewhere by their certificates, and no worker', async () => {
    const laptop = { id: 'anna', role: 'operator', stateDirectory: home('laptop') } as const;
    const { text } = await token({ role: 'operator', name: 'anna', uses: 1 });
    await joinWithFiles(main.address, text, laptop);
    const ofWorker = await token();
    await joinWithFiles(main.address, ofWorker.text, jetson());
    const worker = await openNodeTrust({ ...jetson(), cluster: 'home' }, RUNTIME.wallMs(), new Lines());
    const asWorker = new GrpcTransport(RUNTIME, null, worker?.trust);
    await assert.rejects(asWorker.call(main.address, operator.listNodes, {}, LIMITS), { code: 'NOT_ALLOWED' });
  });

  it('refuses every call of a cluster without an authority, with the way to make one', async () => {
    const servers = new TrustedServers();
    try {
      const service = new OperatorService(null, NOT_CONNECTED, new Lines());
      const address = await servers.serve(null, { operator: service });
      const plain = new GrpcTransport(RUNTIME);
      const refusal = { code: 'TRUST_REFUSED', message: /has no authority.*odmoe cluster init/ };
      const wanted = { role: 'worker', name: '', uses: 1, lifeMs: HOUR_MS };
      await assert.rejects(plain.call(address, operator.accept, { code: '123456' }, LIMITS), refusal);
      await assert.rejects(plain.call(address, operator.createToken, wanted, LIMITS), refusal);
      await assert.rejects(plain.call(address, operator.listTokens, {}, LIMITS), refusal);
      await assert.rejects(plain.call(address, operator.revokeToken, { id: 'aaaaaaaa' }, LIMITS), refusal);
      await assert.rejects(plain.call(address, operator.listNodes, {}, LIMITS), refusal);
      await assert.rejects(plain.call(address, operator.removeNode, { id: 'w' }, LIMITS), refusal);
    } finally {
      await servers.stop();
    }
  });
});
