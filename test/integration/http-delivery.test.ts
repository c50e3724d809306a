import assert from 'node:assert/strict';
import type { BodyMaker, StreamMaker } from '../../http-api/delivery/dialect.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import {
  LINES,
  openTestHttpApi,
  RawClient,
  type TestHttpApi,
  type TestHttpApiOptions,
} from './harness/test-http-api.js';
import { waitUntil } from './harness/wait-until.js';

/** Limits that a test can wait for. */
const SOON = { keepAliveMs: 20, bodyHeadersMs: 20, bodyNewlineMs: 10 };
const MEBIBYTE = 1024 * 1024;

/** Something that a test lets happen when it wants to. */
function gate(): { open: () => void; opened: Promise<void> } {
  let open = (): void => undefined;
  const opened = new Promise<void>((resolve) => (open = resolve));
  return { open, opened };
}

const never = (signal: AbortSignal): Promise<never> =>
  new Promise((_, reject) => {
    const gone = (): void => reject(new OdmoeError('CANCELLED', 'gone'));
    if (signal.aborted) gone();
    signal.addEventListener('abort', gone);
  });

async function* neverYields(signal: AbortSignal): AsyncGenerator<string, void, undefined> {
  yield await never(signal);
}

describe('HTTP answers that are', () => {
  let api: TestHttpApi | null = null;
  let signal: AbortSignal | null = null;
  let begun = 0;
  let ended = 0;

  beforeEach(() => {
    signal = null;
    begun = 0;
    ended = 0;
  });

  afterEach(async () => {
    await api?.close();
    api = null;
  });

  async function open(
    { stream, body }: { stream?: StreamMaker; body?: BodyMaker },
    options: TestHttpApiOptions = {},
  ): Promise<string> {
    api = await openTestHttpApi((app, context) => {
      app.post('/stream', (request, reply) =>
        context.deliverStream(request, reply, LINES, async function* (given, watch) {
          signal = given;
          begun += 1;
          try {
            if (stream !== undefined) yield* stream(given, watch);
          } finally {
            ended += 1;
          }
        }),
      );
      app.post('/body', (request, reply) =>
        context.deliverBody(request, reply, LINES, async (given, watch) => {
          signal = given;
          try {
            return (await body?.(given, watch)) ?? {};
          } finally {
            ended += 1;
          }
        }),
      );
    }, options);
    return api.address;
  }

  const post = (address: string, path: string): Promise<Response> =>
    fetch(`http://${address}${path}`, { method: 'POST', body: '{}' });

  async function leftBehind(): Promise<void> {
    await waitUntil('the maker has ended', () => ended === 1);
    assert.equal(signal?.aborted, true);
  }

  describe('streamed', () => {
    it('arrive text by text, as they are framed', async () => {
      const address = await open({
        stream: async function* () {
          yield 'a\n';
          yield '';
          yield 'b\n';
        },
      });
      const answer = await post(address, '/stream');
      assert.equal(answer.status, 200);
      assert.equal(answer.headers.get('content-type'), 'text/plain');
      assert.match(answer.headers.get('x-request-id') ?? '', /\S/);
      assert.equal(await answer.text(), 'a\nb\n');
    });

    it('are empty where their maker gives no text', async () => {
      const answer = await post(await open({}), '/stream');
      assert.deepEqual([answer.status, await answer.text()], [200, '']);
    });

    it('have the status of the error where they fail before their first text', async () => {
      const address = await open({
        stream: async function* () {
          throw new OdmoeError('QUEUE_FULL', 'later');
        },
      });
      const answer = await post(address, '/stream');
      assert.equal(answer.status, 429);
      assert.match(answer.headers.get('retry-after') ?? '', /^\d+$/);
      assert.equal(((await answer.json()) as { error: { code: string } }).error.code, 'queue_full');
    });

    it('end with the dialect’s event where they fail later', async () => {
      const address = await open({
        stream: async function* () {
          yield 'a\n';
          throw new OdmoeError('WORKER_LOST', 'gone');
        },
      });
      assert.equal(await (await post(address, '/stream')).text(), 'a\nfailed WORKER_LOST\n');
    });

    it('are kept alive while nothing arrives, and report their progress', async () => {
      const { open: goOn, opened } = gate();
      let prefill: (done: number, all: number) => void = () => undefined;
      const address = await open(
        {
          stream: async function* (_, watch) {
            watch.queued(3);
            prefill = (done, all) => watch.prefill(done, all);
            await opened;
            yield 'a\n';
          },
        },
        { limits: SOON },
      );
      const client = await RawClient.connect(address);
      client.request('/stream', '{}');
      await waitUntil('it waits', () => client.received.includes('alive {"phase":"queued","before":3}'));
      assert.match(client.received, /^HTTP\/1.1 200 OK\r\n/);
      prefill(5, 9);
      await waitUntil('it is in prefill', () =>
        client.received.includes('alive {"phase":"prefill","doneTokens":5,"promptTokens":9}'),
      );
      prefill(9, 9);
      await waitUntil('it decodes', () => client.received.includes('alive {"phase":"decode"}'));
      goOn();
      await waitUntil('it has come', () => client.received.endsWith('0\r\n\r\n'));
      assert.match(client.received, /\r\na\n\r\n0\r\n\r\n$/);
      client.kill();
    });

    it('are kept alive by comments or pings, not by empty deltas, which nobody sees', async () => {
      let isOver = false;
      const address = await open(
        {
          stream: async function* () {
            for (; !isOver; await new Promise((resolve) => setImmediate(resolve))) yield '';
          },
        },
        { limits: SOON },
      );
      const client = await RawClient.connect(address);
      client.request('/stream', '{}');
      await waitUntil('it is kept alive', () => client.received.split('alive').length > 2);
      isOver = true;
      client.kill();
      await leftBehind();
    });

    for (const [how, leave] of [
      ['is killed', (client: RawClient): void => client.kill()],
      ['resets its connection', (client: RawClient): void => void client.socket.resetAndDestroy()],
      ['ends its side', (client: RawClient): void => void client.socket.end()],
    ] as const) {
      for (const begun of [false, true]) {
        it(`end when their client ${how}, ${begun ? 'in the middle' : 'before anything came'}`, async () => {
          const address = await open({
            stream: async function* (given) {
              if (begun) yield 'a\n';
              await never(given);
            },
          });
          const client = await RawClient.connect(address);
          client.request('/stream', '{}');
          await waitUntil('it is made', () => signal !== null && (!begun || client.received.includes('a\n')));
          leave(client);
          await leftBehind();
          await client.closed;
        });
      }
    }

    it('end for all of a connection, when their client resets it', async () => {
      const address = await open({ stream: (given) => neverYields(given) });
      const client = await RawClient.connect(address);
      for (let request = 0; request < 12; request++) client.request('/stream', '{}');
      await waitUntil('they are made', () => begun === 12);
      client.socket.resetAndDestroy();
      await waitUntil('all have ended', () => ended === 12);
    });

    it('end when their client is gone, even where nobody looks at the signal', async () => {
      const { open: goOn, opened } = gate();
      const address = await open({
        stream: async function* () {
          await opened;
          for (;;) yield 'a\n';
        },
      });
      const client = await RawClient.connect(address);
      client.request('/stream', '{}');
      await waitUntil('it is made', () => signal !== null);
      client.kill();
      await waitUntil('it is noticed', () => signal?.aborted === true);
      goOn();
      await leftBehind();
    });

    it('are made no faster than they are read, and a reader that takes nothing is given up', async () => {
      let made = 0;
      const text = 'x'.repeat(64 * 1024);
      const address = await open(
        {
          stream: async function* () {
            for (;;) {
              made += text.length;
              yield text;
            }
          },
        },
        { limits: { ...SOON, slowReaderMs: 200 } },
      );
      const client = await RawClient.connect(address);
      client.socket.pause();
      client.request('/stream', '{}');
      await leftBehind();
      assert.ok(made < 32 * MEBIBYTE, `${made} bytes were made for a reader that takes none`);
      client.kill();
    });

    it('continue for a slow reader, and do not wait for one that has stopped', async () => {
      const total = 24;
      const address = await open({
        stream: async function* () {
          for (let index = 0; index < total; index++) yield `${String(index).padStart(3)}${'x'.repeat(MEBIBYTE)}\n`;
        },
      });
      const stopped = await RawClient.connect(address);
      stopped.socket.pause();
      stopped.request('/stream', '{}');
      const text = await (await post(address, '/stream')).text();
      const numbers = text.split('\n').map((line) => Number(line.slice(0, 3)));
      assert.deepEqual(numbers.slice(0, -1), [...Array(total).keys()]);
      stopped.kill();
      await waitUntil('both have ended', () => ended === 2);
    });

    it('reach clients of HTTP/1.0, without chunks', async () => {
      const address = await open({
        stream: async function* () {
          yield 'a\n';
          yield 'b\n';
        },
      });
      const client = await RawClient.connect(address);
      client.send('POST /stream HTTP/1.0\r\ncontent-length: 2\r\n\r\n{}');
      await waitUntil('it has ended', () => client.ended);
      assert.match(client.received, /^HTTP\/1\.1 200 OK\r\n/);
      assert.doesNotMatch(client.received, /transfer-encoding/i);
      assert.match(client.received, /\r\n\r\na\nb\n$/);
      client.socket.end();
    });

    it('end with the dialect’s error when the server closes, and idle connections close at once', async () => {
      const stop = gate();
      const address = await open({
        stream: async function* () {
          yield 'a\n';
          await stop.opened;
          throw new OdmoeError('NO_MAIN', 'main is being stopped');
        },
      });
      const idle = await RawClient.connect(address);
      idle.request('/health');
      await waitUntil('it is answered', () => idle.received.includes('"ok"'));
      const client = await RawClient.connect(address);
      client.request('/stream', '{}');
      await waitUntil('it has begun', () => client.received.includes('a\n'));
      const closing = api?.close();
      await waitUntil('the idle one is closed', () => idle.ended);
      stop.open();
      await waitUntil('it has ended', () => client.ended);
      assert.match(client.received, /failed NO_MAIN\n/);
      client.socket.end();
      idle.socket.end();
      await closing;
    });
  });

  describe('sent at once', () => {
    it('HTTP answers that are sent at once arrive whole', async () => {
      const answer = await post(await open({ body: async () => ({ a: 'ä' }) }), '/body');
      assert.equal(answer.headers.get('content-length'), '10');
      assert.deepEqual(await answer.json(), { a: 'ä' });
    });

    it('have the status of the error where they fail', async () => {
      const failing: BodyMaker = () => Promise.reject(new OdmoeError('PROMPT_TOO_LONG', 'long', { field: 'messages' }));
      const answer = await post(await open({ body: failing }), '/body');
      assert.equal(answer.status, 400);
      const { error } = (await answer.json()) as { error: Record<string, unknown> };
      assert.deepEqual(error, {
        message: 'long',
        type: 'invalid_request_error',
        param: 'messages',
        code: 'context_length_exceeded',
      });
    });

    it('send their headers, newlines, and then the body where they take long', async () => {
      const { open: goOn, opened } = gate();
      const address = await open({ body: () => opened.then(() => ({ a: 1 })) }, { limits: SOON });
      const answer = await post(address, '/body');
      assert.equal(answer.status, 200);
      const reader = answer.body?.getReader();
      assert.ok(reader !== undefined);
      let text = '';
      while (text.length < 3) text += Buffer.from((await reader.read()).value ?? []).toString();
      assert.match(text, /^\n+$/);
      goOn();
      for (let read = await reader.read(); !read.done; read = await reader.read())
        text += Buffer.from(read.value).toString();
      assert.deepEqual(JSON.parse(text), { a: 1 });
    });

    it('break the connection where they fail after the headers: nobody takes the error for an answer', async () => {
      const { open: goOn, opened } = gate();
      const failing: BodyMaker = () => opened.then(() => Promise.reject(new OdmoeError('WORKER_LOST', 'gone')));
      const answer = await post(await open({ body: failing }, { limits: SOON }), '/body');
      assert.equal(answer.status, 200);
      const text = answer.text();
      goOn();
      await assert.rejects(text);
    });

    for (const limits of [{}, SOON]) {
      it(`end when their client is killed${limits === SOON ? ' after the headers' : ''}`, async () => {
        const address = await open({ body: never }, { limits });
        const client = await RawClient.connect(address);
        client.request('/body', '{}');
        await waitUntil('it is made', () => signal !== null && (limits !== SOON || client.received.includes('\n\r\n')));
        client.kill();
        await leftBehind();
      });
    }

    it('are given up where nobody reads them', async () => {
      const address = await open(
        { body: async () => ({ text: 'x'.repeat(64 * MEBIBYTE) }) },
        { bounds: { silenceMs: 200 } },
      );
      const client = await RawClient.connect(address);
      client.socket.pause();
      client.request('/body', '{}');
      await waitUntil('it is given up', async () => (await api?.connections()) === 0);
      assert.equal(ended, 1);
      client.kill();
    });
  });
});
