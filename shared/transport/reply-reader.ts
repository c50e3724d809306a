import type { ClientReadableStream } from '@grpc/grpc-js';
import { OdmoeError } from '../base/errors/odmoe-error.js';
import type { ErrorCode } from '../base/errors/registry.js';
import { waitForPeer } from '../base/runtime/peer-wait.js';
import type { Runtime } from '../base/runtime/runtime.js';
import { fromServiceError } from './rpc-errors.js';

/**
 * The call's messages in order, all of them even when an error follows; then the error is thrown. `heldLimit`: messages held for a
 * slow reader before the sender is made to wait. `idleLimitMs`: the longest wait for a next message, after which the call is cancelled and
 * fails with the lost code; the reader's own pauses do not count.
 */
export async function* readReplies(
  call: ClientReadableStream<Buffer>,
  peer: string,
  lostCode: ErrorCode,
  heldLimit: number,
  runtime: Runtime,
  idleLimitMs = Infinity,
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
      await new Promise<void>((resolve) => runtime.nextTurn(resolve));
      if (error !== null) throw error as OdmoeError;
      return;
    } else if (!(await arrives((resolve) => (wake = resolve), runtime, idleLimitMs))) {
      call.cancel();
      throw new OdmoeError(
        lostCode,
        `${peer} has sent nothing for ${idleLimitMs / 1000} s: is it overloaded or suspended?`,
      );
    }
  }
}

/** False when the limit passes first; no limit: Infinity. */
function arrives(listen: (resolve: () => void) => void, runtime: Runtime, limitMs: number): Promise<boolean> {
  return new Promise((resolve) => {
    const timer = Number.isFinite(limitMs) ? waitForPeer(runtime, limitMs, () => resolve(false)) : null;
    listen(() => {
      timer?.cancel();
      resolve(true);
    });
  });
}
