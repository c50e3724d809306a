import assert from 'node:assert/strict';
import { connect } from 'node:net';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { runtimeAt } from '../wall.js';
import {
  LINES,
  openTestHttpApi,
  RawClient,
  type TestHttpApi,
  type TestHttpApiOptions,
} from './harness/test-http-api.js';
import { waitUntil } from './harness/wait-until.js';

const KEY = 'a-key-of-the-test-1';
const MEBIBYTE = 1024 * 1024;

interface ErrorReply {
  error: { code: string; message: string; type: string };
}

const codeOf = async (answer: Response): Promise<string> => ((await answer.json()) as ErrorReply).error.code;

describe('the HTTP server checks', () => {
  let api: TestHttpApi | null = null;

  afterEach(async () => {
    await api?.close();
    api = null;
  });

  async function open(options: TestHttpApiOptions = {}): Promise<string> {
    api = await openTestHttpApi((app, context) => {
      app.post('/echo', async (request) => ({ body: request.body ?? null }));
      app.get('/client', async (request) => ({ client: request.account?.client ?? null }));
      app.post('/stream', (request, reply) =>
        context.deliverStream(request, reply, LINES, async function* () {
          for (let line = 0; line < 100; line++) {
            await new Promise((resolve) => setImmediate(resolve));
            yield `${line}\n`;
          }
        }),
      );
    }, options);
    return api.address;
  }

  /** Sends a request as raw text. Waits for the end of the answer's body or of the connection. */
  async function ask(address: string, text: string): Promise<RawClient> {
    const client = await RawClient.connect(address);
    client.send(text);
    await waitUntil('there is an answer', () => client.ended || /\r\n\r\n[^]*\}$/.test(client.received));
    client.socket.end();
    return client;
  }

  const post = (address: string, body: string | Uint8Array, headers: Record<string, string> = {}): Promise<Response> =>
    fetch(`http://${address}/echo`, { method: 'POST', body, headers });

  it('it tells clients apart by their hosts where no keys are configured', async () => {
    const address = await open();
    const port = Number(address.split(':')[1]);
    const clientFrom = async (localAddress: string): Promise<string> => {
      const socket = connect({ host: '127.0.0.1', port, localAddress });
      socket.write('GET /client HTTP/1.1\r\nhost: localhost\r\nx-forwarded-for: 10.0.0.1\r\nconnection: close\r\n\r\n');
      let received = '';
      for await (const part of socket) received += String(part);
      return /"client":"([^"]*)"/.exec(received)?.[1] ?? '';
    };
    assert.deepEqual([await clientFrom('127.0.0.2'), await clientFrom('127.0.0.3')], ['127.0.0.2', '127.0.0.3']);
  });

  describe('hosts and origins:', () => {
    it('it refuses host names that are not its own', async () => {
      const address = await open({ http: { hosts: ['chat.example.org'] } });
      for (const [host, status] of [
        ['evil.example', 403],
        ['evil.example:7680', 403],
        ['chat.example.org', 200],
        ['localhost:1', 200],
        ['[::1]', 200],
      ] as const) {
        const client = await ask(address, `GET /health HTTP/1.1\r\nhost: ${host}\r\n\r\n`);
        assert.match(client.received, new RegExp(`^HTTP/1.1 ${status} `), host);
      }
    });

    it('it requires one host, except from HTTP/1.0', async () => {
      const address = await open();
      const none = await ask(address, 'GET /health HTTP/1.1\r\n\r\n');
      assert.match(none.received, /^HTTP\/1\.1 400 [^]*request_invalid/);
      const two = await ask(address, 'GET /health HTTP/1.1\r\nhost: localhost\r\nhost: evil.example\r\n\r\n');
      assert.match(two.received, /^HTTP\/1\.1 400 [^]*several Host/);
      const old = await ask(address, 'GET /health HTTP/1.0\r\n\r\n');
      assert.match(old.received, /^HTTP\/1\.1 200 /);
    });

    it('it admits listed pages and its own, and no others', async () => {
      const address = await open({ http: { origins: ['https://chat.example.org'] } });
      for (const [origin, status] of [
        ['https://chat.example.org', 200],
        [`http://${address}`, 200],
        ['https://evil.example', 403],
        ['null', 403],
      ] as const) {
        const answer = await post(address, '{}', { origin });
        assert.equal(answer.status, status, origin);
        assert.equal(answer.headers.get('access-control-allow-origin'), status === 200 ? origin : null);
      }
      const seen = await fetch(`http://${address}/health`, { headers: { origin: 'https://evil.example' } });
      assert.deepEqual([seen.status, seen.headers.get('access-control-allow-origin')], [200, null]);
    });

    it('it warns at the start where any page may ask without a key', async () => {
      for (const [origins, keys, warnings] of [
        [['*'], [], 1],
        [['*'], [KEY], 0],
        [['https://chat.example.org'], [], 0],
      ] as const) {
        await open({ http: { origins: [...origins] }, keys });
        assert.equal(api?.log.matching('any web page').length, warnings, JSON.stringify([origins, keys]));
        await api?.close();
      }
    });

    it('it answers a preflight request of a browser without a key', async () => {
      const address = await open({ http: { origins: ['https://chat.example.org'] }, keys: [KEY] });
      const preflight = (origin: string): Promise<Response> =>
        fetch(`http://${address}/echo`, {
          method: 'OPTIONS',
          headers: {
            origin,
            'access-control-request-method': 'POST',
            'access-control-request-headers': 'authorization,x-stainless-lang',
          },
        });
      const answer = await preflight('https://chat.example.org');
      assert.equal(answer.status, 204);
      assert.equal(answer.headers.get('access-control-allow-headers'), 'authorization,x-stainless-lang');
      assert.match(answer.headers.get('access-control-allow-methods') ?? '', /POST/);
      assert.equal((await preflight('https://evil.example')).status, 403);
    });
  });

  describe('API keys:', () => {
    it('it admits its keys, refuses one that differs by a character, and opens /health to all', async () => {
      const address = await open({ keys: ['another-key-2', KEY] });
      for (const [key, status] of [
        [KEY, 200],
        ['another-key-2', 200],
        [`${KEY.slice(0, -1)}2`, 401],
        [`b${KEY.slice(1)}`, 401],
        [`${KEY}1`, 401],
        [KEY.slice(1), 401],
      ] as const) {
        assert.equal((await post(address, '{}', { authorization: `Bearer ${key}` })).status, status, key);
        assert.equal((await post(address, '{}', { 'x-api-key': key })).status, status, key);
      }
      assert.equal(await codeOf(await post(address, '{}')), 'invalid_api_key');
      assert.equal((await fetch(`http://${address}/nothing`)).status, 401);
      assert.equal((await fetch(`http://${address}/metrics`)).status, 401);
      assert.equal((await fetch(`http://${address}/health`)).status, 200);
    });

    it('it takes any key where it has none', async () => {
      const address = await open();
      assert.equal((await post(address, '{}', { authorization: 'Bearer anything' })).status, 200);
    });
  });

  describe('bodies:', () => {
    it('it takes JSON under any content type', async () => {
      const address = await open();
      for (const type of ['application/json', 'application/x-www-form-urlencoded', 'text/plain', 'a/b; charset=x']) {
        const answer = await post(address, '{"a":1}', { 'content-type': type });
        assert.deepEqual(await answer.json(), { body: { a: 1 } }, type);
      }
      const client = await ask(address, 'POST /echo HTTP/1.1\r\nhost: localhost\r\ncontent-length: 7\r\n\r\n{"a":1}');
      assert.match(client.received, /\{"body":\{"a":1\}\}$/);
    });

    it('it reads a body whatever else the client expects', async () => {
      const headers = 'host: localhost\r\nexpect: something\r\ncontent-length: 2';
      const client = await ask(await open(), `POST /echo HTTP/1.1\r\n${headers}\r\n\r\n{}`);
      assert.match(client.received, /^HTTP\/1\.1 200 [^]*\r\nx-request-id: \S[^]*\{"body":\{\}\}$/);
    });

    it('it explains an invalid body', async () => {
      const address = await open();
      const packed = await post(address, '{}', { 'content-encoding': 'gzip' });
      assert.match(((await packed.json()) as ErrorReply).error.message, /compressed/);
      const answer = await post(address, '{"a": }');
      assert.equal(answer.status, 400);
      const { error } = (await answer.json()) as ErrorReply;
      assert.match(error.message, /line 1, column 7/);
    });

    it('it refuses a body of 100 MB, declared or not, and goes on', async () => {
      const address = await open();
      const body = new Uint8Array(100 * MEBIBYTE).fill(0x20);
      const reply = await post(address, body);
      assert.equal(reply.status, 413);
      assert.equal(await codeOf(reply), 'request_too_large');
      let sent = 0;
      const chunked = new ReadableStream<Uint8Array>({
        pull: (controller) => {
          if (sent >= body.length) return controller.close();
          controller.enqueue(body.subarray(sent, (sent += MEBIBYTE)));
        },
      });
      const answer = await fetch(`http://${address}/echo`, {
        method: 'POST',
        body: chunked,
        duplex: 'half',
      });
      assert.equal(answer.status, 413);
      assert.equal((await post(address, '{}')).status, 200);
    });
  });

  describe('requests:', () => {
    it('it knows its paths and methods', async () => {
      const address = await open();
      const unknown = await fetch(`http://${address}/nothing`);
      assert.deepEqual([unknown.status, await codeOf(unknown)], [404, 'route_unknown']);
      const wrong = await fetch(`http://${address}/echo`);
      assert.deepEqual([wrong.status, wrong.headers.get('allow')], [405, 'POST']);
      assert.equal((await fetch(`http://${address}/health/`)).status, 200);
      assert.equal((await fetch(`http://${address}//health`)).status, 200);
      const head = await fetch(`http://${address}/health`, { method: 'HEAD' });
      assert.deepEqual([head.status, await head.text()], [200, '']);
      const nonsense = await fetch(`http://${address}/%E0%A4%A`);
      assert.equal(nonsense.status, 400);
      assert.match(nonsense.headers.get('x-request-id') ?? '', /\S/);
    });

    it('it keeps the client’s id of a request', async () => {
      const address = await open();
      const named = await fetch(`http://${address}/nothing`, { headers: { 'x-request-id': 'mine-1' } });
      assert.equal(named.headers.get('x-request-id'), 'mine-1');
      const made = await fetch(`http://${address}/nothing`, { headers: { 'x-request-id': 'a b' } });
      assert.notEqual(made.headers.get('x-request-id'), 'a b');
    });

    for (const [what, text, status] of [
      [
        'headers of more than 16 KiB',
        `GET /health HTTP/1.1\r\nhost: localhost\r\nx: ${'x'.repeat(17_000)}\r\n\r\n`,
        413,
      ],
      ['bytes that are no HTTP', 'hello\r\n\r\n', 400],
      ['a TLS client', '\u0016\u0003\u0001\u0002\u0000\u0001', 400],
    ] as const) {
      it(`the HTTP server refuses ${what} with status ${status}`, async () => {
        const client = await ask(await open(), text);
        assert.match(client.received, new RegExp(`^HTTP/1.1 ${status} `));
        assert.match(client.received, /\r\ncontent-type: application\/json/);
        assert.match(client.received, /\r\nx-request-id: \S/);
      });
    }

    for (const [what, text] of [
      ['headers', 'POST /echo HTTP/1.1\r\nhost: localhost\r\n'],
      ['body', 'POST /echo HTTP/1.1\r\nhost: localhost\r\ncontent-length: 10\r\n\r\n{'],
    ] as const) {
      it(`gives up a request whose ${what} do not come`, async () => {
        const address = await open({ bounds: { headersMs: 100, requestMs: 200, checkMs: 20 } });
        const client = await RawClient.connect(address);
        client.send(text);
        await waitUntil('the client has got the error', () => client.ended);
        assert.match(client.received, /^HTTP\/1\.1 408 [^]*"request_slow"/);
        client.socket.end();
      });
    }
  });

  describe('its address:', () => {
    const portOf = (address: string): number => Number(address.slice(address.lastIndexOf(':') + 1));

    it('a used port is replaced where it is the default, and is an error where a user set it', async () => {
      const port = portOf(await open());
      const other = await openTestHttpApi(() => undefined, { http: { port, isAddressGiven: false } });
      assert.notEqual(portOf(other.address), port);
      assert.equal((await fetch(`http://${other.address}/health`)).status, 200);
      await other.close();
      const taken = openTestHttpApi(() => undefined, { http: { port } });
      await assert.rejects(taken, { code: 'PORT_UNAVAILABLE', message: /in use.*--http/ });
    });

    it('it must be an address of this machine', async () => {
      const elsewhere = openTestHttpApi(() => undefined, { http: { host: '192.0.2.1', isAddressGiven: false } });
      await assert.rejects(elsewhere, { code: 'PORT_UNAVAILABLE', message: /no such address/ });
    });
  });

  describe('health:', () => {
    it('it reports to everybody why nobody is served', async () => {
      const address = await open({ keys: [KEY], trouble: () => new OdmoeError('DEVICE_LOST', 'the device is lost') });
      const answer = await fetch(`http://${address}/health`);
      assert.equal(answer.status, 503);
      assert.match(((await answer.json()) as ErrorReply).error.message, /the device is lost/);
    });

    it('a stopping server closes each connection after its answer, or its refusal', async () => {
      let trouble: OdmoeError | null = null;
      const address = await open({ trouble: () => trouble });
      const connectionOf = async (path: string): Promise<string | undefined> => {
        const client = await ask(address, `POST ${path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 2\r\n\r\n{}`);
        return /^connection: (.*)\r$/im.exec(client.received)?.[1];
      };
      assert.equal(await connectionOf('/echo'), 'keep-alive');
      trouble = new OdmoeError('NO_MAIN', 'main is being stopped');
      assert.equal(await connectionOf('/echo'), 'close');
      assert.equal(await connectionOf('/nowhere'), 'close');
    });
  });

  describe('connections:', () => {
    it('2,000 half-open ones take nothing from others, and are closed', async function () {
      this.timeout(60_000);
      const address = await open({ bounds: { headersMs: 6000, checkMs: 100 } });
      const port = Number(address.split(':')[1]);
      const half = Array.from({ length: 2000 }, (_, index) => {
        const socket = connect({ host: '127.0.0.1', port });
        socket.on('error', () => undefined);
        socket.on('connect', () => socket.write(index % 2 === 0 ? 'POST /stream HTTP/1.1\r\nhost: loc' : ''));
        return socket;
      });
      await waitUntil('they are connected', async () => ((await api?.connections()) ?? 0) >= 2000);
      const answer = await fetch(`http://${address}/stream`, { method: 'POST', body: '{}' });
      assert.equal((await answer.text()).split('\n').length, 101);
      await waitUntil('they are gone', async () => ((await api?.connections()) ?? 0) <= 1);
      for (const socket of half) socket.destroy();
    });

    it('those that cannot be accepted are logged once a minute, with their number', async () => {
      let nowMs = 1000;
      await open({ runtime: runtimeAt(() => nowMs) });
      const reply = (): (string | undefined)[] =>
        (api?.log.matching('could not be taken') ?? []).map((line) => /"connections":(\d+)/.exec(line)?.[1]);
      for (let failure = 0; failure < 5; failure++) api?.fail(new Error('EMFILE'));
      assert.deepEqual(reply(), ['1']);
      nowMs += 59_999;
      api?.fail(new Error('EMFILE'));
      assert.deepEqual(reply(), ['1']);
      nowMs += 1;
      api?.fail(new Error('EMFILE'));
      assert.deepEqual(reply(), ['1', '6']);
    });

    it('those beyond the bound are refused', async () => {
      const address = await open({ bounds: { connections: 5 } });
      const clients = await Promise.all(Array.from({ length: 12 }, () => RawClient.connect(address)));
      await waitUntil('seven are closed', () => clients.filter(({ ended }) => ended).length === 7);
      for (const client of clients) client.kill();
      await waitUntil('others are taken again', async () => (await api?.connections()) === 0);
      assert.equal((await post(address, '{}')).status, 200);
    });
  });
});
