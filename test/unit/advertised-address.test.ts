import assert from 'node:assert/strict';
import { nodeStatuses } from '../../main-node/rpc/node-statuses.js';
import { advertisedAddress } from '../../engine/daemon/advertised-address.js';
import { emptyNodeStatus } from '../../shared/wire/node-status.js';
import type { NodeIdentity } from '../../shared/wire/messages.js';
import { testSettings } from '../integration/harness/test-settings.js';
import { fetchStatus, startRpcServer } from '../wall.js';
import { plainIdentity } from './plain-identity.js';

const SILENT = { error: () => undefined, warn: () => undefined, info: () => undefined, debug: () => undefined };

const identity = (id: string, role: NodeIdentity['role'], address: string): NodeIdentity =>
  plainIdentity({ id, role, address });

describe('the address that a daemon advertises', () => {
  it('names a host that peers can dial, or names none', () => {
    for (const [advertiseHost, listenHost, expected] of [
      ['box1', '0.0.0.0', 'box1:7600'],
      [null, '192.168.1.20', '192.168.1.20:7600'],
      [null, 'fe80::1', '[fe80::1]:7600'],
      [null, '0.0.0.0', ':7600'],
      [null, '::', ':7600'],
      ['0.0.0.0', '0.0.0.0', ':7600'],
    ] as const) {
      assert.equal(advertisedAddress({ advertiseHost, listenHost }, 7600), expected);
    }
  });

  it('takes the host by which main dialled the peer, in the status', () => {
    const link = (id: string, advertised: string, address: string, hasReported: boolean) => {
      const own = identity(id, 'ROLE_WORKER', advertised);
      return { id, identity: own, address, status: hasReported ? emptyNodeStatus(own) : null };
    };
    const statuses = nodeStatuses(
      identity('main', 'ROLE_MAIN', ':7600'),
      {
        device: {
          info: () => ({
            usedBytes: 0,
            highWaterBytes: 0,
            budgetBytes: 0,
            name: '',
            contextBytes: 0,
            driverUsedBytes: null,
          }),
        },
        deviceReason: 'as configured',
        weightBytes: 0,
        weightFormat: 'bf16',
      },
      {
        epoch: 1,
        connectedShadows: () => [],
        connectedWorkers: () => [
          link('a', ':7601', '10.0.0.5:7601', true),
          link('b', ':7601', '10.0.0.6:7601', false),
          link('c', 'box:7601', '10.0.0.7:7601', true),
        ],
      },
      { uptimeMs: 0, memoryBytes: 0 },
      { keyValueBytes: 0, prefixBytes: 0 },
    );
    assert.deepEqual(
      statuses.map((status) => status.identity.address),
      [':7600', '10.0.0.5:7601', '10.0.0.6:7601', 'box:7601'],
    );
  });

  it('takes the host at which main was asked for its status, where main advertises none', async () => {
    const own = identity('main', 'ROLE_MAIN', ':7600');
    const nothing = {
      placement: null,
      problems: [],
      activeSequences: 0,
      queuedRequests: 0,
      requests: 0,
      tokens: 0,
      groupReason: '',
      workerHops: [],
      passes: null,
      ownWorkerId: '',
      layerWaits: [],
      workerWaits: [],
      links: [],
      httpAddress: '',
    };
    const server = await startRpcServer({
      host: '127.0.0.1',
      port: 0,
      network: testSettings('main', '/nowhere').network,
      log: SILENT,
      node: { identify: () => own },
      cluster: {
        join: async () => ({ kind: 'welcome', welcome: { identity: own, partialPack: false, highestEpoch: 0 } }),
        status: async () => ({ nodes: [emptyNodeStatus(own)], ...nothing }),
      },
    });
    try {
      const status = await fetchStatus(server.address, 5000);
      assert.equal(status.nodes[0]?.identity.address, server.address);
    } finally {
      await server.stop();
    }
  });
});
