import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { GrpcTransport } from '../../shared/transport/grpc-transport.js';
import type { RpcServer } from '../../shared/transport/transport.js';
import { pemOf } from '../../shared/transport/trust/tls-options.js';
import { RUNTIME } from '../wall.js';
import { TestCluster, type TestMember } from './cluster-authority.js';
import { plainIdentity } from './plain-identity.js';

const NETWORK = { keepaliveIntervalMs: 500, keepaliveTimeoutMs: 700, executeTimeoutMs: 1000, reconnectDelayMs: 100 };
const NAME = 'worker.odmoe.internal';
const quiet = (): void => undefined;

/** OpenSSL's own client reads our certificates and our handshake without our code, as a stranger's eye. */
describe('OpenSSL at the port of a cluster with an authority', function () {
  this.timeout(20_000);
  let directory: string;
  let server: RpcServer;
  let cluster: TestCluster;

  before(function () {
    if (spawnSync('openssl', ['version']).status !== 0) this.skip();
  });

  beforeEach(async () => {
    directory = mkdtempSync(join(tmpdir(), 'odmoe-openssl-'));
    cluster = new TestCluster();
    server = await new GrpcTransport(RUNTIME, null, cluster.member('worker', 'jetson-2')).serve({
      host: '127.0.0.1',
      port: 0,
      network: NETWORK,
      log: { error: quiet, warn: quiet, info: quiet, debug: quiet },
      node: { identify: () => plainIdentity() },
    });
  });

  afterEach(async () => {
    await server.stop();
    rmSync(directory, { recursive: true, force: true });
  });

  /** Path of a new file. */
  function fileWith(name: string, text: string): string {
    const path = join(directory, name);
    writeFileSync(path, text, { mode: 0o600 });
    return path;
  }

  /** Arguments with which the client shows a certificate and takes servers of this authority alone. */
  function trustArguments(member: TestMember, authority: Buffer = member.authority): string[] {
    const { key, certificate } = member.own;
    return [
      ['-CAfile', fileWith('authority.pem', pemOf('CERTIFICATE', authority))],
      ['-cert', fileWith('own.pem', pemOf('CERTIFICATE', certificate))],
      ['-key', fileWith('own-key.pem', key.export({ type: 'pkcs8', format: 'pem' }).toString())],
    ].flat();
  }

  /** Dials the server with `openssl s_client`, and ends right after the handshake. */
  function dial(...more: string[]): Promise<{ status: number | null; text: string }> {
    const child = spawn('openssl', ['s_client', '-connect', server.address, '-alpn', 'h2', ...more]);
    let text = '';
    for (const stream of [child.stdout, child.stderr]) stream.on('data', (chunk: Buffer) => (text += chunk.toString()));
    child.stdin.on('error', quiet);
    child.stdin.end();
    return new Promise((resolve, reject) => {
      child.once('error', reject);
      child.once('close', (status) => resolve({ status, text }));
    });
  }

  it('agrees on TLS 1.3 and HTTP/2, and accepts the chain and the dialled name', async () => {
    const trust = trustArguments(cluster.member('main'));
    const { status, text } = await dial('-tls1_3', '-verify_hostname', NAME, '-verify_return_error', ...trust);
    assert.equal(status, 0, text);
    assert.match(text, /Verify return code: 0 \(ok\)/);
    assert.match(text, new RegExp(`Verified peername: ${NAME.replaceAll('.', '\\.')}`));
    assert.match(text, /New, TLSv1\.3, Cipher is TLS_AES_/);
    assert.match(text, /ALPN protocol: h2/);
  });

  it('gets no connection by TLS 1.2', async () => {
    const { status, text } = await dial('-tls1_2', ...trustArguments(cluster.member('main')));
    assert.notEqual(status, 0, text);
    assert.match(text, /alert protocol version/);
  });

  it('does not accept the server with the certificate of another authority, or under a name of another role', async () => {
    const main = cluster.member('main');
    const strange = await dial(
      '-tls1_3',
      '-verify_return_error',
      ...trustArguments(main, new TestCluster().authority.certificate),
    );
    assert.notEqual(strange.status, 0, strange.text);
    assert.match(strange.text, /certificate verify failed/);
    assert.doesNotMatch(strange.text, /Verify return code: 0/);
    const asShadow = ['-verify_hostname', 'shadow.odmoe.internal', '-verify_return_error'];
    const misnamed = await dial('-tls1_3', ...asShadow, ...trustArguments(main));
    assert.notEqual(misnamed.status, 0, misnamed.text);
    assert.match(misnamed.text, /hostname mismatch/i);
  });
});
