import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { checkCuda, cudaJson } from '../../cli/doctor/cuda-check.js';
import { checkMemory, checkNodeVersion } from '../../cli/doctor/machine-checks.js';
import { deviceCheck, elsewhereCheck, peerCheck, portCheck } from '../../cli/doctor/cluster-checks.js';
import { diagnosePeer } from '../../cli/doctor/diagnose-peer.js';
import { identitiesOnce } from '../../cli/doctor/own-identities.js';
import type { CudaDevice, CudaStatus } from '../../native/index.js';
import { summarizeHops } from '../../bench/hop/measure-hops.js';
import { packageRoot } from '../../shared/base/files/package-root.js';
import { parseClusterConfig } from '../../shared/settings/load-cluster-config.js';
import { emptyNodeStatus } from '../../shared/wire/node-status.js';
import type { NodeIdentity } from '../../shared/wire/messages.js';
import { startRpcServer } from '../wall.js';
import { plainIdentity } from './plain-identity.js';

const MAIN: NodeIdentity = plainIdentity({
  id: 'm',
  role: 'ROLE_MAIN',
  cluster: 'lab',
  modelName: 'demo',
  packDigest: 'abc',
  address: 'h:1',
});
const WORKER: NodeIdentity = { ...MAIN, id: 'w', role: 'ROLE_WORKER' };
const GPU: CudaDevice = {
  index: 0,
  name: 'NVIDIA GeForce RTX 3090',
  capability: '8.6',
  memoryBytes: 24 * 2 ** 30,
  multiprocessors: 82,
  integrated: false,
  pagedMemory: true,
  usable: true,
  reason: null,
};

function cudaWith(changes: Partial<CudaStatus>): CudaStatus {
  return {
    built: true,
    library: '/lib/x.so',
    architectures: ['sm_86'],
    usable: true,
    reason: null,
    driverVersion: '13.0',
    runtimeVersion: '12.4',
    devices: [GPU],
    ...changes,
  };
}

const CANDIDATE = { address: '10.0.0.1:7602', expectedId: null, heardOnly: false };

describe('odmoe doctor:', () => {
  it('the check of Node judges its version', () => {
    assert.equal(checkNodeVersion('20.17.0', '20.17').status, 'ok');
    assert.equal(checkNodeVersion('22.1.0', '20.17').status, 'ok');
    assert.equal(checkNodeVersion('20.9.0', '20.17').status, 'fail');
    assert.equal(checkNodeVersion('18.20.0', '20.17').status, 'fail');
  });

  it("the check of memory compares it with the budgets of this host's nodes", () => {
    const config = parseClusterConfig(
      'nodes: [{id: a, role: worker, memory_budget: 4 GiB}, {id: b, role: worker}, {id: c, role: worker, host: 192.0.2.77}]',
      'c.yaml',
    );
    const gibibytes = (total: number, free: number) => ({ totalBytes: total * 2 ** 30, freeBytes: free * 2 ** 30 });
    assert.equal(checkMemory(config, gibibytes(8, 5)).status, 'ok');
    assert.equal(checkMemory(config, gibibytes(8, 4)).status, 'warn');
    const short = checkMemory(config, gibibytes(4, 4));
    assert.equal(short.status, 'fail');
    assert.match(short.found, /5 GiB/);
  });

  it('the check of CUDA reports what exists, and warns only about a GPU that cannot be used', () => {
    const used = checkCuda(cudaWith({}), null);
    assert.equal(used.status, 'ok');
    for (const fact of [
      'cuda:0',
      'RTX 3090',
      '8.6',
      '24 GiB',
      '82 multiprocessors',
      'paged',
      '13.0',
      '12.4',
      '/lib/x.so',
    ]) {
      assert.ok(used.found.includes(fact), `${fact} in ${used.found}`);
    }
    const unbuilt = { built: false, architectures: [], runtimeVersion: null, driverVersion: null };
    const none = { usable: false, devices: [], reason: 'because' };
    const ordinary = [
      { ...none, ...unbuilt },
      { ...none, driverVersion: null },
      { ...none, driverVersion: '13.0', reason: 'because of no device (cudaErrorNoDevice)' },
    ];
    for (const changes of ordinary) {
      const check = checkCuda(cudaWith(changes), null);
      assert.equal(check.status, 'ok');
      assert.match(check.found, /because/);
    }
    const unused = checkCuda(cudaWith({ ...none, ...unbuilt }), '/dev/nvidiactl');
    assert.equal(unused.status, 'warn');
    assert.match(unused.found, /a GPU \(\/dev\/nvidiactl\): because/);
    assert.match(unused.advice, /`odmoe setup --cuda`/);
    const old = checkCuda(cudaWith({ ...none, driverVersion: '11.0' }), null);
    assert.deepEqual([old.status, /newer NVIDIA driver/.test(old.advice)], ['warn', true]);
    const broken = checkCuda(
      cudaWith({ ...none, reason: 'initialization error (cudaErrorInitializationError)' }),
      null,
    );
    assert.deepEqual([broken.status, /nvidia-smi/.test(broken.advice)], ['warn', true]);
    const reason = 'no code for sm_50';
    const foreign = checkCuda(
      cudaWith({ usable: false, reason, devices: [{ ...GPU, capability: '5.0', usable: false, reason }] }),
      null,
    );
    assert.equal(foreign.status, 'warn');
    assert.match(foreign.found, /no code for sm_50/);
    assert.match(foreign.advice, /npm run build/);
  });

  it('the JSON output has the same CUDA facts, in snake_case', () => {
    const json = cudaJson(cudaWith({})) as Record<string, unknown>;
    assert.deepEqual(Object.keys(json).sort(), [
      'architectures',
      'built',
      'devices',
      'driver_version',
      'library',
      'reason',
      'runtime_version',
      'usable',
    ]);
    assert.deepEqual(Object.keys(cudaJson(null) as object).sort(), Object.keys(json).sort());
    assert.deepEqual((json['devices'] as { memory_bytes: number }[])[0]?.memory_bytes, GPU.memoryBytes);
  });

  it('the check of nodes shows the device of each node, and the reason', () => {
    const device = 'cuda sm_86, 82 multiprocessors';
    const status = { ...emptyNodeStatus({ ...WORKER, device }), deviceName: GPU.name, deviceReason: 'as configured' };
    const { name, status: verdict, found } = deviceCheck(status);
    assert.deepEqual([name, verdict], ['device of w', 'ok']);
    assert.equal(found, `${device} (${GPU.name}): as configured`);
  });

  it('the check of ports distinguishes a free port from a used one', () => {
    assert.equal(portCheck(1, null, { kind: 'refused' }).status, 'ok');
    assert.equal(portCheck(1, 'w', { kind: 'odmoe', identity: WORKER, shown: null }).status, 'ok');
    assert.equal(portCheck(1, 'x', { kind: 'odmoe', identity: WORKER, shown: null }).status, 'fail');
    assert.equal(portCheck(1, null, { kind: 'stranger', reason: '' }).status, 'fail');
  });

  it('the check of peers explains why a peer cannot be used', () => {
    const check = (identity: NodeIdentity, cluster: string | null, expectedId: string | null = null) =>
      peerCheck({ ...CANDIDATE, expectedId }, { kind: 'odmoe', identity, shown: null }, cluster, MAIN);
    assert.equal(check(WORKER, 'lab').status, 'ok');
    assert.match(check({ ...WORKER, cluster: 'den' }, 'lab').found, /another cluster and left alone/);
    const cases: [NodeIdentity, RegExp][] = [
      [{ ...WORKER, cluster: 'den' }, /cluster name is "den" there and "lab" here/],
      [{ ...WORKER, modelName: 'x' }, /model is "x" there/],
      [{ ...WORKER, packDigest: 'x' }, /pack digest is "x" there/],
      [{ ...WORKER, protocolVersion: 9 }, /update odmoe on the older/],
      [{ ...WORKER, id: 'stranger' }, /correct the address/],
    ];
    for (const [identity, advice] of cases) {
      const result = check(identity, 'lab', 'w');
      assert.equal(result.status, 'fail');
      assert.match(result.advice, advice);
    }
  });

  it('the checks of ports and peers know a daemon that is closed to this machine by its certificate', () => {
    const shown = { peer: { cluster: 'lab', role: 'worker', id: 'w' }, certificate: Buffer.alloc(0) } as const;
    const closed = { kind: 'closed', shown: { ...shown, authority: null, clocks: null } } as const;
    assert.deepEqual(
      [portCheck(1, null, closed), portCheck(1, 'w', closed), portCheck(1, 'x', closed)].map(({ status }) => status),
      ['ok', 'ok', 'fail'],
    );
    const check = (expectedId: string | null, cluster: string) =>
      peerCheck({ ...CANDIDATE, expectedId }, closed, cluster, null);
    assert.match(check(null, 'lab').found, /worker "w" of cluster "lab".*tells no more to this machine/);
    assert.match(check(null, 'den').found, /another cluster and left alone/);
    assert.match(check('x', 'lab').advice, /correct the address/);
  });

  it('a daemon on the loopback of another host is named, with what to do', () => {
    const heard = { id: 'w', role: 'worker', cluster: 'lab', address: '10.0.0.1:7602', authority: null } as const;
    const more = { protocolVersion: 1, newestProtocol: 1, modelName: '', packDigest: '', bootId: 'b' };
    const check = elsewhereCheck({ ...heard, ...more });
    assert.deepEqual([check.name, check.status], ['peer 10.0.0.1:7602', 'warn']);
    assert.match(`${check.found} ${check.advice}`, /loopback of its own host.*--lan/);
  });

  it('the check of peers explains a silent peer; one known by hearsay is no failure', () => {
    const silent = peerCheck(CANDIDATE, { kind: 'silent' }, null, null);
    assert.equal(silent.status, 'fail');
    assert.match(silent.advice, /firewall/);
    assert.match(peerCheck(CANDIDATE, { kind: 'refused' }, null, null).found, /nothing listens/);
    assert.equal(peerCheck({ ...CANDIDATE, heardOnly: true }, { kind: 'refused' }, null, null).status, 'warn');
  });

  it('the check of peers distinguishes odmoe from another program and from a closed port', async function () {
    this.timeout(10_000);
    const quiet = () => undefined;
    const network = { keepaliveIntervalMs: 500, keepaliveTimeoutMs: 700, executeTimeoutMs: 1, reconnectDelayMs: 1 };
    const log = { error: quiet, warn: quiet, info: quiet, debug: quiet };
    const server = await startRpcServer({ host: '127.0.0.1', port: 0, network, log, node: { identify: () => MAIN } });
    assert.deepEqual(await diagnosePeer(server.address, 2000, identitiesOnce()), {
      kind: 'odmoe',
      identity: MAIN,
      shown: null,
    });
    await server.stop();
    assert.deepEqual(await diagnosePeer(server.address, 2000, identitiesOnce()), { kind: 'refused' });
    const stranger = createServer((socket) => {
      socket.on('error', quiet);
      socket.end('SSH-2.0-OpenSSH\r\n');
    });
    await new Promise<void>((resolve) => {
      stranger.listen(0, '127.0.0.1', resolve);
    });
    const address = stranger.address();
    assert.ok(address !== null && typeof address === 'object');
    assert.equal((await diagnosePeer(`127.0.0.1:${address.port}`, 2000, identitiesOnce())).kind, 'stranger');
    stranger.close();
    assert.equal((await diagnosePeer('no-such-host.invalid:7600', 2000, identitiesOnce())).kind, 'unreachable');
  });
});

describe('the odmoe doctor command', () => {
  it('exits with status 3 when a check fails, and names the check', () => {
    const odmoe = join(packageRoot(), 'bin', 'odmoe');
    const args = ['doctor', '--config', '/nowhere/cluster.yaml', '--main', '127.0.0.1:1', '--timeout', '100', '--json'];
    const { status, stdout } = spawnSync(process.execPath, [odmoe, ...args], { encoding: 'utf8' });
    const { checks } = JSON.parse(stdout) as { checks: { name: string; status: string }[] };
    assert.equal(checks.find(({ name }) => name === 'configuration')?.status, 'fail');
    assert.equal(status, 3);
  });
});

describe('hop statistics', () => {
  it('are the 10th percentile, the median and the 99th percentile', () => {
    const durations = Array.from({ length: 200 }, (_, index) => 200 - index);
    assert.deepEqual(summarizeHops(durations), { p10Us: 20, medianUs: 100, p99Us: 198, roundTrips: 200 });
    assert.deepEqual(summarizeHops([]), { p10Us: 0, medianUs: 0, p99Us: 0, roundTrips: 0 });
  });
});
