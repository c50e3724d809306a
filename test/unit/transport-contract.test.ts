import assert from 'node:assert/strict';
import { getEventListeners } from 'node:events';
import { OdmoeError, toOdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { Logger } from '../../shared/base/log/logger.js';
import {
  FIRST_MESSAGE_LIMIT_BYTES,
  PLAIN_RECEIVE_LIMIT_BYTES,
  REPLIES_HELD_LIMIT,
  STREAM_BACKLOG_LIMIT_BYTES,
} from '../../shared/wire/limits.js';
import { rowCount } from '../../shared/wire/pass-rows.js';
import type { GenerateReply, NodeIdentity, PackPiece, WorkerReply, WorkerRequest } from '../../shared/wire/messages.js';
import type { PeerContext } from '../../shared/transport/peer-context.js';
import type { PeerStream } from '../../shared/transport/peer-stream.js';
import type { RpcServer, RpcServerOptions } from '../../shared/transport/transport.js';
import { grpcWorld, memoryWorld, type TransportWorld } from './transport-worlds.js';
import { plainExecute, plainFinished, plainRequest, plainResult } from './wire-messages.js';
import { METHODS } from '../../shared/transport/methods.js';
import {
  fetchCounts,
  fetchStatus,
  generate,
  identifyPeer,
  joinMain,
  openPackSource,
  openShadowStream,
  openWorkerStream,
} from '../../shared/transport/node-clients.js';
import { plainIdentity } from './plain-identity.js';

const NETWORK = { keepaliveIntervalMs: 500, keepaliveTimeoutMs: 700, executeTimeoutMs: 1000, reconnectDelayMs: 100 };
const SILENT: Logger = { error: () => undefined, warn: () => undefined, info: () => undefined, debug: () => undefined };
const IDENTITY: NodeIdentity = plainIdentity({
  id: 'main',
  role: 'ROLE_MAIN',
  modelName: 'demo',
  packDigest: 'abc',
  bootId: 'boot',
});
const REQUEST = plainRequest();
const FINISHED = plainFinished();
/** LARGE_BYTES: more than a transport takes without a wait for the peer. MANY_REPLIES: more than can wait on the way. */
const LARGE_BYTES = 4 * 1024 * 1024;
const MANY_REPLIES = 2000;
const LONG_TEXT = 'x'.repeat(4000);

type ServerStream = PeerStream<WorkerReply, WorkerRequest>;
type ClientStream = PeerStream<WorkerRequest, WorkerReply>;

function token(tokenId: number, text = 't'): GenerateReply {
  return { kind: 'token', token: { tokenId, text, logprob: -1, top: [] } };
}

function executeOf(requestId: number, bytes = 16): WorkerRequest {
  const hidden = new Uint8Array(bytes).fill(requestId & 255);
  return { kind: 'execute', execute: plainExecute({ requestId, layer: 2, expert: 5, hiddenSize: bytes / 4, hidden }) };
}

function resultOf(requestId: number, bytes = 16): WorkerReply {
  const output = new Uint8Array(bytes);
  return { kind: 'result', result: plainResult({ requestId, hiddenSize: bytes / 4, expert: { output } }) };
}

function answer(stream: ServerStream, message: WorkerRequest): void {
  if (message.kind !== 'execute') return;
  const { requestId, rows, hiddenSize, hidden } = message.execute;
  const result = plainResult({ requestId, hiddenSize, expert: { rows: rowCount(rows), output: hidden } });
  stream.send({ kind: 'result', result });
}

/** Messages and ends that came at one end of a stream. */
class Heard<In extends { kind: string }> {
  readonly messages: In[] = [];
  readonly ends: (OdmoeError | null)[] = [];

  constructor(stream: PeerStream<never, In>) {
    stream.onMessage((message) => {
      this.messages.push(message);
    });
    stream.onClose((error) => this.ends.push(error));
  }

  get numbers(): number[] {
    return this.messages.map((message) => numberOf(message));
  }
}

async function take(replies: AsyncIterable<unknown>): Promise<void> {
  const iterator = replies[Symbol.asyncIterator]();
  while ((await iterator.next()).done !== true);
}

function numberOf(message: object): number {
  if ('execute' in message) return (message.execute as { requestId: number }).requestId;
  return 'result' in message ? (message.result as { requestId: number }).requestId : -1;
}

for (const [name, makeWorld] of [
  ['gRPC', grpcWorld],
  ['memory', memoryWorld],
] as const) {
  describe(`the transport's contract, by ${name}`, function () {
    this.timeout(30_000);
    let world: TransportWorld;
    let server: RpcServer;
    let accepted: ServerStream[];

    async function serve(options: Partial<RpcServerOptions> = {}): Promise<string> {
      const fixed = { host: world.host, port: 0, network: NETWORK, log: SILENT, node: { identify: () => IDENTITY } };
      const worker = (stream: ServerStream): void => {
        stream.takeTensors();
        accepted.push(stream);
      };
      const served = { value: null as RpcServer | null };
      void world.server
        .serve({ ...fixed, worker: { serve: worker }, ...options })
        .then((made) => (served.value = made));
      await world.until(() => served.value !== null);
      server = served.value ?? assert.fail();
      return server.address;
    }

    async function open(
      options: Partial<RpcServerOptions> = {},
    ): Promise<{ client: ClientStream; peer: ServerStream }> {
      const client = openWorkerStream(world.client, await serve(options), NETWORK);
      // With gRPC a server learns of a stream only by its first message.
      client.send(executeOf(0));
      await world.until(() => accepted.length === 1);
      return { client, peer: accepted[0] ?? assert.fail() };
    }

    async function settled<Result>(promise: Promise<Result>): Promise<Result> {
      let over = false;
      const done = promise.finally(() => (over = true));
      done.catch(() => undefined);
      await world.until(() => over);
      return done;
    }

    beforeEach(() => {
      world = makeWorld();
      accepted = [];
    });

    afterEach(async () => {
      for (const stream of accepted) stream.close();
      await settled(server.stop());
    });

    it('keeps the order of messages, both ways', async () => {
      const { client, peer } = await open();
      peer.onMessage((message) => answer(peer, message));
      const heard = new Heard(client);
      const numbers = Array.from({ length: 300 }, (_, index) => index);
      for (const number of numbers.slice(1)) client.send(executeOf(number, 4 * (1 + (number % 50))));
      await world.until(() => heard.messages.length === numbers.length);
      assert.deepEqual(heard.numbers, numbers);
      client.close();
    });

    it('keeps messages that arrive before a listener', async () => {
      const { client, peer } = await open();
      client.send(executeOf(1));
      await world.pass(20);
      const heard = new Heard(peer);
      await world.until(() => heard.messages.length === 2);
      assert.deepEqual(heard.numbers, [0, 1]);
      client.close();
    });

    it('delivers earlier messages before an orderly end, and informs both sides once', async () => {
      const { client, peer } = await open();
      const [atClient, atServer] = [new Heard(client), new Heard(peer)];
      client.send(executeOf(1, LARGE_BYTES));
      client.close();
      await world.until(() => atServer.ends.length === 1);
      await world.pass(20);
      assert.deepEqual(atServer.numbers, [0, 1]);
      assert.deepEqual([atClient.ends, atServer.ends], [[null], [null]]);
      client.send(executeOf(2));
      client.close();
    });

    it('takes long messages of a peer only when it is known to send tensors', async () => {
      const long = executeOf(1, PLAIN_RECEIVE_LIMIT_BYTES);
      const { client, peer } = await open({ worker: { serve: (stream) => accepted.push(stream) } });
      const [atClient, atServer] = [new Heard(client), new Heard(peer)];
      await world.until(() => atServer.messages.length === 1);
      peer.takeTensors();
      client.send(long);
      await world.until(() => atServer.messages.length === 2);
      client.close();
      await world.until(() => atServer.ends.length === 1);
      assert.deepEqual([atServer.numbers, atClient.ends], [[0, 1], [null]]);

      const strange = openWorkerStream(world.client, server.address, NETWORK);
      strange.send(executeOf(0));
      await world.until(() => accepted.length === 2);
      const [atStranger, atWorker] = [new Heard(strange), new Heard(accepted[1] ?? assert.fail())];
      strange.send(long);
      await world.until(() => atWorker.ends.length === 1 && atStranger.ends.length === 1);
      assert.deepEqual(atWorker.numbers, [0]);
      assert.notEqual(atStranger.ends[0], null);
      const gathered = accepted[1]?.receivedBytes ?? 0;
      if (name === 'gRPC')
        assert.ok(gathered < PLAIN_RECEIVE_LIMIT_BYTES, 'the message is refused before it is gathered');
    });

    it('takes long replies only of a peer that is known to send tensors', async () => {
      const address = await serve();
      const opened = [
        openWorkerStream(world.client, address, NETWORK),
        openWorkerStream(world.client, address, NETWORK),
      ];
      for (const stream of opened) stream.send(executeOf(0));
      await world.until(() => accepted.length === 2);
      const [ofMain, ofShadow] = opened.map((stream) => new Heard(stream));
      for (const stream of accepted) stream.send(resultOf(0));
      await world.until(() => ofMain?.messages.length === 1 && ofShadow?.messages.length === 1);
      opened[0]?.takeTensors();
      for (const stream of accepted) stream.send(resultOf(1, PLAIN_RECEIVE_LIMIT_BYTES));
      await world.until(() => ofMain?.messages.length === 2 && ofShadow?.ends.length === 1);
      assert.deepEqual(ofShadow?.numbers, [0]);
      const gathered = opened[1]?.receivedBytes ?? 0;
      if (name === 'gRPC')
        assert.ok(gathered < PLAIN_RECEIVE_LIMIT_BYTES, 'the message is refused before it is gathered');
      for (const stream of opened) stream.close();
    });

    it('takes no long first message of a peer, at either end', async () => {
      const { client, peer } = await open({ worker: { serve: (stream) => accepted.push(stream) } });
      const atClient = new Heard(client);
      // A result has less than 1 KiB beside its tensor. Later messages may be longer.
      peer.send(resultOf(1, FIRST_MESSAGE_LIMIT_BYTES - 1024));
      peer.send(resultOf(2, 2 * FIRST_MESSAGE_LIMIT_BYTES));
      await world.until(() => atClient.messages.length === 2);
      client.close();

      const second = openWorkerStream(world.client, server.address, NETWORK);
      second.send(executeOf(0));
      await world.until(() => accepted.length === 2);
      const atSecond = new Heard(second);
      accepted[1]?.send(resultOf(1, FIRST_MESSAGE_LIMIT_BYTES));
      await world.until(() => atSecond.ends.length === 1);
      assert.deepEqual([atSecond.ends[0]?.code, atSecond.numbers], ['PROTOCOL_VIOLATION', []]);

      const third = openWorkerStream(world.client, server.address, NETWORK);
      third.send(executeOf(0, FIRST_MESSAGE_LIMIT_BYTES));
      await world.until(() => accepted.length === 3);
      const atServer = new Heard(accepted[2] ?? assert.fail());
      await world.until(() => atServer.ends.length === 1);
      assert.deepEqual([atServer.ends[0]?.code, atServer.numbers], ['PROTOCOL_VIOLATION', []]);
    });

    it('delivers the messages that a server sent before it ended', async () => {
      const { client, peer } = await open();
      const heard = new Heard(client);
      for (const requestId of [1, 2, 3]) peer.send({ kind: 'result', result: plainResult({ requestId }) });
      peer.close();
      await world.until(() => heard.ends.length === 1);
      assert.deepEqual([heard.numbers, heard.ends], [[1, 2, 3], [null]]);
    });

    it("gives a client the server's error, and tells a server that its client is gone", async () => {
      const { client, peer } = await open();
      const heard = new Heard(client);
      peer.close(new OdmoeError('QUEUE_FULL', 'no room'));
      await world.until(() => heard.ends.length === 1);
      assert.deepEqual([heard.ends[0]?.code, heard.ends[0]?.message], ['QUEUE_FULL', 'no room']);

      const second = openWorkerStream(world.client, server.address, NETWORK);
      second.send(executeOf(0));
      await world.until(() => accepted.length === 2);
      const atServer = new Heard(accepted[1] ?? assert.fail());
      second.close(new OdmoeError('TIMEOUT', 'waited for nothing'));
      await world.until(() => atServer.ends.length === 1);
      // Bytes on the wire do not always tell a reset from an orderly end.
      assert.ok(['CANCELLED', undefined].includes(atServer.ends[0]?.code));
    });

    it('closes a stream whose handler throws, with the code that it threw', async () => {
      const { client, peer } = await open();
      const heard = new Heard(client);
      peer.onMessage(() => {
        throw new OdmoeError('PROTOCOL_VIOLATION', 'not that');
      });
      await world.until(() => heard.ends.length === 1);
      assert.equal(heard.ends[0]?.code, 'PROTOCOL_VIOLATION');
    });

    it('counts the bytes of messages at both ends', async () => {
      const { client, peer } = await open();
      peer.onMessage(() => undefined);
      const message = executeOf(1, LARGE_BYTES);
      client.send(message);
      client.send(message);
      const [opening, sent] = [executeOf(0), message].map((one) => METHODS.worker.serve.request.encode(one).length);
      const bytes = (opening ?? 0) + 2 * (sent ?? 0);
      await world.until(() => peer.receivedBytes === bytes);
      assert.deepEqual([client.sentBytes, client.receivedBytes, peer.sentBytes], [bytes, 0, 0]);
    });

    it('counts unsent bytes, and gives up a peer that takes nothing', async () => {
      const { client, peer } = await open();
      peer.onMessage(() => undefined);
      const heard = new Heard(client);
      client.send(executeOf(1, LARGE_BYTES));
      assert.ok(client.backlogBytes >= LARGE_BYTES);
      await world.until(() => client.backlogBytes === 0);
      const most = LARGE_BYTES * 12;
      for (let sent = 0; sent <= STREAM_BACKLOG_LIMIT_BYTES; sent += most) client.send(executeOf(2, most));
      await world.until(() => heard.ends.length === 1);
      assert.equal(heard.ends[0]?.code, 'TIMEOUT');
    });

    it('reports by role a peer on a closed port', async () => {
      const address = await serve();
      await settled(server.stop());
      const ends = [
        new Heard(openWorkerStream(world.client, address, NETWORK)).ends,
        new Heard(openShadowStream(world.client, address, NETWORK)).ends,
      ];
      await world.until(() => ends.every(({ length }) => length === 1));
      assert.deepEqual(
        ends.map(([end]) => end?.code),
        ['WORKER_LOST', 'SHADOW_LOST'],
      );
    });

    it('ends open streams in order when the server stops', async () => {
      const { client } = await open();
      const heard = new Heard(client);
      await settled(Promise.all([server.stop(), server.stop()]));
      await world.until(() => heard.ends.length === 1);
      assert.deepEqual(heard.ends, [null]);
    });

    it('answers calls, carries codes, and cancels one that is not answered', async () => {
      const address = await serve({
        cluster: {
          join: ({ identity: { id } }) =>
            id === 'late' ? new Promise(() => undefined) : Promise.reject(new OdmoeError('QUEUE_FULL', 'no room')),
          status: () => Promise.reject(new TypeError('broken')),
        },
      });
      assert.deepEqual(await settled(identifyPeer(world.client, address, 2000)), IDENTITY);
      await assert.rejects(settled(joinMain(world.client, address, IDENTITY, 2000)), {
        code: 'QUEUE_FULL',
        message: 'no room',
      });
      await assert.rejects(settled(fetchStatus(world.client, address, 2000)), { code: 'INTERNAL' });
      await assert.rejects(settled(joinMain(world.client, address, { ...IDENTITY, id: 'late' }, 100)), {
        code: 'TIMEOUT',
      });
    });

    it('tells the handler of every method who calls', async () => {
      const hosts = new Map<string, string>();
      const note = (method: string, { host }: PeerContext): void => void hosts.set(method, host);
      const noPieces = (method: string) =>
        async function* (_: unknown, __: AbortSignal, peer: PeerContext): AsyncGenerator<PackPiece> {
          note(method, peer);
          yield* [];
        };
      const address = await serve({
        node: {
          identify: (_, peer) => (note('identify', peer), IDENTITY),
          counts: (_, peer) => (note('counts', peer), { counts: [] }),
        },
        worker: { serve: (stream, peer) => (note('worker', peer), stream.close()) },
        shadow: { serve: (stream, peer) => (note('shadow', peer), stream.close()) },
        cluster: {
          join: async ({ identity }, peer) => {
            note('join', peer);
            return { kind: 'welcome', welcome: { identity, partialPack: false, highestEpoch: 0 } };
          },
          status: (_, peer) => (note('status', peer), Promise.reject(new OdmoeError('QUEUE_FULL', 'no room'))),
        },
        inference: {
          generate: async function* (_, __, peer) {
            note('generate', peer);
            yield FINISHED;
          },
        },
        pack: {
          describe: (_, peer) => {
            note('describe', peer);
            return { packDigest: 'abc', layers: 1, experts: 8, heldExperts: new Uint8Array([3]), whole: true };
          },
          manifest: noPieces('manifest'),
          read: noPieces('read'),
        },
      });
      const { client } = world;
      await settled(identifyPeer(client, address, 2000));
      await settled(fetchCounts(client, address, 2000));
      await settled(joinMain(client, address, IDENTITY, 2000));
      await assert.rejects(settled(fetchStatus(client, address, 2000)), { code: 'QUEUE_FULL' });
      await settled(take(generate(client, address, REQUEST)));
      const source = openPackSource(client, address);
      const { signal } = new AbortController();
      await settled(source.describe(2000));
      await settled(take(source.manifest({ packDigest: 'abc' }, signal)));
      await settled(take(source.read({ packDigest: 'abc', file: 'f', offsetBytes: 0, lengthBytes: 8 }, signal)));
      source.close();
      const toWorker = openWorkerStream(client, address, NETWORK);
      toWorker.send(executeOf(0));
      const toShadow = openShadowStream(client, address, NETWORK);
      toShadow.send({ kind: 'end', end: { sequence: 1 } });
      await world.until(() => hosts.size === 10);
      assert.deepEqual(new Set(hosts.values()), new Set([world.clientHost]));
    });

    it('cancels a call when its signal aborts, before the call and during it', async () => {
      const address = await serve({});
      const during = new AbortController();
      const identified = identifyPeer(world.client, address, 2000, during.signal);
      during.abort();
      await assert.rejects(settled(identified), { code: 'CANCELLED' });
      await assert.rejects(settled(identifyPeer(world.client, address, 2000, AbortSignal.abort())), {
        code: 'CANCELLED',
      });
    });

    describe('for an answer', () => {
      /** The replies of one request; `pause`: waits before it takes the next one. */
      async function collect(
        address: string,
        { signal, most = Infinity, pause }: { signal?: AbortSignal; most?: number; pause?: () => Promise<void> } = {},
      ): Promise<{ replies: GenerateReply[]; code: string | null }> {
        const replies: GenerateReply[] = [];
        try {
          for await (const reply of generate(world.client, address, REQUEST, signal)) {
            replies.push(reply);
            if (replies.length >= most) break;
            await pause?.();
          }
          return { replies, code: null };
        } catch (thrown) {
          return { replies, code: toOdmoeError(thrown).code };
        }
      }

      it('keeps the order, with everything that was sent before an error', async () => {
        const address = await serve({
          inference: {
            generate: async function* () {
              for (let id = 0; id < 50; id++) yield token(id);
              throw new OdmoeError('WORKER_LOST', 'w0 is gone');
            },
          },
        });
        const { replies, code } = await settled(collect(address));
        assert.deepEqual(
          replies,
          Array.from({ length: 50 }, (_, id) => token(id)),
        );
        assert.equal(code, 'WORKER_LOST');
      });

      it('waits for a slow reader, and gives the whole answer to the end', async () => {
        let [made, listeners] = [0, 0];
        const address = await serve({
          inference: {
            generate: async function* (_, signal) {
              for (; made < MANY_REPLIES; made++) {
                yield token(made, LONG_TEXT);
                listeners = Math.max(listeners, getEventListeners(signal, 'abort').length);
              }
              yield FINISHED;
            },
          },
        });
        let wake: () => void = () => undefined;
        let taken = 0;
        const pause = (): Promise<void> =>
          ++taken === REPLIES_HELD_LIMIT ? new Promise((resolve) => (wake = resolve)) : Promise.resolve();
        const reading = collect(address, { pause });
        await world.until(() => taken === REPLIES_HELD_LIMIT);
        await world.pass(300);
        assert.ok(made < MANY_REPLIES / 2, `${made} replies were made for a reader that has paused`);
        wake();
        const { replies, code } = await settled(reading);
        assert.equal(code, null);
        assert.deepEqual(
          replies.flatMap((reply) => (reply.kind === 'token' ? [reply.token.tokenId] : [])),
          Array.from({ length: MANY_REPLIES }, (_, id) => id),
        );
        assert.deepEqual(replies.at(-1), FINISHED);
        assert.ok(listeners <= 2, `${listeners} listeners waited for the end of one answer`);
      });

      it('cancels it when its reader leaves, or by the signal', async () => {
        let [begun, aborted] = [0, 0];
        const address = await serve({
          inference: {
            generate: async function* (_, signal) {
              begun += 1;
              signal.addEventListener('abort', () => (aborted += 1));
              yield token(1);
              yield token(2);
              await new Promise<void>((resolve) => signal.addEventListener('abort', () => resolve()));
            },
          },
        });
        const left = await settled(collect(address, { most: 2 }));
        assert.deepEqual([left.replies.length, left.code], [2, null]);
        await world.until(() => aborted === 1);

        const gone = new AbortController();
        const reading = collect(address, { signal: gone.signal });
        // Before that the server does not know of the request.
        await world.until(() => begun === 2);
        gone.abort();
        assert.equal((await settled(reading)).code, 'CANCELLED');
        await world.until(() => aborted === 2);
      });

      it('gives an error where the final message is missing', async () => {
        const address = await serve({
          inference: {
            generate: async function* () {
              yield token(1);
            },
          },
        });
        assert.equal((await settled(collect(address))).code, 'NO_MAIN');
      });
    });

    it('delivers pack pieces in order, and the code of a refusal', async () => {
      const pieces = Array.from({ length: 40 }, (_, index) => new Uint8Array([index, index + 1]));
      const address = await serve({
        pack: {
          describe: () => ({ packDigest: 'abc', layers: 1, experts: 2, heldExperts: new Uint8Array([3]), whole: true }),
          manifest: async function* () {
            yield* [];
            throw new OdmoeError('MODEL_NOT_FOUND', 'no such pack');
          },
          read: async function* () {
            for (const bytes of pieces) yield { bytes };
          },
        },
      });
      const source = openPackSource(world.client, address);
      const readAll = async (from: AsyncIterable<Uint8Array>): Promise<number[][]> => {
        const read: number[][] = [];
        for await (const piece of from) read.push([...piece]);
        return read;
      };
      const { signal } = new AbortController();
      const wanted = { packDigest: 'abc', file: 'experts-00000.bin', offsetBytes: 0, lengthBytes: 80 };
      assert.equal((await settled(source.describe(2000))).layers, 1);
      assert.deepEqual(
        await settled(readAll(source.read(wanted, signal))),
        pieces.map((piece) => [...piece]),
      );
      await assert.rejects(settled(readAll(source.manifest({ packDigest: 'abc' }, signal))), {
        code: 'MODEL_NOT_FOUND',
      });
      source.close();
    });
  });
}
