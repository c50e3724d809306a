import assert from 'node:assert/strict';
import { X509Certificate } from 'node:crypto';
import { certifyHopPeer, createHopAuthority, openHopTrust, sealHopTrust } from '../../bench/hop/hop-trust.js';
import { hopsJson, hopsTable } from '../../bench/hop/hops-table.js';
import { compareHops } from '../../bench/hop/measure-hops.js';
import { readPeerCertificate } from '../../shared/transport/trust/certificate.js';
import { isRefusal } from '../../shared/transport/trust/refusal.js';

const times = (medianUs: number, p10Us: number, processorUs: number) => ({
  p10Us,
  medianUs,
  p99Us: 900,
  roundTrips: 50,
  processorUs,
});
const ROW = compareHops(
  { name: '8 KB', bytes: 8192, workers: 1 },
  { tcp: times(50, 40, 60), grpc: times(100, 80, 120), tls: times(150, 100, 156) },
);

describe('bench hop', () => {
  it('compares TLS with gRPC in plaintext, and that with TCP', () => {
    assert.deepEqual([ROW.ratio, ROW.tlsRatio, ROW.tlsP10Ratio], [2, 1.5, 1.25]);
  });

  it('shows times of each way and ratios of each case', () => {
    const lines = hopsTable([ROW]).split('\n');
    const cells = lines.map((line) => line.trim().split(/ {2,}/));
    assert.deepEqual(cells.slice(0, 7), [
      ['microseconds', 'p10', 'median', 'p99', 'CPU'],
      ['8 KB, TCP', '40', '50', '900', '60'],
      ['8 KB, gRPC', '80', '100', '900', '120'],
      ['8 KB, TLS', '100', '150', '900', '156'],
      [''],
      ['ratio', 'gRPC/TCP', 'TLS/gRPC', 'p10', 'CPU'],
      ['8 KB', '2.00', '1.50', '1.25', '1.30'],
    ]);
  });

  it('prints JSON with the names of the history', () => {
    const tcp = { p10_us: 40, median_us: 50, p99_us: 900, round_trips: 50, processor_us: 60 };
    const { hops } = hopsJson([ROW]) as { hops: Record<string, unknown>[] };
    assert.deepEqual(hops[0]?.['tcp'], tcp);
    assert.deepEqual([hops[0]['ratio'], hops[0]['tls_ratio'], hops[0]['tls_p10_ratio']], [2, 1.5, 1.25]);
  });

  it('hands an echo process its key and certificate in one line, and no key of the authority', () => {
    const authority = createHopAuthority();
    const trust = certifyHopPeer(authority, 'worker', 'echo');
    const line = sealHopTrust(trust);
    assert.ok(!line.includes('\n'));
    assert.ok(!line.includes(authority.key.export({ type: 'pkcs8', format: 'der' }).toString('base64')));
    const { own, authority: sent } = openHopTrust(line);
    assert.ok(new X509Certificate(own.certificate).checkPrivateKey(own.key));
    const peer = readPeerCertificate(own.certificate, sent);
    assert.ok(!isRefusal(peer));
    assert.deepEqual([peer.cluster, peer.role, peer.id], ['bench', 'worker', 'echo']);
  });
});
