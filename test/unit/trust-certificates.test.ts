import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { createPublicKey, generateKeyPairSync, X509Certificate, type KeyObject } from 'node:crypto';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { connect, createServer } from 'node:tls';
import fc from 'fast-check';
import {
  ANY_NODE_NAME,
  authorityDigest,
  clusterOfAuthority,
  createAuthority,
  createNodeKey,
  issueCertificate,
  keyDigest,
  nodeName,
  openAuthority,
  readPeerCertificate,
  readPublicKey,
  roleName,
  spkiOf,
  type Authority,
} from '../../shared/transport/trust/certificate.js';
import { bitString, der, objectIdentifier, unsignedInteger } from '../../shared/transport/trust/der.js';
import { PEER_ROLES } from '../../shared/transport/trust/peer-role.js';
import { isRefusal } from '../../shared/transport/trust/refusal.js';

const IDENTIFIERS = fc.stringMatching(/^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$/);
const home = createAuthority('home');
const nodeKey = createNodeKey();
const publicKey = createPublicKey(nodeKey);

/** Reads one value of DER. Returns its tag, its contents and how many bytes its head has. */
function readDer(bytes: Buffer): { tag: number; contents: Buffer; headBytes: number } {
  const first = bytes[1] ?? 0;
  const lengthBytes = first < 0x80 ? 0 : first & 0x7f;
  const length = lengthBytes === 0 ? first : bytes.readUIntBE(2, lengthBytes);
  const headBytes = 2 + lengthBytes;
  assert.equal(bytes.length, headBytes + length, 'the length is that of the contents');
  return { tag: bytes[0] ?? 0, contents: bytes.subarray(headBytes), headBytes };
}

describe('the writer of DER', () => {
  it('writes each length in its shortest form', () => {
    const lengths = fc.oneof(fc.integer({ min: 0, max: 300 }), fc.constantFrom(127, 128, 255, 256, 65_535, 65_536));
    fc.assert(
      fc.property(lengths, (length) => {
        const { tag, contents, headBytes } = readDer(der(0x04, Buffer.alloc(length, 7)));
        assert.equal(tag, 0x04);
        assert.equal(contents.length, length);
        const expected = length < 128 ? 2 : length < 256 ? 3 : length < 65_536 ? 4 : 5;
        assert.equal(headBytes, expected);
      }),
    );
  });

  it('writes whole numbers without a sign, in the fewest bytes', () => {
    fc.assert(
      fc.property(fc.bigInt({ min: 0n, max: 2n ** 160n }), (value) => {
        const hex = value.toString(16);
        const magnitude = Buffer.from(hex.padStart(hex.length + (hex.length % 2) + 4, '0'), 'hex');
        const { contents } = readDer(unsignedInteger(magnitude));
        assert.equal(BigInt(`0x${contents.toString('hex')}`), value);
        assert.ok((contents[0] ?? 0) < 0x80, 'not negative');
        assert.ok(contents.length === 1 || contents[0] !== 0 || (contents[1] ?? 0) >= 0x80, 'no needless byte');
      }),
    );
  });

  it('writes object identifiers and bits as X.690 shows them', () => {
    assert.equal(objectIdentifier('1.2.840.10045.4.3.2').toString('hex'), '06082a8648ce3d040302');
    assert.equal(objectIdentifier('2.999.3').toString('hex'), '0603883703');
    assert.equal(bitString(Buffer.from([0x80]), 7).toString('hex'), '03020780');
  });
});

describe('names of nodes', () => {
  it('are DNS labels of their own for each id', () => {
    assert.equal(nodeName('jetson-2'), 'jetson-2.node.odmoe.internal');
    assert.equal(roleName('shadow'), 'shadow.odmoe.internal');
    fc.assert(
      fc.property(IDENTIFIERS, IDENTIFIERS, (id, other) => {
        const [label = '', ...rest] = nodeName(id).split('.');
        assert.match(label, /^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$/);
        assert.equal(rest.join('.'), ANY_NODE_NAME);
        assert.equal(nodeName(id) === nodeName(other), id === other);
      }),
    );
  });

  it('differ for ids that differ in capitals alone, and for an id that looks like an encoded one', () => {
    assert.notEqual(nodeName('Jetson').toLowerCase(), nodeName('jetson').toLowerCase());
    const [encoded = ''] = nodeName('a_b').split('.');
    assert.notEqual(nodeName(encoded), nodeName('a_b'));
  });
});

describe('certificates', () => {
  it('name the peer that they were made for', () => {
    fc.assert(
      fc.property(
        IDENTIFIERS,
        IDENTIFIERS,
        fc.constantFrom(...PEER_ROLES),
        fc.integer({ min: 1, max: 2 ** 48 - 1 }),
        (cluster, id, role, issuedAt) => {
          const authority = createAuthority(cluster);
          assert.equal(clusterOfAuthority(authority.certificate), cluster);
          const certificate = issueCertificate(authority, { role, id }, publicKey, issuedAt);
          assert.deepEqual(readPeerCertificate(certificate, authority.certificate), {
            cluster,
            role,
            id,
            keyDigest: keyDigest(publicKey),
            issuedAt,
          });
        },
      ),
      { numRuns: 40 },
    );
  });

  it('are dated from 1970 to 9999, and main may be dialled as a worker', () => {
    const { validFrom, validTo, subjectAltName, serialNumber } = new X509Certificate(
      issueCertificate(home, { role: 'main', id: 'box' }, publicKey, 9),
    );
    assert.deepEqual([validFrom, validTo], ['Jan  1 00:00:00 1970 GMT', 'Dec 31 23:59:59 9999 GMT']);
    assert.equal(
      subjectAltName,
      'DNS:box.node.odmoe.internal, DNS:node.odmoe.internal, DNS:main.odmoe.internal, DNS:worker.odmoe.internal, ' +
        'URI:odmoe://home/main/box',
    );
    assert.equal(BigInt(`0x${serialNumber}`) >> 80n, 9n);
  });

  it('are refused if they are of another authority of the same name', () => {
    const other = createAuthority('home');
    const certificate = issueCertificate(other, { role: 'worker', id: 'w1' }, publicKey);
    const answer = readPeerCertificate(certificate, home.certificate);
    assert.ok(isRefusal(answer));
    assert.match(answer.refusal, /not of the authority of "home" \([0-9a-f]{16}\)/);
  });

  it('are refused with any byte changed, cut short, or followed by another byte', () => {
    const certificate = issueCertificate(home, { role: 'worker', id: 'w1' }, publicKey);
    const isRefused = (bytes: Buffer): boolean => isRefusal(readPeerCertificate(bytes, home.certificate));
    assert.equal(isRefused(certificate), false);
    for (let place = 0; place < certificate.length; place++) {
      const changed = Buffer.from(certificate);
      changed[place] = (changed[place] ?? 0) ^ 0x01;
      assert.ok(isRefused(changed), `byte ${place} changed`);
    }
    assert.ok(isRefused(certificate.subarray(0, -1)));
    assert.ok(isRefused(Buffer.concat([certificate, Buffer.from([0])])));
    const pem = new X509Certificate(certificate).toString();
    assert.ok(isRefused(Buffer.from(pem)), 'PEM');
    assert.ok(isRefused(Buffer.alloc(100_000)), 'too long');
  });

  it("refuse the authority's own certificate as a peer's", () => {
    assert.ok(isRefusal(readPeerCertificate(home.certificate, home.certificate)));
  });

  it('are made for ids and keys of the right kind only', () => {
    assert.throws(() => issueCertificate(home, { role: 'worker', id: 'a/b' }, publicKey), /the id "a\/b"/);
    for (const wrong of [
      generateKeyPairSync('ec', { namedCurve: 'P-384' }).publicKey,
      generateKeyPairSync('ed25519').publicKey,
    ]) {
      assert.throws(() => issueCertificate(home, { role: 'worker', id: 'a' }, wrong), /not on P-256/);
      assert.ok(isRefusal(readPublicKey(wrong.export({ type: 'spki', format: 'der' }))));
    }
    assert.throws(() => createAuthority('two words'));
  });

  it('take public keys in one form', () => {
    const spki = spkiOf(publicKey);
    const read = readPublicKey(spki);
    assert.ok(!isRefusal(read));
    assert.equal(keyDigest(read), keyDigest(publicKey));
    // The same point compressed: its parity, and its x alone.
    const point = spki.subarray(-65);
    const compressed = Buffer.concat([Buffer.from([2 + ((point[64] ?? 0) & 1)]), point.subarray(1, 33)]);
    const algorithm = spki.subarray(2, -68);
    const short = der(0x30, algorithm, bitString(compressed));
    assert.equal(createPublicKey({ key: short, type: 'spki', format: 'der' }).asymmetricKeyType, 'ec');
    for (const wrong of [short, Buffer.concat([spki, Buffer.from([0])]), spki.subarray(1), Buffer.alloc(0)]) {
      assert.ok(isRefusal(readPublicKey(wrong)));
    }
  });
});

describe('an authority', () => {
  it('is opened from its key and certificate, and from no others', () => {
    assert.deepEqual(openAuthority(home.key, home.certificate), home);
    assert.ok(isRefusal(openAuthority(createNodeKey(), home.certificate)));
    const leaf = issueCertificate(home, { role: 'main', id: 'm' }, publicKey);
    assert.ok(isRefusal(openAuthority(nodeKey, leaf)));
    assert.equal(clusterOfAuthority(leaf), null);
    assert.equal(clusterOfAuthority(Buffer.from('no certificate')), null);
    assert.match(authorityDigest(home.certificate), /^[0-9a-f]{64}$/);
  });
});

describe('OpenSSL', () => {
  let folder = '';
  const file = (name: string, contents: string | Buffer): string => {
    const path = join(folder, name);
    writeFileSync(path, contents);
    return path;
  };
  const openssl = (...words: string[]): { text: string; status: number | null } => {
    const { stdout, stderr, status } = spawnSync('openssl', words, { encoding: 'utf8' });
    return { text: `${stdout}${stderr}`, status };
  };
  const pem = (certificate: Buffer): string => new X509Certificate(certificate).toString();

  before(function () {
    if (spawnSync('openssl', ['version']).status !== 0) this.skip();
    folder = mkdtempSync(join(tmpdir(), 'odmoe-certificates-'));
    file('authority.pem', pem(home.certificate));
  });
  after(() => {
    if (folder !== '') rmSync(folder, { recursive: true });
  });

  const verify = (path: string, ...words: string[]): { text: string; status: number | null } =>
    openssl('verify', '-x509_strict', '-CAfile', join(folder, 'authority.pem'), ...words, path);

  it('verifies them strictly, at any time, for the purposes and names that they have and no others', () => {
    const worker = file('worker.pem', pem(issueCertificate(home, { role: 'worker', id: 'Jetson_2' }, publicKey, 3)));
    for (const words of [
      [],
      ['-attime', '1'],
      ['-attime', String(Date.UTC(2100, 0) / 1000)],
      ['-purpose', 'sslserver', '-verify_hostname', nodeName('Jetson_2')],
      ['-purpose', 'sslclient', '-verify_hostname', 'worker.odmoe.internal'],
    ]) {
      const { text, status } = verify(worker, ...words);
      assert.equal(status, 0, text);
    }
    assert.notEqual(verify(worker, '-verify_hostname', 'main.odmoe.internal').status, 0);
    const operator = file('operator.pem', pem(issueCertificate(home, { role: 'operator', id: 'ann' }, publicKey)));
    assert.equal(verify(operator, '-purpose', 'sslclient').status, 0);
    assert.notEqual(verify(operator, '-purpose', 'sslserver').status, 0);
    const strange = file(
      'strange.pem',
      pem(issueCertificate(createAuthority('home'), { role: 'main', id: 'm' }, publicKey)),
    );
    assert.notEqual(verify(strange).status, 0);
  });

  it('reads every field as it was meant', () => {
    const path = file('main.pem', pem(issueCertificate(home, { role: 'main', id: 'box' }, publicKey, 2)));
    const text = openssl('x509', '-in', path, '-noout', '-text').text.replace(/\s+/g, ' ');
    for (const part of [
      'Version: 3 (0x2)',
      'Signature Algorithm: ecdsa-with-SHA256',
      'Issuer: O = home, CN = odmoe authority',
      'Subject: O = home, OU = main, CN = box',
      'ASN1 OID: prime256v1',
      'X509v3 Basic Constraints: critical CA:FALSE',
      'X509v3 Key Usage: critical Digital Signature X509v3',
      'X509v3 Extended Key Usage: TLS Web Server Authentication, TLS Web Client Authentication',
      'X509v3 Subject Key Identifier:',
      'X509v3 Authority Key Identifier:',
      'URI:odmoe://home/main/box',
    ]) {
      assert.ok(text.includes(part), `${part} in ${text}`);
    }
    const root = openssl('x509', '-in', join(folder, 'authority.pem'), '-noout', '-text').text.replace(/\s+/g, ' ');
    assert.ok(root.includes('Basic Constraints: critical CA:TRUE, pathlen:0'), root);
    assert.ok(root.includes('Key Usage: critical Certificate Sign'), root);
  });

  it("makes certificates in the authority's name that are refused, whatever their keys are", () => {
    const kinds = ['rsa:2048', 'ed25519', 'ec -pkeyopt ec_paramgen_curve:P-384', 'ec -pkeyopt ec_paramgen_curve:P-256'];
    for (const kind of [...kinds, 'ec -pkeyopt ec_paramgen_curve:P-256 -pkeyopt ec_param_enc:explicit']) {
      const path = join(folder, 'forged.pem');
      const fixed = `req -x509 -nodes -newkey ${kind} -days 1 -addext basicConstraints=critical,CA:FALSE`.split(' ');
      const names = ['-subj', '/O=home/CN=odmoe authority', '-addext', 'subjectAltName=URI:odmoe://home/worker/w1'];
      const { text, status } = openssl(...fixed, ...names, '-out', path, '-keyout', join(folder, 'forged.key'));
      assert.equal(status, 0, text);
      const forged = new X509Certificate(readFileSync(path));
      assert.ok(isRefusal(readPeerCertificate(forged.raw, home.certificate)), kind);
    }
  });

  it('keeps two nodes apart in a handshake of TLS 1.3 with both certificates', async () => {
    const keyPem = (key: KeyObject): string => key.export({ type: 'pkcs8', format: 'pem' }) as string;
    const server = createServer({
      minVersion: 'TLSv1.3',
      ca: pem(home.certificate),
      cert: pem(issueCertificate(home, { role: 'main', id: 'box' }, publicKey)),
      key: keyPem(nodeKey),
      requestCert: true,
      rejectUnauthorized: true,
    });
    const seen: string[] = [];
    server.on('secureConnection', (socket) => {
      const answer = readPeerCertificate(socket.getPeerCertificate().raw, home.certificate);
      seen.push(isRefusal(answer) ? answer.refusal : `${answer.role} ${answer.id}`);
      socket.end();
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    const address = server.address();
    assert.ok(address !== null && typeof address === 'object');
    const clientKey = createNodeKey();
    const cert = pem(issueCertificate(home, { role: 'worker', id: 'w1' }, createPublicKey(clientKey)));
    const dial = (servername: string): Promise<string> =>
      new Promise((resolve) => {
        const socket = connect({
          host: '127.0.0.1',
          port: address.port,
          servername,
          minVersion: 'TLSv1.3',
          ca: pem(home.certificate),
          cert,
          key: keyPem(clientKey),
        });
        socket.on('error', (thrown: NodeJS.ErrnoException) => resolve(thrown.code ?? thrown.message));
        socket.resume().on('end', () => resolve('served'));
      });
    try {
      assert.equal(await dial('main.odmoe.internal'), 'served');
      assert.equal(await dial('shadow.odmoe.internal'), 'ERR_TLS_CERT_ALTNAME_INVALID');
      assert.ok(seen.includes('worker w1'), seen.join());
      const client = file('client.pem', `${cert}${keyPem(clientKey)}`);
      // The server runs in this process, so the client of OpenSSL must not block it.
      const process = spawn('openssl', [
        's_client',
        '-connect',
        `127.0.0.1:${address.port}`,
        '-servername',
        'main.odmoe.internal',
        '-verify_hostname',
        'main.odmoe.internal',
        '-CAfile',
        join(folder, 'authority.pem'),
        '-cert',
        client,
        '-key',
        client,
        '-verify_return_error',
      ]);
      process.stdin.end();
      let text = '';
      process.stdout.on('data', (part: Buffer) => (text += part.toString()));
      const status = await new Promise((resolve) => process.on('close', resolve));
      assert.equal(status, 0, text);
      assert.match(text, /Verify return code: 0 \(ok\)/);
      assert.match(text, /TLSv1\.3/);
    } finally {
      server.close();
    }
  });

  it('serves a client of ours by openssl s_server, and asks for its certificate', async () => {
    const serverKey = createNodeKey();
    const keyPem = (key: KeyObject): string => key.export({ type: 'pkcs8', format: 'pem' }) as string;
    const main = file(
      'server.pem',
      `${pem(issueCertificate(home, { role: 'main', id: 'box' }, createPublicKey(serverKey)))}${keyPem(serverKey)}`,
    );
    const authority = join(folder, 'authority.pem');
    const fixed = 's_server -accept 127.0.0.1:0 -tls1_3 -Verify 1 -verify_return_error -naccept 2 -www'.split(' ');
    const server = spawn('openssl', [...fixed, '-cert', main, '-key', main, '-CAfile', authority]);
    const closed = new Promise((resolve) => server.on('close', resolve));
    const port = await new Promise<number>((resolve, reject) => {
      let text = '';
      server.stdout.on('data', (part: Buffer) => {
        text += part.toString();
        const found = /ACCEPT 127\.0\.0\.1:(\d+)/.exec(text)?.[1];
        if (found !== undefined) resolve(Number(found));
      });
      server.on('error', reject);
    });
    const ask = (authorityOfClient: Authority): Promise<string> =>
      new Promise((resolve) => {
        const socket = connect({
          host: '127.0.0.1',
          port,
          servername: 'main.odmoe.internal',
          minVersion: 'TLSv1.3',
          ca: pem(home.certificate),
          cert: pem(issueCertificate(authorityOfClient, { role: 'worker', id: 'w1' }, publicKey)),
          key: keyPem(nodeKey),
        });
        let text = '';
        socket.on('data', (part: Buffer) => (text += part.toString()));
        socket.on('error', (thrown: NodeJS.ErrnoException) => resolve(thrown.code ?? thrown.message));
        socket.on('end', () => resolve(text));
        socket.write('GET / HTTP/1.0\r\n\r\n');
      });
    try {
      const page = await ask(home);
      assert.match(page, /HTTP\/1\.0 200/);
      assert.match(page, /OU ?= ?worker, CN ?= ?w1/);
      assert.doesNotMatch(await ask(createAuthority('home')), /200/);
    } finally {
      server.kill();
      await closed;
    }
  });
});
