import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, type AddressInfo } from 'node:net';
import {
  FORGET_DISCOVERED_AFTER_MS,
  type Membership,
  NEW_STRANGERS_OF_HOST,
  STRANGERS_LIMITS,
  type MembershipOptions,
} from '../../main-node/cluster/membership.js';
import { FORGET_REFUSED_AFTER_MS } from '../../main-node/cluster/membership.js';
import type { Roster } from '../../main-node/cluster/roster.js';
import { WorkerLink } from '../../main-node/cluster/worker-link.js';
import type { WorkerReply, WorkerRequest } from '../../shared/wire/messages.js';
import type { Transport } from '../../shared/transport/transport.js';
import { MemoryStream } from '../integration/harness/memory-stream.js';
import { waitUntil } from '../integration/harness/wait-until.js';
import { SeededRandom } from '../../shared/base/runtime/seeded-random.js';
import { VirtualClock } from '../../shared/base/runtime/virtual-clock.js';
import { VirtualRuntime } from '../../shared/base/runtime/virtual-runtime.js';
import { DrawnLinks } from '../../simulator/network/link-model.js';
import { MemoryNetwork } from '../../simulator/network/memory-network.js';
import { memoryTransport } from '../../simulator/network/memory-transport.js';
import { RUNTIME, TRANSPORT, runtimeAt } from '../wall.js';
import { identity, membershipOf, SILENT } from './membership-setting.js';

/** Addresses at which no daemon answers. */
async function deadAddresses(count: number): Promise<string[]> {
  const servers = Array.from({ length: count }, () => createServer().listen(0, '127.0.0.1'));
  await Promise.all(servers.map((server) => once(server, 'listening')));
  const ports = servers.map((server) => (server.address() as AddressInfo).port);
  await Promise.all(servers.map((server) => new Promise((resolve) => server.close(resolve))));
  return ports.map((port) => `127.0.0.1:${port}`);
}

/** A transport whose calls fail, because these tests must not use it. */
function silentTransport(): Transport {
  const never = (): never => assert.fail('nobody is to be asked');
  return {
    serve: never,
    stream: never,
    call: never,
    replies: never,
    connect: never,
  };
}

describe('main: the known addresses', () => {
  let nowMs: number;
  let roster: Roster;
  let membership: Membership;

  function create(changes: Partial<MembershipOptions> = {}): void {
    nowMs = 1000;
    ({ roster, membership } = membershipOf(
      { runtime: runtimeAt(() => nowMs), transport: TRANSPORT, ...changes },
      RUNTIME,
    ));
  }

  afterEach(async () => {
    await membership.stop();
    roster.stop();
  });

  const discover = (id: string, address: string): void => {
    membership.addDiscovered({ ...identity(id), role: 'worker', authority: null, address });
  };
  const failing = (): string[] => membership.problems().map(({ address }) => address);

  it('are forgotten after an hour without an answer where they were discovered, not where configured', async () => {
    const clock = new VirtualClock();
    const runtime = new VirtualRuntime(clock, 1);
    const links = new DrawnLinks(new SeededRandom(1), { latencyMs: 1, jitterMs: 0, bytesPerMs: 1000 });
    create({ runtime, transport: memoryTransport(new MemoryNetwork(clock, links), 'main', runtime) });
    const passes = (untilMs: number): Promise<void> => clock.run(() => false, { untilMs });
    const [found, configured] = ['w1:1', 'w2:1'];
    discover('w1', found);
    membership.addConfigured([{ role: 'worker', id: 'w2', address: configured }]);
    await passes(FORGET_DISCOVERED_AFTER_MS / 2);
    assert.equal(failing().length, 2, 'both fail');
    runtime.pause();
    await passes(2 * FORGET_DISCOVERED_AFTER_MS);
    runtime.resume();
    await passes(clock.nowMs + FORGET_DISCOVERED_AFTER_MS / 2);
    assert.equal(failing().length, 2, 'an hour in which main itself was stopped does not count');
    await passes(clock.nowMs + FORGET_DISCOVERED_AFTER_MS);
    assert.deepEqual(failing(), [configured]);
  });

  it('make room for a new one by dropping the discovered one that has failed for longest', async () => {
    create({ maxKnownAddresses: 3 });
    const [configured = '', old = '', newer = '', last = ''] = await deadAddresses(4);
    membership.addConfigured([{ role: 'worker', id: 'w0', address: configured }]);
    discover('w1', old);
    await waitUntil('two fail', () => failing().length === 2);
    nowMs += 10;
    discover('w2', newer);
    await waitUntil('three fail', () => failing().length === 3);
    discover('w3', last);
    await waitUntil('the new one is tried', () => failing().includes(last));
    assert.deepEqual(failing().sort(), [configured, newer, last].sort());
  });

  it('are forgotten at once when the daemon is connected elsewhere', async () => {
    create();
    const [left = '', other = ''] = await deadAddresses(2);
    const limits = { hiddenSize: 4, experts: 100, executeTimeoutMs: 1000, runtime: RUNTIME };
    const stream = new MemoryStream<WorkerRequest, WorkerReply>();
    roster.addWorker(new WorkerLink(identity('w1'), 'elsewhere:1', stream, limits, SILENT));
    discover('w1', left);
    discover('w2', other);
    await waitUntil('the other one fails', () => failing().includes(other));
    await waitUntil('the one that was left is forgotten', () => !failing().includes(left));
    nowMs += 1;
    await new Promise((resolve) => setTimeout(resolve, 50));
    assert.deepEqual(failing(), [other]);
  });

  it('of 100,000 strangers are bounded in total and per host, few are dialled, and a worker is found among them', async () => {
    const dialled: string[] = [];
    const greeted: string[] = [];
    create({
      transport: {
        ...silentTransport(),
        call: ((address: string) => {
          dialled.push(address);
          if (address === '10.0.0.7:7602') return Promise.resolve(identity('real'));
          return new Promise((_, reject) => setImmediate(() => reject(new Error('nobody'))));
        }) as Transport['call'],
        stream: ((address: string) => {
          greeted.push(address);
          return new MemoryStream<WorkerRequest, WorkerReply>();
        }) as unknown as Transport['stream'],
      },
    });
    membership.addConfigured([{ role: 'worker', id: 'w0', address: '10.0.0.8:7602' }]);
    const FLOOD = 100_000;
    for (let number = 0; number < FLOOD; number += 1) {
      discover(`forged-${number}`, `10.0.66.${number % 3}:${1 + (number % 65_000)}`);
      if (number === FLOOD / 2) discover('real', '10.0.0.7:7602');
      if (number % 20_000 === 0) await new Promise((resolve) => setImmediate(resolve));
    }
    await waitUntil('the worker is greeted', () => greeted.includes('10.0.0.7:7602'));
    await waitUntil('the strangers have failed', () => failing().length > 3 * STRANGERS_LIMITS.ofHost);
    assert.ok(failing().length <= 3 * STRANGERS_LIMITS.ofHost + 1, `${failing().length} addresses are known`);
    assert.equal(failing()[0], '10.0.0.8:7602', 'the configured addresses come first');
    const strangers = new Set(dialled.filter((address) => address.startsWith('10.0.66.')));
    assert.ok(strangers.size <= 3 * NEW_STRANGERS_OF_HOST.burst + 10, `${strangers.size} strangers were dialled`);
  });

  it('of a second daemon with a used id lead to a refusal, so that its log gives the reason', async () => {
    create();
    const first = identity('w');
    const stream = new MemoryStream<WorkerRequest, WorkerReply>();
    const limits = { hiddenSize: 4, experts: 100, executeTimeoutMs: 1000, runtime: RUNTIME };
    roster.addWorker(new WorkerLink(first, '127.0.0.1:1', stream, limits, SILENT, false));
    const [address = ''] = await deadAddresses(1);
    const second = { ...identity('w', 'ROLE_WORKER', address), bootId: 'another' };
    const reply = membership.join(second, { host: '127.0.0.1', caller: null });
    assert.ok(reply.kind === 'refusal' && reply.refusal.code === 'NODE_REFUSED');
    assert.match(reply.refusal.message, new RegExp(`daemon at ${address} has the id w.*its own --id`));
    assert.equal(membership.join({ ...first, address }, { host: '127.0.0.1', caller: null }).kind, 'welcome');
    await membership.stop();
  });

  it('of a refused peer are forgotten when it stops asking', () => {
    create();
    const stranger = { ...identity('w1', 'ROLE_WORKER', '10.0.0.5:7601'), cluster: 'another' };
    assert.equal(membership.join(stranger, { host: '10.0.0.5', caller: null }).kind, 'refusal');
    nowMs += FORGET_REFUSED_AFTER_MS - 1;
    membership.join(stranger, { host: '10.0.0.5', caller: null });
    nowMs += FORGET_REFUSED_AFTER_MS - 1;
    assert.deepEqual(failing(), ['10.0.0.5:7601']);
    nowMs += 1;
    assert.deepEqual(failing(), []);
  });
});
