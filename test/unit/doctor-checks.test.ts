import assert from 'node:assert/strict';
import { createServer } from 'node:net';
import { checkClock, checkMemory, checkNodeVersion } from '../../cli/doctor/machine-checks.js';
import { peerCheck, portCheck } from '../../cli/doctor/cluster-checks.js';
import { diagnosePeer } from '../../cli/doctor/peer-diagnosis.js';
import { summarizeHops } from '../../bench/hop/hop-statistics.js';
import { parseClusterConfig } from '../../shared/config/index.js';
import { startRpcServer, type NodeIdentity } from '../../shared/rpc/index.js';

const MAIN: NodeIdentity = {
  id: 'm',
  role: 'ROLE_MAIN',
  cluster: 'lab',
  protocolVersion: 1,
  modelName: 'demo',
  packDigest: 'abc',
  bootId: 'b',
  address: 'h:1',
  device: 'cpu',
};
const WORKER: NodeIdentity = { ...MAIN, id: 'w', role: 'ROLE_WORKER' };
const CANDIDATE = { address: '10.0.0.1:7602', expectedId: null, heardOnly: false };

describe('doctor', () => {
  it('judges the version of Node', () => {
    assert.equal(checkNodeVersion('20.17.0', '20.17').status, 'ok');
    assert.equal(checkNodeVersion('22.1.0', '20.17').status, 'ok');
    assert.equal(checkNodeVersion('20.9.0', '20.17').status, 'fail');
    assert.equal(checkNodeVersion('18.20.0', '20.17').status, 'fail');
  });

  it("judges memory against what this host's nodes may take", () => {
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

  it('judges the clock', () => {
    assert.equal(checkClock(new Date('1970-01-02')).status, 'warn');
    assert.equal(checkClock(new Date('2031-05-05')).status, 'ok');
  });

  it('tells a free port from one that another has', () => {
    assert.equal(portCheck(1, null, { kind: 'refused' }).status, 'ok');
    assert.equal(portCheck(1, 'w', { kind: 'odmoe', identity: WORKER }).status, 'ok');
    assert.equal(portCheck(1, 'x', { kind: 'odmoe', identity: WORKER }).status, 'fail');
    assert.equal(portCheck(1, null, { kind: 'stranger', reason: '' }).status, 'fail');
  });

  it('says why a peer cannot be used', () => {
    const check = (identity: NodeIdentity, cluster: string | null, expectedId: string | null = null) =>
      peerCheck({ ...CANDIDATE, expectedId }, { kind: 'odmoe', identity }, cluster, MAIN);
    assert.equal(check(WORKER, 'lab').status, 'ok');
    assert.match(check({ ...WORKER, cluster: 'den' }, 'lab').found, /another cluster and left alone/);
    const cases: [NodeIdentity, RegExp][] = [
      [{ ...WORKER, cluster: 'den' }, /cluster name is "den" there and "lab" here/],
      [{ ...WORKER, modelName: 'x' }, /model is "x" there/],
      [{ ...WORKER, packDigest: 'x' }, /pack digest is "x" there/],
      [{ ...WORKER, protocolVersion: 9 }, /same version/],
      [{ ...WORKER, id: 'stranger' }, /correct the address/],
    ];
    for (const [identity, advice] of cases) {
      const result = check(identity, 'lab', 'w');
      assert.equal(result.status, 'fail');
      assert.match(result.advice, advice);
    }
  });

  it('says why a peer does not answer; one that is only heard of is no failure', () => {
    const silent = peerCheck(CANDIDATE, { kind: 'silent' }, null, null);
    assert.equal(silent.status, 'fail');
    assert.match(silent.advice, /firewall/);
    assert.match(peerCheck(CANDIDATE, { kind: 'refused' }, null, null).found, /nothing listens/);
    assert.equal(peerCheck({ ...CANDIDATE, heardOnly: true }, { kind: 'refused' }, null, null).status, 'warn');
  });

  it('tells odmoe from a stranger and from nobody', async function () {
    this.timeout(10_000);
    const quiet = () => undefined;
    const network = { keepaliveIntervalMs: 500, keepaliveTimeoutMs: 700, executeTimeoutMs: 1, reconnectDelayMs: 1 };
    const log = { error: quiet, warn: quiet, info: quiet, debug: quiet };
    const server = await startRpcServer({ host: '127.0.0.1', port: 0, network, log, identity: () => MAIN });
    assert.deepEqual(await diagnosePeer(server.address, 2000), { kind: 'odmoe', identity: MAIN });
    await server.stop();
    assert.deepEqual(await diagnosePeer(server.address, 2000), { kind: 'refused' });
    const stranger = createServer((socket) => {
      socket.on('error', quiet);
      socket.end('SSH-2.0-OpenSSH\r\n');
    });
    await new Promise<void>((resolve) => {
      stranger.listen(0, '127.0.0.1', resolve);
    });
    const address = stranger.address();
    assert.ok(address !== null && typeof address === 'object');
    assert.equal((await diagnosePeer(`127.0.0.1:${address.port}`, 2000)).kind, 'stranger');
    stranger.close();
    assert.equal((await diagnosePeer('no-such-host.invalid:7600', 2000)).kind, 'unreachable');
  });
});

describe('statistics of hops', () => {
  it('are the median and the 99th percentile', () => {
    const durations = Array.from({ length: 200 }, (_, index) => 200 - index);
    assert.deepEqual(summarizeHops(durations), { medianUs: 100, p99Us: 198, roundTrips: 200 });
    assert.deepEqual(summarizeHops([]), { medianUs: 0, p99Us: 0, roundTrips: 0 });
  });
});
