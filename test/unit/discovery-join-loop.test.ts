import assert from 'node:assert/strict';
import { setTimeout as delay } from 'node:timers/promises';
import { createServer, type AddressInfo, type Socket } from 'node:net';
import { STOP_TIMEOUT_MS } from '../../engine/daemon/run-daemon.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { JoinLoop } from '../../shared/transport/discovery/join-loop.js';
import type { NodeIdentity } from '../../shared/wire/messages.js';
import { waitUntil } from '../integration/harness/wait-until.js';
import { RUNTIME, TRANSPORT, startRpcServer } from '../wall.js';
import { plainIdentity } from './plain-identity.js';

const NETWORK = { keepaliveIntervalMs: 500, keepaliveTimeoutMs: 700, executeTimeoutMs: 1000, reconnectDelayMs: 1 };

const IDENTITY: NodeIdentity = plainIdentity();

function loop(mainAddress: string, isServed: () => boolean = () => false) {
  const warnings: string[] = [];
  const silent = () => undefined;
  const log = { error: silent, info: silent, debug: silent, warn: (event: string) => void warnings.push(event) };
  const options = { mainAddress, identity: () => IDENTITY, isServed, retryDelayMs: 1, endRefused: null, log };
  return { joining: new JoinLoop({ runtime: RUNTIME, transport: TRANSPORT, ...options }), warnings };
}

describe('a peer that joins main', () => {
  it('reports once that main does not answer, and keeps asking', async () => {
    let looks = 0;
    const { joining, warnings } = loop('127.0.0.1:1', () => {
      looks += 1;
      return false;
    });
    await waitUntil('it has asked again', () => looks > 2);
    await joining.stop();
    assert.deepEqual(warnings, ['main does not answer']);
  });

  it('asks only while main has no stream open to it', async () => {
    let joins = 0;
    let looks = 0;
    let served = true;
    const silent = () => undefined;
    const main = await startRpcServer({
      host: '127.0.0.1',
      port: 0,
      network: NETWORK,
      node: { identify: () => IDENTITY },
      log: { error: silent, warn: silent, info: silent, debug: silent },
      cluster: {
        join: async ({ identity }) => {
          joins += 1;
          return { kind: 'welcome', welcome: { identity, partialPack: false, highestEpoch: 0 } };
        },
        status: () => assert.fail('nobody asks'),
      },
    });
    const { joining } = loop(main.address, () => {
      looks += 1;
      return served;
    });
    await waitUntil('it has looked', () => looks > 3);
    assert.equal(joins, 0);
    served = false;
    await waitUntil('it has joined', () => joins > 0);
    await joining.stop();
    await main.stop();
  });

  for (const hasCertificates of [true, false]) {
    it(`${hasCertificates ? 'ends' : 'does not end, without certificates,'} when main refuses it twice`, async () => {
      const tries: string[] = [];
      const ends: string[] = [];
      const refusal = new OdmoeError('TRUST_REFUSED', 'node tk-14 was removed');
      const codes = [refusal, new OdmoeError('NO_MAIN', 'away'), refusal, refusal];
      const silent = () => undefined;
      const joining = new JoinLoop({
        runtime: RUNTIME,
        mainAddress: 'main:1',
        identity: () => IDENTITY,
        isServed: () => false,
        retryDelayMs: 1,
        endRefused: hasCertificates
          ? ({ code, message }) => void ends.push(`${code}: ${message} at try ${tries.length}`)
          : null,
        transport: {
          call: () => {
            const thrown = codes[tries.length] ?? new OdmoeError('NO_MAIN', 'away');
            tries.push(thrown.code);
            return Promise.reject(thrown);
          },
        },
        log: { error: silent, info: silent, debug: silent, warn: silent },
      });
      await waitUntil('it has asked', () => tries.length > codes.length);
      await joining.stop();
      assert.deepEqual(ends, hasCertificates ? ['NODE_REMOVED: node tk-14 was removed at try 4'] : []);
    });
  }

  it('does not ask again after it is stopped during an attempt', async () => {
    const sockets: Socket[] = [];
    const mute = createServer((socket) => sockets.push(socket));
    await new Promise<void>((resolve) => mute.listen(0, '127.0.0.1', resolve));
    let looks = 0;
    const { joining } = loop(`127.0.0.1:${(mute.address() as AddressInfo).port}`, () => {
      looks += 1;
      return false;
    });
    await waitUntil('it has connected', () => sockets.length > 0);
    await joining.stop();
    const looksAtEnd = looks;
    const connections = sockets.length;
    await delay(100);
    assert.deepEqual([looks, sockets.length], [looksAtEnd, connections]);
    for (const socket of sockets) socket.destroy();
    mute.close();
  });

  it('ends before its daemon must have stopped, also where main accepts the connection and stays silent', async () => {
    const sockets: Socket[] = [];
    const mute = createServer((socket) => sockets.push(socket));
    await new Promise<void>((resolve) => mute.listen(0, '127.0.0.1', resolve));
    const { joining } = loop(`127.0.0.1:${(mute.address() as AddressInfo).port}`);
    await waitUntil('it has connected', () => sockets.length > 0);
    const startedMs = performance.now();
    await joining.stop();
    assert.ok(performance.now() - startedMs < STOP_TIMEOUT_MS / 2);
    for (const socket of sockets) socket.destroy();
    mute.close();
  });
});
