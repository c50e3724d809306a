import assert from 'node:assert/strict';
import { setTimeout as delay } from 'node:timers/promises';
import type { Transport } from '../../shared/transport/transport.js';
import type { CertifiedCaller, PeerRole } from '../../shared/transport/trust/peer-role.js';
import { SeededRandom } from '../../shared/base/runtime/seeded-random.js';
import { VirtualClock } from '../../shared/base/runtime/virtual-clock.js';
import { VirtualRuntime } from '../../shared/base/runtime/virtual-runtime.js';
import { DrawnLinks } from '../../simulator/network/link-model.js';
import { MemoryNetwork } from '../../simulator/network/memory-network.js';
import { memoryTransport } from '../../simulator/network/memory-transport.js';
import { TRANSPORT } from '../wall.js';
import { TestCluster } from './cluster-authority.js';

/** Two nodes that reach each other: what one serves and the other asks. */
export interface TransportWorld {
  server: Transport;
  client: Transport;
  /** Host on which the server listens. */
  host: string;
  /** Host of the client, as the server sees it. */
  clientHost: string;
  /** Lets time pass until the condition holds. Fails after `limitMs`. */
  until(isSo: () => boolean, limitMs?: number): Promise<void>;
  /** Lets this time pass. */
  pass(durationMs: number): Promise<void>;
}

const WAIT_LIMIT_MS = 10_000;
const POLL_MS = 2;

export function grpcWorld(): TransportWorld {
  return {
    server: TRANSPORT,
    client: TRANSPORT,
    host: '127.0.0.1',
    clientHost: '127.0.0.1',
    until: async (isSo, limitMs = WAIT_LIMIT_MS) => {
      const untilMs = performance.now() + limitMs;
      while (!isSo() && performance.now() < untilMs) await delay(POLL_MS);
      assert.ok(isSo(), `not so within ${limitMs} ms`);
    },
    pass: (durationMs) => delay(durationMs),
  };
}

/** `caller`: the peer that the client's certificate names; null: the cluster has no authority. `serverRole`: that of the server's certificate. */
export function memoryWorld(caller: CertifiedCaller | null = null, serverRole: PeerRole = 'main'): TransportWorld {
  const clock = new VirtualClock();
  const links = new DrawnLinks(new SeededRandom(1), { latencyMs: 0.1, jitterMs: 0.05, bytesPerMs: 100_000 });
  const network = new MemoryNetwork(clock, links);
  const members = caller && new TestCluster(caller.cluster);
  const transportOf = (host: string, seed: number, role: PeerRole, id: string): Transport =>
    memoryTransport(network, host, new VirtualRuntime(clock, seed), { trust: members?.member(role, id) ?? null });
  const pass = (durationMs: number): Promise<void> => clock.run(() => false, { untilMs: clock.nowMs + durationMs });
  return {
    server: transportOf('server', 1, serverRole, 'server'),
    client: transportOf('client', 2, caller?.role ?? 'main', caller?.id ?? 'client'),
    host: 'server',
    clientHost: 'client',
    until: async (isSo, limitMs = WAIT_LIMIT_MS) => {
      await clock.run(isSo, { untilMs: clock.nowMs + limitMs });
      assert.ok(isSo(), `not so within ${limitMs} ms`);
    },
    pass,
  };
}
