/** Streams that main and shadow open to their peers. */
import { Metadata, status, type ClientDuplexStream } from '@grpc/grpc-js';
import type { NodeSettings } from '../config/node-settings.js';
import { OdmoeError, type ErrorCode } from '../errors/index.js';
import { openChannel } from './channel.js';
import { SHADOW_SERVE, WORKER_SERVE, type RpcMethod } from './codecs.js';
import { CLOSE_GRACE_MS, CONNECT_TIMEOUT_MS } from './limits.js';
import type { ShadowReply, ShadowRequest, WorkerReply, WorkerRequest } from './messages.js';
import type { NetworkTransit, PeerMessage } from './network-transit.js';
import { GrpcPeerStream, type PeerStream } from './peer-stream.js';
import { fromServiceError } from './rpc-errors.js';

/** `address` is "host:port". A failure to connect comes through onClose as WORKER_LOST, within CONNECT_TIMEOUT_MS. */
export function openWorkerStream(
  address: string,
  network: NodeSettings['network'],
  transit: NetworkTransit | null = null,
): PeerStream<WorkerRequest, WorkerReply> {
  return openStream(address, network, WORKER_SERVE, 'WORKER_LOST', transit);
}

/** As openWorkerStream, with SHADOW_LOST. */
export function openShadowStream(
  address: string,
  network: NodeSettings['network'],
  transit: NetworkTransit | null = null,
): PeerStream<ShadowRequest, ShadowReply> {
  return openStream(address, network, SHADOW_SERVE, 'SHADOW_LOST', transit);
}

type RawStream = ClientDuplexStream<Buffer, Buffer>;

const raw = (bytes: Buffer): Buffer => bytes;

function openStream<Out extends PeerMessage, In extends PeerMessage>(
  address: string,
  network: NodeSettings['network'],
  method: RpcMethod<Out, In>,
  lostCode: ErrorCode,
  transit: NetworkTransit | null,
): PeerStream<Out, In> {
  const channel = openChannel(address, network);
  const { client } = channel;
  const call: RawStream = client.makeBidiStreamRequest(method.path, raw, raw, new Metadata());
  let forceTimer: NodeJS.Timeout | null = null;
  const ending = {
    finish: () => {
      call.end();
      forceTimer = setTimeout(() => {
        call.cancel();
      }, CLOSE_GRACE_MS);
      forceTimer.unref();
    },
    fail: () => {
      call.cancel();
    },
  };
  const stream = new GrpcPeerStream(call, method.request, method.reply, ending, transit);
  const settle = (error: OdmoeError | null): void => {
    if (forceTimer !== null) clearTimeout(forceTimer);
    channel.close();
    // Messages that arrived before the status are still to be delivered.
    if (stream.delivering) call.once('end', () => stream.ended(error));
    else stream.ended(error);
  };
  call.on('error', (thrown: unknown) => {
    settle(fromServiceError(thrown, lostCode, address));
  });
  call.on('status', ({ code }) => {
    if (code === status.OK) settle(null);
  });
  client.waitForReady(Date.now() + CONNECT_TIMEOUT_MS, (error) => {
    if (error === undefined) return;
    stream.close(new OdmoeError(lostCode, `no connection to ${address} within ${CONNECT_TIMEOUT_MS} ms`));
  });
  return stream;
}
