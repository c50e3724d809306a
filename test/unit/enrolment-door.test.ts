import assert from 'node:assert/strict';
import { connect, type TLSSocket } from 'node:tls';
import { joinByToken } from '../../engine/trust/enrol.js';
import { ENROLMENT_PATHS } from '../../engine/trust/enrolment-messages.js';
import { ENROLMENT_PROTOCOL } from '../../shared/transport/trust/tls-options.js';
import {
  ENROLMENT_BODY_LIMIT_BYTES,
  ENROLMENT_CONNECTIONS_LIMIT,
  ENROLMENT_REQUESTS_LIMIT,
  ENROLMENT_TRIES,
  REFUSED_CONNECTIONS_LIMIT,
} from '../../shared/wire/limits.js';
import { RUNTIME } from '../wall.js';
import { EnrolmentMain, machineOf } from './enrolment-main.js';

/** The reply that a foreign program gets at the door for machines. */
class Stranger {
  text = '';
  readonly closed: Promise<void>;

  private constructor(readonly socket: TLSSocket) {
    socket.on('error', () => undefined);
    socket.on('data', (data: Buffer) => (this.text += data.toString()));
    this.closed = new Promise((resolve) => socket.on('close', () => resolve()));
  }

  static open(address: string, more: object = {}): Promise<Stranger> {
    const [host, port] = address.split(':');
    return new Promise((resolve, reject) => {
      const options = { host, port: Number(port), rejectUnauthorized: false, ALPNProtocols: [ENROLMENT_PROTOCOL] };
      const socket = connect({ ...options, ...more }, () => resolve(new Stranger(socket)));
      socket.once('error', reject);
    });
  }

  send(path: string, body: string, method = 'POST', headers = ''): this {
    const length = `content-length: ${Buffer.byteLength(body)}\r\n`;
    this.socket.write(`${method} ${path} HTTP/1.1\r\nhost: main\r\n${length}${headers}\r\n${body}`);
    return this;
  }

  /** Waits for the reply with this number, from 1. */
  async reply(count = 1): Promise<{ status: number; code: string; message: string }> {
    let replies: RegExpMatchArray[] = [];
    while (replies.length < count) {
      assert.ok(!this.socket.destroyed, `the connection ended after ${JSON.stringify(this.text)}`);
      await RUNTIME.sleep(2);
      replies = [...this.text.matchAll(/HTTP\/1\.1 (\d+) [^]*?\r\n\r\n(\{.*?\}(?=HTTP|$))/g)];
    }
    const [, status, body = ''] = replies[count - 1] ?? [];
    const { error = { code: '', message: '' } } = JSON.parse(body) as { error?: { code: string; message: string } };
    return { status: Number(status), ...error };
  }
}

describe('door for machines that want in', () => {
  let main: EnrolmentMain;
  let strangers: Stranger[];

  beforeEach(async () => {
    strangers = [];
    main = await new EnrolmentMain().start();
  });

  afterEach(async () => {
    for (const { socket } of strangers) socket.destroy();
    await main.stop();
  });

  async function stranger(more: object = {}): Promise<Stranger> {
    const opened = await Stranger.open(main.address, more);
    strangers.push(opened);
    return opened;
  }

  async function expectRefusal(asker: Stranger, expected: readonly [number, string, RegExp], count = 1): Promise<void> {
    const { status, code, message } = await asker.reply(count);
    const [wantedStatus, wantedCode, words] = expected;
    assert.deepEqual([status, code, words.test(message)], [wantedStatus, wantedCode, true], message);
    assert.ok(!asker.text.includes('.ts') && !asker.text.includes('    at '), 'no stack');
  }

  it('shows the authority to everybody', async () => {
    const asker = (await stranger()).send(ENROLMENT_PATHS.authority, '', 'GET');
    assert.equal((await asker.reply()).status, 200);
    assert.ok(asker.text.includes(main.desk.authority.toString('base64')));
  });

  it('speaks TLS 1.3 alone', async () => {
    await assert.rejects(stranger({ maxVersion: 'TLSv1.2' }), { code: /PROTOCOL_VERSION|ALERT/ });
  });

  it('has words for other paths, other methods, garbage and wrong fields, and repeats no value', async () => {
    const asker = await stranger();
    await expectRefusal(asker.send('/v1/secrets', ''), [404, 'ROUTE_UNKNOWN', /serves nothing/]);
    await expectRefusal(asker.send('/__proto__', ''), [404, 'ROUTE_UNKNOWN', /serves nothing/], 2);
    await expectRefusal(asker.send(ENROLMENT_PATHS.join, '', 'GET'), [405, 'METHOD_UNKNOWN', /for POST alone/], 3);
    await expectRefusal(asker.send(ENROLMENT_PATHS.join, '{"a":'), [400, 'REQUEST_INVALID', /is not JSON/], 4);
    const wrong = JSON.stringify({ tokenId: 'SECRETS!' });
    await expectRefusal(asker.send(ENROLMENT_PATHS.join, wrong), [400, 'REQUEST_INVALID', /"tokenId" of the/], 5);
    await expectRefusal(asker.send(ENROLMENT_PATHS.join, 'null'), [400, 'REQUEST_INVALID', /the request is not/], 6);
    assert.ok(!asker.text.includes('SECRETS!') && !main.log.all.join('\n').includes('SECRETS!'));
    const noHttp = await stranger();
    noHttp.socket.write('\u0016\u0003 this is no request\r\n\r\n');
    await expectRefusal(noHttp, [400, 'REQUEST_INVALID', /no HTTP\/1\.1 request/]);
    await noHttp.closed;
  });

  it('reads no body beyond its bound, and no headers', async () => {
    const body = JSON.stringify({ commitment: 'a'.repeat(ENROLMENT_BODY_LIMIT_BYTES) });
    const asker = (await stranger()).send(ENROLMENT_PATHS.pair, body);
    await expectRefusal(asker, [413, 'REQUEST_TOO_LARGE', /at most 16384 bytes/]);
    const chunked = await stranger();
    chunked.socket.write(
      `POST ${ENROLMENT_PATHS.pair} HTTP/1.1\r\nhost: main\r\ntransfer-encoding: chunked\r\n\r\n4001\r\n${'a'.repeat(0x4001)}`,
    );
    await expectRefusal(chunked, [413, 'REQUEST_TOO_LARGE', /at most 16384 bytes/]);
    for (const { socket } of strangers) socket.destroy();
    await Promise.all(strangers.map(({ closed }) => closed));
    await untilRoom();
    const headers = (await stranger()).send(ENROLMENT_PATHS.pair, '', 'POST', `x-long: ${'a'.repeat(5000)}\r\n`);
    await headers.closed;
    assert.match(headers.text, /REQUEST_INVALID/);
  });

  it('ends slow bodies with words, and connections without a request', async () => {
    main.runtime.longestTimerMs = 20;
    const slow = await stranger();
    slow.socket.write(`POST ${ENROLMENT_PATHS.join} HTTP/1.1\r\nhost: main\r\ncontent-length: 100\r\n\r\n{`);
    const silent = await stranger();
    await expectRefusal(slow, [408, 'REQUEST_SLOW', /did not come whole in time/]);
    await Promise.all([slow.closed, silent.closed]);
    await untilRoom();
    const trickling = await stranger();
    trickling.socket.write(`POST ${ENROLMENT_PATHS.join} HTTP/1.1\r\nx-one: a`);
    await trickling.closed;
  });

  it('bounds the tries of a host, and those of others still count', async () => {
    for (let sent = 0; sent < ENROLMENT_TRIES.burst;) {
      const asker = await stranger();
      for (let here = 1; here <= ENROLMENT_REQUESTS_LIMIT && sent < ENROLMENT_TRIES.burst; here++, sent++) {
        await expectRefusal(asker.send(ENROLMENT_PATHS.join, '{}'), [400, 'REQUEST_INVALID', /is not as main/], here);
      }
      asker.socket.destroy();
      await untilRoom();
    }
    const tooOften = [429, 'QUEUE_FULL', /127\.0\.0\.1 has tried too often/] as const;
    await expectRefusal((await stranger()).send(ENROLMENT_PATHS.join, '{}'), tooOften);
    await expectRefusal((await stranger({ localAddress: '127.0.0.2' })).send(ENROLMENT_PATHS.join, '{}'), [
      400,
      'REQUEST_INVALID',
      /is not as main/,
    ]);
    main.runtime.laterMs = 60_000;
    await untilRoom();
    await joinByToken(main.address, await main.token(), machineOf('jetson'), { runtime: RUNTIME });
  });

  it('writes a few lines of a flood into the log, of waits for nothing, too', async () => {
    const wait = JSON.stringify({ pairingId: 'ab'.repeat(16) });
    for (let connection = 0; connection < 3; connection++) {
      const asker = await stranger();
      for (let here = 1; here <= ENROLMENT_REQUESTS_LIMIT; here++) {
        const noMore = [403, 'PAIRING_UNKNOWN', /waits no more at main/] as const;
        await expectRefusal(asker.send(ENROLMENT_PATHS.wait, wait), noMore, here);
      }
      asker.socket.destroy();
      await untilRoom();
    }
    assert.equal(main.log.warnings.length, ENROLMENT_TRIES.burst);
  });

  it('bounds requests on a connection', async () => {
    const asker = await stranger();
    for (let sent = 0; sent < ENROLMENT_REQUESTS_LIMIT; sent++) asker.send(ENROLMENT_PATHS.authority, '', 'GET');
    asker.send(ENROLMENT_PATHS.authority, '', 'GET');
    const refused = [429, 'QUEUE_FULL', /too many requests on one connection/] as const;
    await expectRefusal(asker, refused, ENROLMENT_REQUESTS_LIMIT + 1);
  });

  it('bounds connections of a host and of all, tells those beyond, and serves on when they end', async () => {
    main.runtime.hasNoTimers = true;
    const { all, ofHost } = ENROLMENT_CONNECTIONS_LIMIT;
    for (let each = 0; each < ofHost; each++) await stranger();
    const words = [429, 'QUEUE_FULL', /too many machines ask main to be let in/] as const;
    await expectRefusal((await stranger()).send(ENROLMENT_PATHS.authority, '', 'GET'), words);
    for (let each = ofHost; each < all; each++) await stranger({ localAddress: `127.0.0.${2 + each}` });
    const last = await stranger({ localAddress: '127.0.0.77' });
    await expectRefusal(last.send(ENROLMENT_PATHS.authority, '', 'GET'), words);
    for (const { socket } of strangers) socket.destroy();
    await untilRoom();
    await joinByToken(main.address, await main.token(), machineOf('jetson'), { runtime: RUNTIME });
  });

  it('has no words for a flood of connections, and ends those that are open when main ends', async () => {
    main.runtime.hasNoTimers = true;
    const open = ENROLMENT_CONNECTIONS_LIMIT.ofHost + REFUSED_CONNECTIONS_LIMIT;
    for (let each = 0; each < open; each++) await stranger();
    const one = await stranger();
    await one.closed;
    assert.equal(one.text, '');
    assert.ok(strangers.every(({ socket }) => socket === one.socket || !socket.destroyed));
    await main.stop();
    await Promise.all(strangers.map(({ closed }) => closed));
  });

  /** Waits until main has seen that connections of this host ended. */
  async function untilRoom(): Promise<void> {
    for (;;) {
      const asker = await Stranger.open(main.address);
      const { status } = await asker.send(ENROLMENT_PATHS.authority, '', 'GET').reply();
      asker.socket.destroy();
      await asker.closed;
      if (status === 200) break;
    }
    await RUNTIME.sleep(30);
  }
});
