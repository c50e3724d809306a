import assert from 'node:assert/strict';
import { InProcessTransport } from '../../shared/transport/in-process-transport.js';
import type { NodeIdentity, WorkerReply, WorkerRequest } from '../../shared/wire/messages.js';
import type { PeerContext } from '../../shared/transport/peer-context.js';
import type { PeerStream } from '../../shared/transport/peer-stream.js';
import type { RpcServer, Transport } from '../../shared/transport/transport.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { testSettings } from '../integration/harness/test-settings.js';
import { collectionSizes } from '../../shared/base/runtime/collection-sizes.js';
import { VirtualClock } from '../../shared/base/runtime/virtual-clock.js';
import { VirtualRuntime } from '../../shared/base/runtime/virtual-runtime.js';
import { identifyPeer, openWorkerStream } from '../../shared/transport/node-clients.js';

const ADDRESS = 'main:7600';
const END: WorkerRequest = { kind: 'end', end: { sequence: 7 } };
const NO_LOG = { error: () => undefined, warn: () => undefined, info: () => undefined, debug: () => undefined };

type Served = PeerStream<WorkerReply, WorkerRequest>;

describe('the transport between a main and a worker of one process', () => {
  const { network } = testSettings('main', '.');
  const clock = new VirtualClock();
  const runtime = new VirtualRuntime(clock, 1);
  const pass = (): Promise<void> => clock.run(() => false, { untilMs: clock.nowMs + 1 });
  let transport: InProcessTransport;
  let server: RpcServer;
  let served: Served[];
  let callers: PeerContext[];
  let said: string[];

  beforeEach(async () => {
    [served, said, callers] = [[], [], []];
    const outer = {} as Transport;
    transport = new InProcessTransport(runtime, outer, (way, to, { kind }) => said.push(`${way} ${to} ${kind}`));
    transport.address = ADDRESS;
    server = await transport.ofWorker.serve({
      host: '',
      port: 0,
      network,
      log: NO_LOG,
      node: {
        identify: (_, peer) => {
          callers.push(peer);
          return { id: 'own' } as NodeIdentity;
        },
      },
      worker: {
        serve: (stream, peer) => {
          callers.push(peer);
          served.push(stream);
        },
      },
    });
  });

  const open = (): { opened: PeerStream<WorkerRequest, WorkerReply>; other: Served; ended: (OdmoeError | null)[] } => {
    const opened = openWorkerStream(transport.ofMain, ADDRESS, network);
    const ended: (OdmoeError | null)[] = [];
    opened.onClose((error) => ended.push(error));
    return { opened, other: served.at(-1) ?? assert.fail('nobody serves the stream'), ended };
  };

  it('brings messages in order, in a turn of their own, and both sides see the end', async () => {
    const { opened, other, ended } = open();
    const got: WorkerRequest[] = [];
    let otherEnded = 0;
    other.onMessage((message) => void got.push(message));
    other.onClose(() => (otherEnded += 1));
    opened.send(END);
    opened.send({ kind: 'end', end: { sequence: 8 } });
    assert.equal(got.length, 0);
    assert.ok(opened.backlogBytes > 0);
    await pass();
    assert.deepEqual(
      got.map((message) => (message.kind === 'end' ? message.end.sequence : 0)),
      [7, 8],
    );
    assert.equal(opened.backlogBytes, 0);
    assert.equal(opened.sentBytes, other.receivedBytes);
    opened.close();
    await pass();
    assert.deepEqual([ended, otherEnded], [[null], 1]);
    assert.equal(collectionSizes([transport]).get('InProcessTransport.streams'), 0);
    assert.deepEqual(said, ['sent server end', 'sent server end', 'arrived server end', 'arrived server end']);
  });

  it('counts messages without a listener as unsent, and delivers them to a later listener', async () => {
    const { opened, other } = open();
    opened.send(END);
    await pass();
    assert.ok(opened.backlogBytes > 0);
    const got: string[] = [];
    other.onMessage(({ kind }) => void got.push(kind));
    await pass();
    assert.deepEqual([got, opened.backlogBytes], [['end'], 0]);
  });

  it("gives the opener the worker's closing code, behind earlier messages", async () => {
    const { opened, other, ended } = open();
    const order: string[] = [];
    opened.onMessage(({ kind }) => void order.push(kind));
    opened.onClose((error) => void order.push(error?.code ?? 'ended'));
    other.send({ kind: 'error', error: { code: 'INTERNAL', message: 'no', requestId: 0, epoch: 0 } });
    other.close(new OdmoeError('PROTOCOL_VIOLATION', 'nonsense'));
    await pass();
    assert.deepEqual(order, ['error', 'PROTOCOL_VIOLATION']);
    assert.deepEqual(ended, []);
  });

  it('ends a stream whose handler throws, and nothing else', async () => {
    const first = open();
    const second = open();
    first.other.onMessage(() => assert.fail('a defect'));
    const got: string[] = [];
    second.other.onMessage(({ kind }) => void got.push(kind));
    first.opened.send(END);
    second.opened.send(END);
    await pass();
    assert.equal(first.ended.length, 1);
    assert.deepEqual([got, second.ended], [['end'], []]);
  });

  it("tells the worker's handlers who calls: this process, or a caller of main's server", async () => {
    await identifyPeer(transport.ofMain, ADDRESS, 10);
    const { opened } = open();
    transport.serveWorker(opened as unknown as Served, { host: '10.0.0.9', caller: null });
    assert.deepEqual(callers, [
      { host: '127.0.0.1', caller: null },
      { host: '127.0.0.1', caller: null },
      { host: '10.0.0.9', caller: null },
    ]);
  });

  it('reaches nobody once the worker has stopped', async () => {
    const { ended } = open();
    assert.equal((await identifyPeer(transport.ofMain, ADDRESS, 10)).id, 'own');
    const stopped = server.stop();
    await pass();
    await stopped;
    assert.deepEqual(ended, [null]);
    await assert.rejects(identifyPeer(transport.ofMain, ADDRESS, 10), { code: 'TIMEOUT' });
    const late = openWorkerStream(transport.ofMain, ADDRESS, network);
    const codes: (string | undefined)[] = [];
    late.onClose((error) => codes.push(error?.code));
    await pass();
    assert.deepEqual(codes, ['WORKER_LOST']);
  });
});
