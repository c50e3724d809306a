/** gRPC calls whose messages are any bytes, as a hostile program would send them. */
import { Client, credentials, Metadata, type ServiceError, status } from '@grpc/grpc-js';
import { onAbort } from '../../shared/base/runtime/living.js';

/** Encodes nothing, because messages are bytes already. */
export const raw = (bytes: Buffer): Buffer => bytes;
/** A daemon that is silent for this long counts as silent forever. */
const ANSWER_LIMIT_MS = 60_000;
const OPTIONS = { 'grpc.max_send_message_length': -1, 'grpc.max_receive_message_length': -1 };

/** The end of a call: a gRPC status with its details, or another word. */
export interface RawEnd {
  status: string;
  details: string;
}

export async function callRaw(address: string, path: string, bytes: Buffer, signal: AbortSignal): Promise<RawEnd> {
  return withClient(address, signal, (client, settle) => {
    const call = client.makeServerStreamRequest(path, raw, raw, bytes, new Metadata());
    call.on('data', () => undefined);
    call.on('end', () => settle(plainEnd('answered')));
    call.on('error', (error: ServiceError) => settle(endOf(error)));
    return call;
  });
}

/** Opens a stream, sends the messages, and waits until the daemon ends it; "stays open" if it does not end it within `openMs`. */
export async function streamRaw(
  address: string,
  path: string,
  messages: readonly Buffer[],
  openMs: number,
  signal: AbortSignal,
): Promise<RawEnd> {
  return withClient(address, signal, (client, settle) => {
    const call = client.makeBidiStreamRequest(path, raw, raw, new Metadata());
    call.on('data', () => undefined);
    call.on('end', () => settle(plainEnd('ended')));
    call.on('error', (error: ServiceError) => settle(endOf(error)));
    for (const message of messages) call.write(message);
    const timer = setTimeout(() => settle(plainEnd('stays open')), openMs);
    call.on('close', () => clearTimeout(timer));
    return call;
  });
}

interface Cancellable {
  cancel(): void;
}

async function withClient(
  address: string,
  signal: AbortSignal,
  begin: (client: Client, settle: (end: RawEnd) => void) => Cancellable,
): Promise<RawEnd> {
  const client = new Client(address, credentials.createInsecure(), OPTIONS);
  let call: Cancellable | null = null;
  const limit = AbortSignal.any([signal, AbortSignal.timeout(ANSWER_LIMIT_MS)]);
  let leave = (): void => undefined;
  try {
    return await new Promise<RawEnd>((resolve) => {
      leave = onAbort(limit, () => resolve(plainEnd('no answer')));
      call = begin(client, resolve);
    });
  } finally {
    leave();
    (call as Cancellable | null)?.cancel();
    client.close();
  }
}

function endOf({ code, details }: ServiceError): RawEnd {
  return { status: status[code] ?? String(code), details };
}

function plainEnd(word: string): RawEnd {
  return { status: word, details: '' };
}
