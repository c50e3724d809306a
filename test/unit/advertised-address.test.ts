import assert from 'node:assert/strict';
import { nodeStatuses } from '../../main-node/rpc/node-statuses.js';
import { advertisedAddress, likelyFirst, machineAddress } from '../../engine/daemon/advertised-address.js';
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

describe('the address by which other machines may reach this one', () => {
  const has = (...list: string[]): { name: string; address: string; internal: boolean }[] =>
    list.map((one) => {
      const [name = '', address = ''] = one.split(' ');
      return { name, address, internal: name === 'lo' };
    });

  it('is that of a cable or a radio, before those of VPNs, of containers and of no lease', () => {
    const lan = 'eth0 192.168.1.20';
    for (const other of [
      'lo 127.0.0.1',
      'docker0 172.17.0.1',
      'br-3f2a91c0de77 172.18.0.1',
      'veth12ab34 172.19.0.1',
      'cni0 10.42.0.1',
      'flannel.1 10.42.0.0',
      'cali1234 10.42.0.9',
      'cilium_host 10.0.0.9',
      'kube-ipvs0 10.43.0.1',
      'virbr0 192.168.122.1',
      'lxdbr0 10.5.5.1',
      'podman0 10.88.0.1',
      'l4tbr0 192.168.55.1',
      'usb0 192.168.55.1',
      'wg0 10.8.0.2',
      'tun0 10.9.0.2',
      'tailscale0 100.101.102.103',
      'zt5u4y7n3x 10.147.17.2',
      'eth1 169.254.12.7',
      'wlan0 169.254.12.8',
    ]) {
      assert.equal(machineAddress(has(other, lan), null), '192.168.1.20', other);
    }
  });

  it('is the first of its kind, and any is better than none', () => {
    const all = has('eth1 169.254.1.1', 'docker0 172.17.0.1', 'wg0 10.8.0.2', 'wlp3s0 10.0.0.7', 'enp0s31f6 10.0.0.8');
    assert.deepEqual(
      likelyFirst(all).map(({ name }) => name),
      ['wlp3s0', 'enp0s31f6', 'wg0', 'docker0', 'eth1'],
    );
    assert.equal(machineAddress(has('docker0 172.17.0.1', 'wg0 10.8.0.2'), null), '10.8.0.2');
    assert.equal(machineAddress(has('lo 127.0.0.1', 'eth0 169.254.3.4'), null), '169.254.3.4');
    for (const name of ['eno1', 'enP8p1s0', 'wlan0', 'br0', 'bond0', 'end0', 'ens3']) {
      assert.equal(machineAddress(has('docker0 172.17.0.1', `${name} 10.1.1.1`), null), '10.1.1.1');
    }
  });

  it('is the given one where the machine has it', () => {
    assert.equal(machineAddress(has('eth0 10.0.0.1', 'wg0 10.8.0.2'), '10.8.0.2'), '10.8.0.2');
    assert.equal(machineAddress(has('eth0 10.0.0.1'), '10.8.0.2'), '10.0.0.1');
  });
});
