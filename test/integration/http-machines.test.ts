import assert from 'node:assert/strict';
import { request as httpRequest } from 'node:http';
import { type JoinedCluster, pairWithMain } from '../../engine/trust/enrol.js';
import { ApiKeys } from '../../http-api/access/api-keys.js';
import { registerMachines } from '../../http-api/page/machines-routes.js';
import { registerSession } from '../../http-api/page/session-routes.js';
import type { Machines } from '../../http-api/http-api-context.js';
import { machinesOfDesk } from '../../main-node/enrolment/machines-of-desk.js';
import type { AcceptedMachineView, MachinesView } from '../../shared/wire/cluster-machines.js';
import type { DrainedNode, DrainRequest, StatusReply } from '../../shared/wire/messages.js';
import { EnrolmentMain, machineOf } from '../unit/enrolment-main.js';
import { plainIdentity } from '../unit/plain-identity.js';
import { RUNTIME } from '../wall.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { openTestHttpApi, type TestHttpApi } from './harness/test-http-api.js';

const PLAIN = 'a-plain-key-1';
const OPERATOR = 'the-operators-key-1';
const KEYS = [PLAIN, { text: OPERATOR, role: 'operator' as const }];
const WAYS = [
  ['accept', 'POST', '/cluster/machines/accept'],
  ['remove', 'DELETE', '/cluster/machines/jetson'],
  ['drain', 'POST', '/cluster/machines/jetson/drain'],
  ['undo a drain of', 'DELETE', '/cluster/machines/jetson/drain'],
] as const;

interface Failure {
  error: { message: string; code: string };
}

function machinesOf({ desk }: EnrolmentMain): Machines {
  return machinesOfDesk(desk, { machineAddress: '192.168.1.10' });
}

describe('the machines of a cluster, by HTTP,', () => {
  let main: EnrolmentMain;
  let api: TestHttpApi;
  /** Ends the pairings that a test leaves unfinished. */
  let leave: AbortController;

  const drains: [id: string, undo: boolean][] = [];

  beforeEach(async () => {
    drains.length = 0;
    leave = new AbortController();
    main = await new EnrolmentMain().start();
  });

  afterEach(async () => {
    leave.abort();
    await Promise.all([api.close(), main.stop()]);
  });

  async function open(keys: typeof KEYS = KEYS, machines: Machines | null = machinesOf(main)): Promise<void> {
    const worker = plainIdentity({ id: 'jetson', device: 'cuda: Orin', address: '10.0.0.7:7602' });
    const own = plainIdentity({ id: 'main', role: 'ROLE_MAIN', device: 'cpu', address: ':7600' });
    const nodes = [own, worker].map((identity) => ({ identity }));
    const status = (): StatusReply => ({ nodes }) as unknown as StatusReply;
    const routes: typeof registerMachines = (app, context) => {
      registerMachines(app, context);
      registerSession(app, context);
    };
    const drain = ({ id, undo }: DrainRequest): DrainedNode | null => {
      drains.push([id, undo]);
      if (id === 'nano') throw new OdmoeError('USAGE', 'no node "nano" is connected to main');
      return undo ? null : { id, role: 'worker', state: 'may go', openExperts: 0 };
    };
    api = await openTestHttpApi(routes, { keys, context: { machines, status, drain } });
  }

  /** A machine that shows a code, and what becomes of it. */
  function screenOf(id: string): Promise<{ code: string; joined: Promise<JoinedCluster> }> {
    return new Promise((resolve, reject) => {
      const joined = pairWithMain(main.address, machineOf(id), (code) => resolve({ code, joined }), {
        runtime: RUNTIME,
        signal: leave.signal,
      });
      joined.catch(reject);
    });
  }

  function ask(method: string, path: string, body?: unknown, headers: Record<string, string> = {}): Promise<Response> {
    const text = body === undefined ? {} : { body: JSON.stringify(body) };
    return fetch(`http://${api.address}${path}`, { method, headers, ...text });
  }

  const asOperator = (method: string, path: string, body?: unknown): Promise<Response> =>
    ask(method, path, body, { 'x-api-key': OPERATOR });

  async function viewOf(headers: Record<string, string>): Promise<MachinesView> {
    const answer = await ask('GET', '/cluster/machines', undefined, headers);
    assert.deepEqual([answer.status, answer.headers.get('cache-control')], [200, 'no-store']);
    return (await answer.json()) as MachinesView;
  }

  async function refused(answer: Response, status: number, code: string, words: RegExp): Promise<void> {
    const { error } = (await answer.json()) as Failure;
    assert.deepEqual([answer.status, error.code], [status, code], error.message);
    assert.match(error.message, words);
  }

  it('are let in by the code on their screen, with a space in it or none, and are listed from then on', async () => {
    await open();
    const { code, joined } = await screenOf('jetson');
    // One machine a second may begin from one address.
    main.runtime.laterMs = 2000;
    const other = await screenOf('nano');
    const { waiting, nodes } = await viewOf({ 'x-api-key': OPERATOR });
    const shown = waiting.map(({ waitedMs, ...facts }) => (assert.ok(waitedMs >= 0), facts));
    const facts = { role: 'worker', device: 'cuda sm_87', address: '127.0.0.1' };
    assert.deepEqual([shown, nodes], [['jetson', 'nano'].map((id) => ({ id, ...facts })), []]);
    const spaced = `${code.slice(0, 3)} ${code.slice(3)}`;
    const answer = await asOperator('POST', '/cluster/machines/accept', { code: spaced });
    assert.equal(answer.status, 200);
    const accepted = (await answer.json()) as AcceptedMachineView;
    assert.deepEqual(accepted, { id: 'jetson', ...facts, words: (await joined).words });
    const again = await asOperator('POST', '/cluster/machines/accept', { code: spaced });
    assert.deepEqual(
      [again.status, /there is nothing to do/.test(await again.text())],
      [400, true],
      'nothing is forbidden',
    );
    assert.equal((await asOperator('POST', '/cluster/machines/accept', { code: other.code })).status, 200);
    const after = await viewOf({ 'x-api-key': OPERATOR });
    assert.deepEqual(after.authority, { cluster: 'test', words: main.desk.words });
    assert.deepEqual(after.waiting, []);
    const listed = after.nodes.map(({ sinceMs, ...each }) => (assert.ok(sinceMs > 1e12), each));
    assert.deepEqual(listed, [
      { id: 'jetson', role: 'worker', isConnected: true, device: 'cuda: Orin', address: '10.0.0.7:7602', drain: '' },
      { id: 'nano', role: 'worker', isConnected: false, device: '', address: '', drain: '' },
    ]);
  });

  it('have each the address by which others reach it, main too if it listens on every interface', async () => {
    const nodes = (): ReturnType<Machines['nodes']> => [
      { id: 'main', role: 'main', sinceMs: 1 },
      { id: 'jetson', role: 'worker', sinceMs: 2 },
    ];
    await open(KEYS, { ...machinesOf(main), nodes });
    const listed = (await viewOf({ 'x-api-key': OPERATOR })).nodes;
    assert.deepEqual(
      listed.map(({ address }) => address),
      ['192.168.1.10:7600', '10.0.0.7:7602'],
    );
  });

  it('are removed by their id; nobody else is', async () => {
    await open();
    const { code, joined } = await screenOf('jetson');
    await asOperator('POST', '/cluster/machines/accept', { code });
    await joined;
    await refused(await asOperator('DELETE', '/cluster/machines/nano'), 400, 'usage', /no node nano/);
    assert.equal((await viewOf({ 'x-api-key': OPERATOR })).nodes.length, 1);
    assert.equal((await asOperator('DELETE', '/cluster/machines/jetson')).status, 204);
    assert.deepEqual((await viewOf({ 'x-api-key': OPERATOR })).nodes, []);
    assert.ok(main.state.roster.entries[0]?.removed !== undefined);
    const by = new ApiKeys([{ text: OPERATOR, role: 'operator' }]).ownerOf(OPERATOR)?.client;
    assert.ok(by !== undefined && by !== '');
    for (const done of ['let a machine in by HTTP', 'removed a machine by HTTP']) {
      assert.match(api.log.matching(`an operator ${done}`).join(), new RegExp(`"by":"${by}","machine":"jetson"`));
    }
    await refused(await asOperator('DELETE', '/cluster/machines/jetson'), 400, 'usage', /no node jetson/);
  });

  it('are not let in by a wrong code: the third one sends all away, and each is told', async () => {
    await open();
    const { code, joined } = await screenOf('jetson');
    const wrong = code === '000000' ? '000001' : '000000';
    const told = assert.rejects(joined, { code: 'JOIN_TOKEN_INVALID', message: /3 wrong codes were typed at main/ });
    for (const left of [3, 2, 1]) {
      assert.equal((await viewOf({ 'x-api-key': OPERATOR })).wrongCodesLeft, left);
      const words = left > 1 ? /something stands between you/ : /after 3 wrong codes every machine was sent away/;
      const answer = await asOperator('POST', '/cluster/machines/accept', { code: wrong });
      await refused(answer, 403, 'join_token_invalid', words);
    }
    await told;
    const { waiting, wrongCodesLeft } = await viewOf({ 'x-api-key': OPERATOR });
    assert.deepEqual([waiting, wrongCodesLeft], [[], 3]);
    for (const body of [undefined, 7, {}, { code: 482913 }, { code: '1'.repeat(33) }, { code: '1', more: 1 }]) {
      const answer = await asOperator('POST', '/cluster/machines/accept', body);
      await refused(answer, 400, 'request_invalid', /six digits/);
    }
  });

  it('are shown to a plain key, which may not change them nor see who waits', async () => {
    await open();
    await screenOf('jetson');
    const { mayChange, hasOperatorKey, waiting, authority } = await viewOf({ 'x-api-key': PLAIN });
    assert.deepEqual([mayChange, hasOperatorKey, waiting], [false, true, []]);
    assert.equal(authority?.words, main.desk.words);
    for (const [what, method, path] of WAYS) {
      const answer = await ask(method, path, undefined, { 'x-api-key': PLAIN });
      await refused(answer, 403, 'not_allowed', /"role: operator".*odmoe accept CODE/);
      assert.equal((await ask(method, path)).status, 401, `${what} without a key`);
    }
    assert.equal(main.desk.waitingMachines().length, 1);
  });

  it('are changed by nobody where main has no keys, from its own host neither', async () => {
    await open([]);
    const { mayChange, hasOperatorKey } = await viewOf({});
    assert.deepEqual([mayChange, hasOperatorKey], [false, false]);
    for (const [, method, path] of WAYS) {
      for (const headers of [{}, { 'x-api-key': OPERATOR }]) {
        await refused(await ask(method, path, undefined, headers), 403, 'not_allowed', /on the host of main/);
      }
    }
  });

  it("are changed by an operator's session from the page itself, and from no other page", async () => {
    await open();
    const { code } = await screenOf('jetson');
    const origin = `http://${api.address}`;
    const cookieFor = async (key: string): Promise<string> => {
      const answer = await ask('POST', '/cluster/session', { key }, { origin });
      return (answer.headers.get('set-cookie') ?? '').split(';', 1)[0] ?? '';
    };
    const [cookie, plain] = [await cookieFor(OPERATOR), await cookieFor(PLAIN)];
    const accept = (headers: Record<string, string>): Promise<Response> =>
      ask('POST', '/cluster/machines/accept', { code }, headers);
    assert.equal((await accept({ cookie })).status, 401, 'nobody says where it comes from');
    await refused(await accept({ cookie, origin: 'http://127.0.0.1:3000' }), 403, 'host_refused', /Origin/);
    assert.equal(await acceptedFromHost('evil.example', cookie, code), 403);
    await refused(await accept({ cookie: plain, origin }), 403, 'not_allowed', /role: operator/);
    assert.equal((await viewOf({ cookie })).mayChange, true);
    assert.equal((await accept({ cookie, origin })).status, 200);
  });

  /** The status where a name of another site points at main (DNS rebinding): its Host, and an Origin that fits. */
  function acceptedFromHost(host: string, cookie: string, code: string): Promise<number> {
    return new Promise((resolve, reject) => {
      const headers = { host, origin: `http://${host}`, cookie };
      const sent = httpRequest(`http://${api.address}/cluster/machines/accept`, { method: 'POST', headers });
      sent.on('response', (answer) => (answer.resume(), resolve(answer.statusCode ?? 0)));
      sent.on('error', reject);
      sent.end(JSON.stringify({ code }));
    });
  }

  it('get no new work, also without an authority, and work again', async () => {
    await open(KEYS, null);
    const answer = await asOperator('POST', '/cluster/machines/jetson/drain');
    assert.equal(answer.status, 200);
    assert.deepEqual(await answer.json(), {
      id: 'jetson',
      role: 'worker',
      state: 'may go',
      openExperts: 0,
      othersLackBytes: 0,
    });
    await refused(await asOperator('POST', '/cluster/machines/nano/drain'), 400, 'usage', /no node "nano"/);
    assert.equal((await asOperator('DELETE', '/cluster/machines/jetson/drain')).status, 204);
    assert.deepEqual(drains, [
      ['jetson', false],
      ['nano', false],
      ['jetson', true],
    ]);
  });

  it('are none without an authority, and a change says so', async () => {
    await open(KEYS, null);
    const { authority, waiting, nodes, mayChange } = await viewOf({ 'x-api-key': OPERATOR });
    assert.deepEqual([authority, waiting, nodes, mayChange], [null, [], [], true]);
    const accept = await asOperator('POST', '/cluster/machines/accept', { code: '482913' });
    await refused(accept, 403, 'trust_refused', /no authority.*odmoe cluster init/);
    await refused(await asOperator('DELETE', '/cluster/machines/jetson'), 403, 'trust_refused', /no authority/);
  });
});
