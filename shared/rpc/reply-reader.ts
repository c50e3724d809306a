import type { ClientReadableStream } from '@grpc/grpc-js';
import type { ErrorCode, OdmoeError } from '../errors/index.js';
import { fromServiceError } from './rpc-errors.js';

/**
 * The call's messages in order, all of them even when an error follows; then the error is thrown. `heldLimit`: messages held for a
 * slow reader before the sender is made to wait.
 */
export async function* readReplies(
  call: ClientReadableStream<Buffer>,
  peer: string,
  lostCode: ErrorCode,
  heldLimit: number,
): AsyncGenerator<Buffer, void, undefined> {
  const arrived: Buffer[] = [];
  let error: OdmoeError | null = null;
  let ended = false;
  let wake: () => void = () => undefined;
  call.on('data', (bytes: Buffer) => {
    arrived.push(bytes);
    if (arrived.length >= heldLimit) call.pause();
    wake();
  });
  call.on('error', (thrown: unknown) => {
    error = fromServiceError(thrown, lostCode, peer);
  });
  call.on('end', () => {
    ended = true;
    wake();
  });
  for (;;) {
    const next = arrived.shift();
    if (next !== undefined) {
      if (call.isPaused() && arrived.length < heldLimit / 2) call.resume();
      yield next;
    } else if (ended) {
      // Lets an 'error' that grpc-js emits beside 'end' arrive first.
      await new Promise((resolve) => setImmediate(resolve));
      if (error !== null) throw error as OdmoeError;
      return;
    } else {
      await new Promise<void>((resolve) => {
        wake = resolve;
      });
    }
  }
}
